"""``ppocr-ext make-lmdb``: write label files and their images into one LMDB, for PaddleOCR's ``LMDBDataSet``.

The key ``num-samples`` is written last. An LMDB without it is not read, so nobody reads one whose writer was killed.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.charset import Charset
from ppocr_ext.cli.options import add_count, add_number
from ppocr_ext.config.global_keys import GLOBAL_KEYS, ValueRule
from ppocr_ext.data.image_check import ImageFolder
from ppocr_ext.data.issue_rules import RULES
from ppocr_ext.data.label_file import LabelLine, read_label_file, read_raw_lines
from ppocr_ext.data.lmdb_sets import COUNT_KEY, DATA_FILE, import_lmdb
from ppocr_ext.data.preflight_report import by_reason
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules
from ppocr_ext.data.unusable_limit import MAX_UNUSABLE, UnusableLimit, share_above
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
_CHUNK = 64  # lines whose images are in memory at a time
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


@dataclass(frozen=True)
class LmdbInput:
    """What goes into an LMDB.

    Args:
        label_files: PaddleOCR label files, in the order of the samples.
        data_dir: folder that relative image paths start from.
        rules: what makes a line usable.
        delimiter: separates the columns; columns after the label are not used.
    """

    label_files: tuple[Path, ...]
    data_dir: Path
    rules: SampleRules = field(repr=False)
    delimiter: str = "\t"


@dataclass
class LmdbCounts:
    """How many lines were read, written and skipped.

    Attributes:
        samples: images in the LMDB.
        lines: lines that were read.
        unusable: lines that were skipped, by reason; all are counted.
        examples: the first lines that were skipped: file, line, reason, detail.
    """

    samples: int = 0
    lines: int = 0
    unusable: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, int, str, str]] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        """Return how many lines were skipped because they are unusable."""
        return self.unusable.total()

    def skip(self, file: Path, number: int, issue: SampleIssue) -> None:
        """Count an unusable line, and keep it as an example if it is one of the first with its reason."""
        self.unusable[issue.reason] += 1
        if self.unusable[issue.reason] <= _EXAMPLES:
            self.examples.append((str(file), number, *issue))

    def example_lines(self) -> str:
        """Return the examples, a line each."""
        return "\n".join("  {}:{}: {}: {}".format(*example) for example in self.examples)


def make_lmdb(
    out: str | Path, source: LmdbInput, max_unusable: float = MAX_UNUSABLE, map_size: int = _GB
) -> LmdbCounts:
    """Write the images of label files, as they are, with their labels.

    Args:
        out: folder of the LMDB, new or empty. It is empty again if this raises an exception.
        source: what goes into it. Each image of a line becomes a sample with the line's label.
        max_unusable: the LMDB is not made if more than this share of the lines is unusable.
        map_size: bytes that the LMDB may take at first; it grows as needed.

    Raises:
        DataError: ``out`` holds something, too many lines are unusable, or it cannot be written.
        MissingPackageError: the package ``lmdb`` is not installed.
    """
    if not source.data_dir.is_dir():
        raise DataError(f"--data-dir: there is no folder {source.data_dir}.", code="missing_folder")
    for path in source.label_files:
        next(read_raw_lines(path), None)  # raises an error if it cannot be read
    counts = LmdbCounts()
    with _new_environment(Path(out), map_size) as environment:
        _write(environment, counts, source)
        _check_limit(counts, source, UnusableLimit(max_unusable))
        _commit(environment, [(COUNT_KEY.encode(), str(counts.samples).encode())])
    return counts


def _write(environment: Any, counts: LmdbCounts, source: LmdbInput) -> None:
    """Write the samples of all lines, and count them."""
    rules = source.rules
    folder = ImageFolder(source.data_dir, rules.image_check, rules.allow_outside_data_dir, rules.max_pixels)

    def read(item: tuple[Path, LabelLine]) -> tuple[SampleIssue | None, list[bytes]]:
        line = item[1]
        issue = rules.label_issue(line) or folder.issue(line.images)
        return issue, [] if issue else [folder.read(name) for name in line.images]

    lines = ((file, line) for file in source.label_files for line in read_label_file(file, source.delimiter))
    size = sum(path.stat().st_size for path in source.label_files)
    pending: list[tuple[bytes, bytes]] = []
    bar = tqdm(total=size, desc="label files", unit="B", unit_scale=True, disable=None)
    with bar, ThreadPoolExecutor(4) as pool:
        while chunk := list(islice(lines, _CHUNK)):
            for (file, line), (issue, images) in zip(chunk, pool.map(read, chunk), strict=True):
                for image in images:
                    counts.samples += 1
                    pending.append((b"image-%09d" % counts.samples, image))
                    pending.append((b"label-%09d" % counts.samples, line.label.encode()))
                if issue is not None:
                    counts.skip(file, line.number, issue)
                bar.update(len(line.content) + 1)
            counts.lines += len(chunk)
            if sum(len(value) for _, value in pending) >= _BATCH:
                _commit(environment, pending)
                pending = []
            if counts.lines >= _NONE_USABLE and not counts.samples:
                break
    _commit(environment, pending)


def _check_limit(counts: LmdbCounts, source: LmdbInput, limit: UnusableLimit) -> None:
    """Refuse label files with too many unusable lines.

    Raises:
        DataError: there are too many; the message has the counts by reason, examples and the fix.
    """
    if counts.lines == 0:
        raise DataError(
            f"{', '.join(map(str, source.label_files))}: no line. Fix: write a line `path<tab>label` for each sample.",
            code="empty_file",
        )
    if counts.samples and limit.allows(counts.skipped, counts.lines):
        return
    if counts.samples:
        share = share_above(counts.skipped / counts.lines)
        fix = f"Fix them, or make it without them: --max-unusable {share:g}."
    else:
        [(reason, _)] = counts.unusable.most_common(1)
        fix = RULES[reason].fix_in("make_lmdb", "run")
    of_outside = RULES["outside_data_dir"].fix_in("make_lmdb")
    outside = f" {of_outside}" if "outside_data_dir" in counts.unusable and fix != of_outside else ""
    raise DataError(
        f"{counts.skipped:,} of {counts.lines:,} lines are unusable ({by_reason(counts.unusable)}). {fix}".rstrip()
        + f"{outside}\n{counts.example_lines()}",
        code="too_many_unusable",
    )


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
