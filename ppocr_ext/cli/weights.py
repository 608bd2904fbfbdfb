"""``ppocr-ext weights``: official weights of PP-OCR's recognisers, by name."""

from __future__ import annotations

import argparse

from ppocr_ext.checkpoint.official_weights import digest_line, fetch, official, pin_file, table
from ppocr_ext.io.resources import cache_folder
from ppocr_ext.run.logs import set_up_console

EPILOG = """\
examples:
  ppocr-ext weights list
  ppocr-ext weights get PP-OCRv5_mobile_rec
  ppocr-ext train -c my.yml -o Global.pretrained_model=PP-OCRv5_mobile_rec

A config takes a name wherever it takes a file of weights: Global.pretrained_model, and `pretrained` of a sub-model.
The file is downloaded once, into $PPOCR_EXT_CACHE/weights (~/.cache/ppocr_ext/weights). Without a network, put the
file there yourself: `weights list` shows its address.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="list|get|forget|path")
    commands.add_parser("list", help="print all names: classes, dictionary, address")
    for action, text in (
        ("get", "download the weights"),
        ("forget", "remove the stored digest of the first file, so that another file is accepted"),
        ("path", "print where their file is, downloaded or not"),
    ):
        commands.add_parser(action, help=text).add_argument("name", help="such as PP-OCRv5_mobile_rec")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; return the exit code."""
    if args.action == "list":
        for entry in table().values():
            state = "downloaded" if entry.file.exists() else "not downloaded"
            opened = "" if entry.tried else ", not tried by us"
            print(
                f"{entry.name}: {entry.classes} classes, heads {', '.join(entry.branches)} ({state}{opened})"
            )
            print(f"  dictionary: {entry.its_dictionary}")
            print(f"  config:     {entry.config}")
            print(f"  address:    {entry.address}{f' ({entry.member})' if entry.member else ''}")
        print(f"\nfolder: {cache_folder('weights')}")
    elif args.action == "get":
        set_up_console(to_stderr=True)  # the download writes to the log
        print(f"{fetch(official(args.name))}\n{digest_line(official(args.name))}")
    elif args.action == "forget":
        pin_file(official(args.name)).unlink(missing_ok=True)
        print(f"{args.name}: the next file is taken as it is, and its digest is kept.")
    else:
        print(official(args.name).file)
    return 0
