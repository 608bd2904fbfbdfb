"""``ppocr-ext make-lmdb``: label files and their images in one LMDB, for PaddleOCR's ``LMDBDataSet``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.config.global_keys import GLOBAL_KEYS
from ppocr_ext.data.lmdb.samples import LmdbInput
from ppocr_ext.data.lmdb.writer import LmdbMade, make_lmdb
from ppocr_ext.data.unusable_limit import MAX_UNUSABLE
from ppocr_ext.errors import DataError

NAME = "make-lmdb"
HELP = "Put label files and their images into one LMDB, which LMDBDataSet reads."
EPILOG = """\
examples:
  ppocr-ext make-lmdb --label-files data/train_list.txt --data-dir data --out data/train_lmdb
  ppocr-ext make-lmdb --label-files a.txt b.txt --data-dir images --out lmdb/train --dict dict.txt --check decode

Images are stored as they are. Lines that cannot be used are left out, counted and named. A line with a
list of images gives a sample for each. Interrupted or killed, the same command goes on where it was; until
it is complete, the LMDB has no num-samples, and nobody reads it. A DIR that holds something else is left alone.

exit codes: 0 the LMDB is complete; 2 it could not be made, or too many lines cannot be used
"""
_GB = 1 << 30
_MOST_GB = 100_000  # more than LMDB finds addresses for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--label-files",
        type=Path,
        nargs="+",
        required=True,
        metavar="LIST",
        help="image<tab>label, a line each",
    )
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="where image paths start")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the LMDB")
    parser.add_argument("--delimiter", default="\t", metavar="TEXT", help="between path and label (a tab)")
    parser.add_argument(
        "--check",
        choices=("header", "decode", "none"),
        default="header",
        help="look at first and last bytes of each image, decode it, or only see that it is not empty (header)",
    )
    parser.add_argument(
        "--dict", type=Path, metavar="FILE", help="leave out labels with other characters (any)"
    )
    parser.add_argument("--use-space-char", action="store_true", help="with --dict: the space is in it too")
    parser.add_argument(
        "--max-text-length", type=int, metavar="N", help="leave out labels with more characters (any)"
    )
    parser.add_argument(
        "--allow-outside-data-dir", action="store_true", help="take images outside --data-dir (left out)"
    )
    parser.add_argument(
        "--max-unusable",
        type=float,
        default=MAX_UNUSABLE,
        metavar="SHARE",
        help=f"do not complete it if more lines are left out ({MAX_UNUSABLE:g})",
    )
    parser.add_argument(
        "--map-size", type=float, default=1, metavar="GB", help="size to begin with; it grows (1)"
    )


def run(args: argparse.Namespace) -> int:
    """Make the LMDB; the exit code."""
    if not 0 < args.map_size <= _MOST_GB:
        raise DataError(f"--map-size {args.map_size:g}: give gigabytes, more than 0, at most {_MOST_GB:,}.")
    if not args.delimiter:
        raise DataError("--delimiter is empty. Give what stands between path and label.")
    if args.max_text_length is not None and args.max_text_length < 1:
        raise DataError(f"--max-text-length {args.max_text_length}: give at least 1, or leave it out.")
    problem = GLOBAL_KEYS["max_unusable"].problem(args.max_unusable)
    if problem is not None:
        raise DataError(f"--max-unusable: {problem.message}", code=problem.code)
    wanted = LmdbInput(
        label_files=tuple(args.label_files),
        data_dir=args.data_dir,
        delimiter=args.delimiter,
        check=args.check,
        charset=Charset.from_file(args.dict, args.use_space_char) if args.dict else None,
        max_text_length=args.max_text_length,
        allow_outside_data_dir=args.allow_outside_data_dir,
    )
    try:
        made = make_lmdb(args.out, wanted, args.max_unusable, max(1 << 20, int(args.map_size * _GB)))
    except KeyboardInterrupt:
        print(f"go on with: {args.again}", file=sys.stderr)
        raise
    _report(args.out, made)
    return 0


def _report(out: Path, made: LmdbMade) -> None:
    state = made.state
    if made.written:
        before = state.samples - made.written
        there = f", {before:,} were there" if before else ""
        speed = made.written / made.seconds
        print(f"{made.written:,} images in {made.seconds:.1f} s ({speed:,.0f} images/s){there}")
    else:
        print("complete; nothing to do")
    print(f"{out}: {state.samples:,} samples, {made.size / 1e6:,.1f} MB")
    if state.left_out:
        print(f"left out {state.left_out:,} of {state.lines:,} lines: {state.by_reason()}")
        print("\n".join(f"  {line}" for line in state.named()))
    print(f"To train from it (transforms as for label files):\n{_SNIPPET.format(out=out)}", end="")


_SNIPPET = """\
  Train:
    dataset:
      name: LMDBDataSet
      data_dir: {out}
"""
