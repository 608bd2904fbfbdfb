"""``ppocr-ext make-lmdb``: write label files and their images into one LMDB, for PaddleOCR's ``LMDBDataSet``.

The key ``num-samples`` is written last. An LMDB without it is not read, so nobody reads one whose writer was killed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.cli.options import add_count, add_number
from ppocr_ext.config.global_keys import GLOBAL_KEYS, ValueRule
from ppocr_ext.data.label_file import read_raw_lines
from ppocr_ext.data.lmdb_sets import COUNT_KEY, DATA_FILE, import_lmdb
from ppocr_ext.data.preflight import Judged, SampleSource, judge_blocks, open_sources
from ppocr_ext.data.preflight_report import PreflightReport, by_reason
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.data.unusable_limit import MAX_UNUSABLE, UnusableLimit, limit_errors
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_IMAGE_PIXELS
from ppocr_ext.messages import for_people, shortened

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
_BLOCK = 4  # lines of a thread; the images of 32 times as many are in memory
_BATCH = 32 << 20  # bytes of a transaction
_EXAMPLES = 5  # unusable lines of each reason that are kept by name
_NONE_USABLE = 1000  # lines; if none of so many is usable, the rest is not read
_LOCK_FILE = "lock.mdb"
_FIX_OUT = "Fix: give another --out, or delete that folder first."
_SNIPPET = """\
  Train:
    dataset:
      name: LMDBDataSet
      data_dir: {out}
"""
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
    charset = Charset.from_file(args.dict, args.use_space_char, lenient=True) if args.dict else None
    rules = SampleRules(
        charset,
        args.max_text_length,
        image_check=args.check,
        allow_outside_data_dir=args.allow_outside_data_dir,
        max_pixels=args.max_image_pixels,
    )
    started = time.perf_counter()
    report = PreflightReport(args.data_dir, rules, args.delimiter, examples=_EXAMPLES)
    map_size = max(1 << 20, int(args.map_size * _GB))
    samples = make_lmdb(args.out, args.label_files, report, args.max_unusable, map_size)
    seconds = time.perf_counter() - started
    print(f"{samples:,} images in {seconds:.1f} s ({samples / seconds:,.0f} images/s)")
    size = (args.out / DATA_FILE).stat().st_size
    print(f"{args.out}: {samples:,} samples, {size / 1e6:,.1f} MB")
    if report.unusable_count:
        print(f"skipped {report.unusable_count:,} of {report.total:,} lines: {by_reason(report.counts)}")
        print(for_people("\n".join(f"  {report.text(sample)}" for sample in report.unusable_samples)))
    print(f"To train from it (transforms as for label files):\n{_SNIPPET.format(out=args.out)}", end="")
    return 0


def make_lmdb(
    out: str | Path,
    label_files: Sequence[Path],
    report: PreflightReport,
    max_unusable: float = MAX_UNUSABLE,
    map_size: int = _GB,
) -> int:
    """Write the images of label files, as they are, with their labels; return how many there are.

    Args:
        out: folder of the LMDB, new or empty. It is empty again if this raises an exception.
        label_files: PaddleOCR label files, in the order of the samples. Each image of a line becomes a sample with the
            line's label; further columns are not used.
        report: an empty report with what makes a line usable; all lines are added to it.
        max_unusable: the LMDB is not made if more than this share of the lines is unusable.
        map_size: bytes that the LMDB may take at first; it grows as needed.

    Raises:
        DataError: ``out`` holds something, too many lines are unusable, or it cannot be written.
        MissingPackageError: the package ``lmdb`` is not installed.
    """
    if not report.data_dir.is_dir():
        raise DataError(f"--data-dir: there is no folder {report.data_dir}.", code="missing_folder")
    for path in label_files:
        next(read_raw_lines(path), None)  # raises an error if it cannot be read
    filled = [path for path in label_files if path.stat().st_size] or label_files
    with _new_environment(Path(out), map_size) as environment:
        samples = _write(environment, report, open_sources(report, filled))
        _check_limit(report, UnusableLimit(max_unusable, who="make_lmdb"))
        _commit(environment, [(COUNT_KEY.encode(), str(samples).encode())])
    return samples


def _write(environment: Any, report: PreflightReport, sources: Sequence[SampleSource]) -> int:
    """Write the samples of all usable lines; return how many there are."""
    samples = 0
    pending: list[tuple[bytes, bytes]] = []
    for _, _, results in judge_blocks(report, sources, size=_BLOCK, keeps_images=True):
        for judged in (each for each in results if isinstance(each, Judged)):
            for image in judged.images:
                samples += 1
                pending.append((b"image-%09d" % samples, image))
                pending.append((b"label-%09d" % samples, judged.line.label.encode()))
        if sum(len(value) for _, value in pending) >= _BATCH:
            _commit(environment, pending)
            pending = []
        if report.total >= _NONE_USABLE and not samples:
            break
    _commit(environment, pending)
    return samples


def _check_limit(report: PreflightReport, limit: UnusableLimit) -> None:
    """Refuse label files with too many unusable lines.

    Raises:
        DataError: there are too many; the message has the counts by reason, and the first line of each with its fix.
    """
    if errors := limit_errors({"--label-files": report}, limit):
        raise DataError("\n".join(errors), code="too_many_unusable")


@contextmanager
def _new_environment(out: Path, map_size: int) -> Iterator[Any]:
    """Open a new LMDB in ``out``, and remove it if the block raises an exception.

    Raises:
        DataError: ``out`` is a file, holds something, or cannot be written.
    """
    lmdb = import_lmdb()
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file. {_FIX_OUT}", code="not_an_lmdb")
    out.mkdir(parents=True, exist_ok=True)
    if names := sorted(file.name for file in out.iterdir()):
        raise DataError(
            f"{out} is not empty (found {shortened(names, 3)}), and a build that was stopped is not continued. "
            f"{_FIX_OUT}",
            code="folder_not_empty",
        )
    (out / DATA_FILE).touch(exist_ok=False)  # so that another process cannot begin in this folder
    try:
        with lmdb.open(str(out), map_size=map_size) as environment:
            yield environment
    except BaseException as error:
        for name in (DATA_FILE, _LOCK_FILE):
            with suppress(OSError):
                (out / name).unlink()
        if not isinstance(error, lmdb.Error):
            raise
        raise DataError(
            f"{out} cannot be written: {str(error).removeprefix(f'{out}: ')}. Fix: free space or remove the cause.",
            code="unwritable_file",
        ) from error


def _commit(environment: Any, pairs: list[tuple[bytes, bytes]]) -> None:
    """Write keys and values, all or nothing; the map grows as needed."""
    while True:
        try:
            with environment.begin(write=True) as transaction:
                for key, value in pairs:
                    transaction.put(key, value)
        except import_lmdb().MapFullError:
            environment.set_mapsize(2 * environment.info()["map_size"])
        else:
            return
