"""``ppocr-ext make-dataset``: draw images with labels and a dictionary."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ppocr_ext.cli import dataset_captcha, dataset_lines
from ppocr_ext.errors import DataError
from ppocr_ext.synth.dataset_folder import DatasetFolder, default_processes, make_folder

NAME = "make-dataset"
HELP = "Draw labelled images to train and test a recogniser with."
EPILOG = "`ppocr-ext make-dataset lines --help` and `… captcha --help` have examples."
_FOLDER = """
DIR then holds
  train/0000/000000.png …   images, a thousand to a folder
  train_list.txt            image<tab>label, one on each line (Train.dataset.label_file_list)
  val_list.txt              the same for evaluation; none of its images is in train
  dict.txt                  one character on each line (Global.character_dict_path)
  samples.png               forty of them with their labels, to look at
  dataset.json              the parameters, and the SHA-256 of all files

The same parameters give the same files, with any number of processes. If files are missing, run the
command again: it draws them. A DIR that holds something else is not changed.

To train on it: -o Train.dataset.data_dir=DIR Train.dataset.label_file_list=[DIR/train_list.txt]
  Eval.dataset.data_dir=DIR Eval.dataset.label_file_list=[DIR/val_list.txt] Global.character_dict_path=DIR/dict.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each kind of image; its ``args.make_source`` returns source and dictionary."""
    kinds = parser.add_subparsers(title="kinds", dest="kind", metavar="KIND", required=True)
    for module in (dataset_lines, dataset_captcha):
        kind = kinds.add_parser(
            module.KIND,
            help=module.HELP,
            description=f"Draw {module.HELP}.",
            epilog=module.EXAMPLES + _FOLDER,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = kind.add_argument
        add("--out", type=Path, required=True, metavar="DIR", help="folder to make")
        add("--train", type=int, default=10_000, metavar="N", help="train images (10000)")
        add("--val", type=int, default=1_000, metavar="N", help="evaluation images (1000)")
        add("--seed", type=int, default=1, metavar="N", help="another seed, other images (1)")
        add("--format", choices=("png", "jpg"), default="png", help="image files (png)")
        processes = "processes that draw (one for each processor core)"
        add("--processes", type=int, default=default_processes(), metavar="N", help=processes)
        module.add_arguments(kind)
        kind.set_defaults(make_source=module.make_source)


def run(args: argparse.Namespace) -> int:
    """Write the folder; return the exit code."""
    try:
        source, characters = args.make_source(args)
        wanted = DatasetFolder(source, args.train, args.val, args.format, characters)
        started = time.perf_counter()
        drawn = make_folder(args.out, wanted, args.processes)
        seconds = time.perf_counter() - started
    except OSError as error:
        raise DataError(
            f"{error.filename or args.out}: {error.strerror or error}.\nTo continue: {args.again}",
            code="file_error",
        ) from error
    found = args.train + args.val - drawn
    if drawn:
        existed = f", {found:,} existed" if found else ""
        print(f"{drawn:,} images drawn in {seconds:.1f} s ({drawn / seconds:,.0f} images/s){existed}")
    else:
        print(f"all {found:,} images exist; nothing to do")
    print(f"{args.out}: train_list.txt, val_list.txt, dict.txt; look at {args.out / 'samples.png'}")
    return 0
