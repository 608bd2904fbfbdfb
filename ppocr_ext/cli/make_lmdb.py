"""``ppocr-ext make-lmdb``: write label files and their images into one LMDB, for PaddleOCR's ``LMDBDataSet``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.cli.options import add_count, add_number
from ppocr_ext.config.global_keys import GLOBAL_KEYS, ValueRule
from ppocr_ext.data.lmdb_sets import DATA_FILE
from ppocr_ext.data.lmdb_writer import LmdbCounts, LmdbInput, make_lmdb
from ppocr_ext.data.preflight_report import by_reason
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.data.unusable_limit import MAX_UNUSABLE
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_IMAGE_PIXELS
from ppocr_ext.messages import for_people

EPILOG = """\
examples:
  ppocr-ext make-lmdb --label-files data/train_list.txt --data-dir data --out data/train_lmdb
  ppocr-ext make-lmdb --label-files a.txt b.txt --data-dir images --out lmdb/train --dict dict.txt --check decode

Images are stored as they are. Unusable lines are skipped, counted and named. A line with a list of images
gives a sample for each. If the command is killed, delete DIR and start again: until the LMDB is complete, it
has no num-samples, and nobody reads it. A DIR that is not empty is not changed.

exit codes: 0 the LMDB is complete; 2 it could not be made, or too many lines are unusable
"""
_GB = 1 << 30
_MAX_GB = 100_000  # LMDB reserves addresses for the whole file, and finds none for more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--label-files",
        type=Path,
        nargs="+",
        required=True,
        metavar="LIST",
        help="image<tab>label on each line",
    )
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="where image paths start")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the LMDB")
    parser.add_argument("--delimiter", default="\t", metavar="TEXT", help="between path and label (a tab)")
    parser.add_argument(
        "--check",
        choices=("header", "decode", "none"),
        default="header",
        help="check first and last bytes of each image, decode it, or only check that it is not empty (header)",
    )
    parser.add_argument("--dict", type=Path, metavar="FILE", help="skip labels with other characters (any)")
    parser.add_argument("--use-space-char", action="store_true", help="with --dict: the space is allowed too")
    add_count(parser, "--max-text-length", help="skip labels with more characters (any)")
    parser.add_argument(
        "--allow-outside-data-dir", action="store_true", help="use images outside --data-dir (skipped)"
    )
    add_number(
        parser,
        "--max-unusable",
        GLOBAL_KEYS["max_unusable"],
        default=MAX_UNUSABLE,
        metavar="SHARE",
        help=f"refuse if more lines are skipped ({MAX_UNUSABLE:g})",
    )
    add_count(
        parser,
        "--max-image-pixels",
        default=MAX_IMAGE_PIXELS,
        help=f"skip images with more ({MAX_IMAGE_PIXELS:,})",
    )
    size = ValueRule("number", above=0, most=_MAX_GB)
    add_number(parser, "--map-size", size, default=1, metavar="GB", help="size at first; it grows (1)")


def run(args: argparse.Namespace) -> int:
    """Make the LMDB; return the exit code."""
    if not args.delimiter:
        raise DataError(
            "--delimiter is empty, but must be the text between path and label.", code="bad_value"
        )
    charset = Charset.from_file(args.dict, args.use_space_char) if args.dict else None
    rules = SampleRules(
        charset,
        args.max_text_length,
        image_check=args.check,
        allow_outside_data_dir=args.allow_outside_data_dir,
        max_pixels=args.max_image_pixels,
    )
    source = LmdbInput(tuple(args.label_files), args.data_dir, rules, args.delimiter)
    started = time.perf_counter()
    counts = make_lmdb(args.out, source, args.max_unusable, max(1 << 20, int(args.map_size * _GB)))
    _report(args.out, counts, time.perf_counter() - started)
    return 0


def _report(out: Path, counts: LmdbCounts, seconds: float) -> None:
    print(f"{counts.samples:,} images in {seconds:.1f} s ({counts.samples / seconds:,.0f} images/s)")
    size = (out / DATA_FILE).stat().st_size
    print(f"{out}: {counts.samples:,} samples, {size / 1e6:,.1f} MB")
    if counts.skipped:
        print(f"skipped {counts.skipped:,} of {counts.lines:,} lines: {by_reason(counts.unusable)}")
        print(for_people(counts.example_lines()))
    print(f"To train from it (transforms as for label files):\n{_SNIPPET.format(out=out)}", end="")


_SNIPPET = """\
  Train:
    dataset:
      name: LMDBDataSet
      data_dir: {out}
"""
