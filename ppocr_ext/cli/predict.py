"""``ppocr-ext predict``: read images with a trained, an exported or a released recogniser."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.cli.options import (
    add_count,
    add_data_dir_argument,
    add_host_argument,
    add_number,
    add_old_dictionary_argument,
    add_option_argument,
    add_trust_argument,
    open_recognizer,
)
from ppocr_ext.config.global_keys import NETWORK, ValueRule
from ppocr_ext.errors import DataError
from ppocr_ext.inference.formats import FORMATS
from ppocr_ext.messages import for_people

if TYPE_CHECKING:
    from ppocr_ext.recognition.images import ImageList
    from ppocr_ext.recognition.reading_files import ReadImage, RowForm
    from ppocr_ext.recognition.recognizer import Recognizer

EPILOG = """\
MODEL is one of
  output/run                  the folder of a run: its best checkpoint, its own config
  config.yml                  a config; -o Global.checkpoints=… or Global.pretrained_model=… gives the weights
  exported, exported/inference.onnx      what `ppocr-ext export` wrote
  PP-OCRv6_small_rec          a released model on this machine, by its name, or its folder or ONNX file

IMAGES are files, folders (with subfolders), patterns in quotes ('scans/**/*.png'), label files
(path<TAB>label, paths from the label file's folder or --data-dir) and LMDBs, in any mixture.

The result goes to standard output, all else to standard error: `ppocr-ext predict output/run scans > texts.tsv`.
TSV with a header: image, label (if labels are known), prediction, confidence; `ppocr-ext confusions` reads it.
With a run, texts are right as its Metric says, which by default ignores spaces; with other models, spaces count.
Confidence is the mean probability of the characters, 0 if nothing was read. The exit code is 1 if an image
could not be read; the others are read nevertheless.

examples:
  ppocr-ext predict output/run photo.png
  ppocr-ext predict output/run scans --output texts.jsonl --characters
  ppocr-ext predict output/run data/val_list.txt --bad-cases --sheet worst.png --output val.tsv
  ppocr-ext predict output/run scans -o Global.checkpoints=output/run/latest
  ppocr-ext predict exported 'scans/*.png' --engine onnx --threads 2
"""
_SHOWN = 10  # limit of unreadable images in a message
_SHEET = 100  # limit of images on a sheet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("source", metavar="MODEL", help="run, config, exported or released model: folder, file or name")
    add("images", nargs="+", metavar="IMAGES", help="files, folders, patterns, label files, LMDBs")
    add_option_argument(parser, "set single keys of the config, e.g. -o Global.checkpoints=output/run/latest")
    _add_output_arguments(parser)
    _add_reading_arguments(parser)
    add_trust_argument(parser)
    add_host_argument(parser)


def _add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output."""
    add = parser.add_argument
    add("--output", metavar="FILE", help="write there instead of to standard output")
    add(
        "--format",
        choices=("tsv", "jsonl", "labels"),
        help="TSV, JSON lines, or a label file of the readings, to train on (default: by the ending of --output, else "
        "tsv)",
    )
    add_number(
        parser,
        "--least",
        ValueRule("number", least=0, most=1),
        default=0.9,
        metavar="P",
        help="of a label file: the lowest confidence of a reading (0.9)",
    )
    add(
        "--characters",
        action="store_true",
        help="also confidence and pixel columns of each character, where the network sees it",
    )
    add(
        "--bad-cases",
        action="store_true",
        help="the worst first: the wrong ones by their edit distance, then by confidence",
    )
    add(
        "--sheet",
        metavar="PNG",
        help="also draw the worst images with their texts, and none that is read right",
    )
    add_count(
        parser,
        "--sheet-images",
        default=_SHEET,
        help=f"the largest number of images on the sheet ({_SHEET})",
    )
    add(
        "--fonts",
        nargs="+",
        default=(),
        metavar="FONT",
        help="fonts for the sheet: files, folders, packages (default: installed packages, then the system)",
    )


def _add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading."""
    add = parser.add_argument
    add_data_dir_argument(parser)
    add(
        "--batch-size",
        type=int,
        default=16,
        metavar="N",
        help="the largest number of images in a batch; changes no text (16)",
    )
    add(
        "--engine",
        choices=(NETWORK, *FORMATS),
        help="network, or paddle, which compiles it, for a run (default: by the number of images); onnx (default if "
        "installed) or paddle for an export",
    )
    add("--threads", type=int, metavar="N", help="threads of the engines onnx and paddle")
    add("--model", metavar="NAME", help="sub-model of a distillation (default: Metric.key)")
    add_old_dictionary_argument(parser)
    add("--dict", metavar="FILE", help="dictionary of a released model that does not state it")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.io.atomic import check_writable
    from ppocr_ext.recognition.images import list_images
    from ppocr_ext.recognition.reading_files import RowForm, summary

    if Path(args.output or "").suffix == ".csv":
        raise DataError(
            f"--output {args.output}: the columns are separated by tabs. Fix: give a name that ends in .tsv.",
            code="bad_value",
        )
    for file in filter(None, (args.output, args.sheet)):
        check_writable(Path(file))
    images = list_images(args.images, args.data_dir)  # before the network is opened, which takes longer
    if args.format == "labels" and not all(isinstance(each.place, Path) for each in images.images):
        raise DataError(
            "--format labels: a label file names image files. Fix: give files, not an LMDB.", code="bad_value"
        )
    recognizer = open_recognizer(
        args.source,
        args.host,
        engine=args.engine,
        threads=args.threads,
        options=args.opt,
        model=args.model,
        old_dictionary=args.old_dict,
        dictionary=args.dict,
        trust_model=args.trust_model,
        images=len(images.images),
    )
    images = images.with_labels(recognizer.charset)
    is_json = Path(args.output or "").suffix in (".json", ".jsonl")
    form = RowForm(
        args.format or ("jsonl" if is_json else "tsv"),
        images.has_labels,
        args.characters,
        args.least,
        Path(args.output or "").parent,
    )
    began = time.perf_counter()
    results = _read(recognizer, images, form, args)
    seconds = time.perf_counter() - began
    _report_unreadable(results, images.bad_lines)
    print(summary(results, images.bad_lines, seconds, recognizer.engine), file=sys.stderr)
    good = [each for each in results if each.reading.error is None]
    if form.form == "labels":
        count = sum(map(form.serves, good))
        print(
            f"labels: {count:,} of {len(results):,}, with a confidence of {args.least} or more",
            file=sys.stderr,
        )
    if args.sheet and good:
        _draw_sheet(args, good)
    return 0 if len(good) == len(results) and not images.bad_lines else 1


def _read(
    recognizer: Recognizer, images: ImageList, form: RowForm, args: argparse.Namespace
) -> list[ReadImage]:
    """Read all images and return them; write a line for each at once, or at the end if they are sorted."""
    from tqdm import tqdm

    from ppocr_ext.io.atomic import atomic_writer
    from ppocr_ext.recognition.reading_files import ReadImage, worst_first

    results = []
    with ExitStack() as stack:
        file = stack.enter_context(atomic_writer(Path(args.output))) if args.output else None

        def write(text: str) -> None:
            if file is None:
                sys.stdout.write(text)
            else:
                file.write(text.encode("utf-8"))

        write(form.header())
        readings = recognizer.stream((image.source() for image in images.images), args.batch_size)
        hidden = True if file is None and sys.stdout.isatty() else None  # None: shown on a terminal only
        bar = tqdm(images.images, desc="read", unit="image", disable=hidden, leave=False)
        for image, reading in zip(bar, readings, strict=True):
            results.append(ReadImage(image, reading, recognizer.is_right))
            if not args.bad_cases:
                write(form.line(results[-1]))
        if args.bad_cases:
            results = worst_first(results)
            write("".join(map(form.line, results)))
    return results


def _report_unreadable(results: Sequence[ReadImage], bad_lines: Sequence[str]) -> None:
    """Name images and lines that could not be read.

    Raises:
        DataError: no image could be read.
    """
    errors = [each.reading.error for each in results if each.reading.error is not None]
    if len(errors) == len(results):
        raise DataError(
            f"no image can be read ({len(results):,} tried). The first: {errors[0]}. Fix: correct the paths; "
            f"paths in a label file start from its folder, or from --data-dir.",
            code="no_images",
        )
    for text in [*bad_lines, *errors][:_SHOWN]:
        print(for_people(f"unreadable: {text}"), file=sys.stderr)
    if len(errors) + len(bad_lines) > _SHOWN:
        print(f"unreadable: … and {len(errors) + len(bad_lines) - _SHOWN:,} more", file=sys.stderr)


def _draw_sheet(args: argparse.Namespace, good: Sequence[ReadImage]) -> None:
    """Draw the worst images, and none that is read right."""
    from ppocr_ext.io.atomic import write_bytes
    from ppocr_ext.recognition.reading_files import reading_sheet, worst_first

    good = [each for each in worst_first(good) if each.wrong or each.image.label is None]
    if not good:
        print(f"sheet: {args.sheet} is not written, since every label is read", file=sys.stderr)
        return
    shown = good[: args.sheet_images]
    content, note = reading_sheet(shown, args.fonts)
    write_bytes(Path(args.sheet), content)
    of_all = "" if len(shown) == len(good) else f" (the worst {len(shown):,} of {len(good):,} images)"
    print(f"sheet: {args.sheet}{of_all}", file=sys.stderr)
    if note:
        print(for_people(f"note: {note}"), file=sys.stderr)
