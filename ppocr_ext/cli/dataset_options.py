"""What all kinds of ``ppocr-ext make-dataset`` take and say."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.synth.dataset_folder import FolderSummary, default_processes

FOLDER = """\
DIR then holds
  train/0000/000000.png …   images, a thousand to a folder
  train_list.txt            image<tab>label, a line each (Train.dataset.label_file_list)
  val_list.txt              the same for evaluation; none of its images is in train
  dict.txt                  a character a line (Global.character_dict_path)
  samples.png               forty of them with their labels, to look at
  dataset.json              the parameters, and the SHA-256 of all files

The same parameters give the same files, whatever the number of processes. Run again, the command makes
what is missing. A DIR that holds something else is left alone.

To train on it: -o Train.dataset.data_dir=DIR Train.dataset.label_file_list=[DIR/train_list.txt]
  Eval.dataset.data_dir=DIR Eval.dataset.label_file_list=[DIR/val_list.txt] Global.character_dict_path=DIR/dict.txt
"""


def add_folder_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the images go, how many there are, and how they are summary."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--train", type=int, default=10_000, metavar="N", help="train images (10000)")
    parser.add_argument("--val", type=int, default=1_000, metavar="N", help="evaluation images (1000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, other images (1)")
    parser.add_argument("--format", choices=("png", "jpg"), default="png", help="image files (png)")
    parser.add_argument(
        "--processes",
        type=int,
        default=default_processes(),
        metavar="N",
        help="processes that draw (one for each processor core)",
    )


def report(out: Path, summary: FolderSummary) -> None:
    """Print what was made, how fast, and where to look."""
    if summary.drawn:
        speed = summary.drawn / summary.seconds
        found = f", {summary.found:,} were there" if summary.found else ""
        print(f"{summary.drawn:,} images drawn in {summary.seconds:.1f} s ({speed:,.0f} images/s){found}")
    else:
        print(f"all {summary.found:,} images are there; nothing to do")
    print(f"{out}: train_list.txt, val_list.txt, dict.txt; look at {out / 'samples.png'}")
