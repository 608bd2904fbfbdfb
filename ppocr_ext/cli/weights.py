"""``ppocr-ext weights``: official weights of PP-OCR's recognisers, by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.checkpoint.official_weights import official, pin_file, table
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.cli.options import add_trust_argument
from ppocr_ext.errors import WeightsError
from ppocr_ext.inference.graph_file import MAX_MODEL_BYTES
from ppocr_ext.inference.released import find_released, released_packages
from ppocr_ext.io.atomic import check_writable, write_bytes
from ppocr_ext.io.resources import cache_folder
from ppocr_ext.limits import read_at_most
from ppocr_ext.run.logs import set_up_console

EPILOG = """\
examples:
  ppocr-ext weights list
  ppocr-ext weights get PP-OCRv5_mobile_rec
  ppocr-ext train -c my.yml -o Global.pretrained_model=PP-OCRv5_mobile_rec
  ppocr-ext weights convert PP-OCRv6_small_rec_infer --out v6_small.pdparams   # a released inference model

A config takes a name wherever it takes a file of weights: Global.pretrained_model, and `pretrained` of a sub-model. It
is looked for in $PPOCR_EXT_CACHE/weights (~/.cache/ppocr_ext/weights), then as an inference model in the cache of
PaddleOCR 3's client (~/.paddlex/official_models) and in installed packages such as rapidocr, and then downloaded, once.
Without a network: pip install "ppocr-ext[weights]", or put the file there yourself; `weights list` shows its address.
The path of an inference model (a folder, or an ONNX file) is taken too, without `convert`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="list|get|convert|forget|path")
    commands.add_parser("list", help="print all names: classes, dictionary, address")
    for action, text in (
        ("get", "download the weights"),
        ("forget", "remove the stored digest of the first file, so that another file is accepted"),
        ("path", "print where their file is, downloaded or not"),
    ):
        commands.add_parser(action, help=text).add_argument("name", help="such as PP-OCRv5_mobile_rec")
    convert = commands.add_parser(
        "convert", help="write the weights of an inference model in the form that trains"
    )
    convert.add_argument("name", metavar="MODEL", help="its folder, its ONNX file, or an official name")
    convert.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .pdparams to write")
    add_trust_argument(convert)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand; return the exit code."""
    if args.action == "list":
        for entry in table().values():
            source = find_source(entry.name) or entry  # None: a file of this name lies here
            print(f"{entry.name}: {entry.classes} classes, heads {', '.join(entry.branches)}")
            print(f"  here:       {source.place if source.is_here else 'no'}")
            print(f"  dictionary: {entry.its_dictionary}")
            print(f"  config:     {entry.config}")
            print(f"  address:    {entry.address}{f' ({entry.member})' if entry.member else ''}")
        print("\npackages with inference models:")
        for row in released_packages():
            print(f"  pip install {row.package}=={row.version}: {row.name} ({row.licence})")
        print(f"\nfolder: {cache_folder('weights')}")
    elif args.action == "get":
        set_up_console(to_stderr=True)  # the download writes to the log
        print(f"{official(args.name).fetch()}\n{official(args.name).line}")
    elif args.action == "convert":
        _convert(args)
    elif args.action == "forget":
        pin_file(official(args.name)).unlink(missing_ok=True)
        print(f"{args.name}: the next file is taken as it is, and its digest is kept.")
    else:
        print(official(args.name).file)
    return 0


def _convert(args: argparse.Namespace) -> None:
    """Write the weights of an inference model, and say which network they are of."""
    from ppocr_ext.host.complete import import_paddle

    import_paddle()
    from ppocr_ext.checkpoint.conversion import conversion_of

    set_up_console(to_stderr=True)
    model = find_released(args.name, by_name=True)
    if model is None:
        raise WeightsError(
            f"{args.name}: no inference model is found there. Fix: give its folder (inference.json or "
            f"inference.pdmodel, and inference.pdiparams), an ONNX file, or a name of `ppocr-ext weights list`.",
            code="missing_file",
        )
    out = args.out.with_name(f"{args.out.name.removesuffix('.pdparams')}.pdparams")
    check_writable(out)
    made = conversion_of(model, trusted=args.trust_model)
    write_bytes(out, read_at_most(made.file, MAX_MODEL_BYTES))
    print(
        f"{ReleasedSource(args.name, model).line}\n"
        f"{out}: the network of configs/{made.config}, {made.classes:,} classes, CTC alone. In the config: "
        f"Architecture.fused: true; with a second head also Global.pretrained_partial: true"
    )
