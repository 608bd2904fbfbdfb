"""Check all label files or LMDBs before training: an unusable sample is skipped, counted and named.

PaddleOCR replaces such a sample by another one without a message. Imports no Paddle.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any

from tqdm import tqdm

from ppocr_ext.charset import Charset
from ppocr_ext.data.image_check import ImageFolder, content_issue
from ppocr_ext.data.label_file import LabelLine, read_label_file, utf8_issue
from ppocr_ext.data.lmdb.reader import LmdbSet, open_sets
from ppocr_ext.data.preflight_report import FileReport, PreflightReport
from ppocr_ext.data.sample_rules import ImageCheck, SampleIssue, SampleRules
from ppocr_ext.data.visible_text import SpreadSample, visibility_issue
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_IMAGE_PIXELS

_BLOCK = 64  # images that a thread checks before it asks for more
_CHUNK = 32 * _BLOCK  # lines held in memory at a time
LineCheck = Callable[[LabelLine], SampleIssue | None]
ReadImage = Callable[[LabelLine], bytes | None]
_Source = tuple[Path, Iterable[LabelLine], LineCheck, ReadImage]


def check_label_files(
    label_files: str | Path | Sequence[str | Path],
    data_dir: str | Path,
    rules: SampleRules,
    *,
    delimiter: str = "\t",
    ds_width: bool = False,
    examples: int = 20,
    seconds: float | None = None,
) -> PreflightReport:
    """Check every line once, and return which are usable.

    Memory does not grow with the data but for one byte for each line.

    Args:
        label_files: PaddleOCR label files.
        data_dir: folder that relative image paths start from.
        rules: what makes a sample usable.
        delimiter: separates the columns.
        ds_width: lines must have the image's width and height.
        examples: unusable samples of each reason that are kept by name; all are counted.
        seconds: stop after this time, with ``stopped`` set in the report; None: check every line.

    Raises:
        DataError: a label file is missing or empty.
    """
    files = [Path(f) for f in ([label_files] if isinstance(label_files, str | Path) else label_files)]
    if not files:
        raise DataError(
            "No label file is given. Fix: name at least one in dataset.label_file_list.", code="no_label_file"
        )
    images = ImageFolder(data_dir, rules.image_check, rules.allow_outside_data_dir, rules.max_pixels)
    report = PreflightReport(Path(data_dir), rules, delimiter, ds_width, examples)
    sources: list[_Source] = [
        (
            path,
            read_label_file(path, delimiter, ds_width=ds_width),
            lambda line: images.issue(line.images),
            lambda line: Path(images.path(line.images[0])).read_bytes(),
        )
        for path in files
    ]
    # bytes, since lines are not known before they are read
    size = sum(path.stat().st_size for path in files if path.is_file())
    with tqdm(total=size, desc="label files", unit="B", unit_scale=True, **_BAR) as bar:
        _check(report, sources, seconds, bar)
    return report


def check_lmdbs(
    data_dir: str | Path, rules: SampleRules, *, examples: int = 20, seconds: float | None = None
) -> PreflightReport:
    """Check every sample of the LMDBs in and below ``data_dir`` once, and return which are usable.

    A file of the report is the folder of an LMDB, a line of it the index of a sample, from 1. Arguments
    are those of :func:`check_label_files`.

    Raises:
        DataError: there is no LMDB, or one cannot be read.
    """
    report = PreflightReport(Path(data_dir), rules, examples=examples, is_lmdb=True)
    sets = open_sets(data_dir)
    sources = [
        (
            each.path,
            lmdb_lines(each),
            lmdb_image_check(each, rules.image_check, rules.max_pixels),
            partial(_lmdb_image, each),
        )
        for each in sets
    ]
    with tqdm(total=sum(each.count for each in sets), desc="samples", **_BAR) as bar:
        _check(report, sources, seconds, bar)
    return report


_BAR: dict[str, Any] = {"leave": False, "disable": None, "delay": 1}  # shown after a second of work


def _lmdb_image(lmdb_set: LmdbSet, line: LabelLine) -> bytes | None:
    return lmdb_set.image(line.number)


def _check(report: PreflightReport, sources: Sequence[_Source], seconds: float | None, bar: tqdm) -> None:
    """Add each line of the sources to ``report``, and look at some of the images."""
    sample: SpreadSample[tuple[Path, LabelLine, ReadImage]] = SpreadSample()
    _check_lines(report, sources, seconds, bar, sample)
    if report.rules.image_check == "none":
        return
    for path, line, read in sample.items:
        with suppress(OSError):  # gone since it was checked
            content = read(line) or b""
            report.add_seen(path, line, visibility_issue(content, line.label, report.rules.max_pixels))


def _check_lines(
    report: PreflightReport,
    sources: Sequence[_Source],
    seconds: float | None,
    bar: tqdm,
    sample: SpreadSample[tuple[Path, LabelLine, ReadImage]],
) -> None:
    """Add each line to ``report``, and the usable ones to ``sample``; images are read by several threads."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    with ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 2)) as pool:
        for path, lines, image_check, read in sources:
            check, rest = partial(_issues, report.rules, image_check), iter(lines)
            report.files.append(FileReport(path))
            while chunk := list(islice(rest, _CHUNK)):
                if report.total and time.monotonic() > end:
                    report.stopped = True
                    return
                blocks = [chunk[start : start + _BLOCK] for start in range(0, len(chunk), _BLOCK)]
                for line, issue in zip(chunk, chain.from_iterable(pool.map(check, blocks)), strict=True):
                    report.add(line, issue)
                    if issue is None:
                        sample.add((path, line, read))
                bar.update(sum(len(line.content) + 1 for line in chunk))
            if not report.files[-1].total:
                between = "<tab>" if report.delimiter == "\t" else report.delimiter
                raise DataError(
                    f"{path}: the label file is empty. Fix: write a line `path{between}label` for each sample.",
                    code="empty_file",
                )


def _issues(rules: SampleRules, image_check: LineCheck, lines: list[LabelLine]) -> list[SampleIssue | None]:
    """Return the issue of each line: of its label, or else of its images."""
    return [rules.label_issue(line) or image_check(line) for line in lines]


def lmdb_lines(lmdb_set: LmdbSet) -> Iterator[LabelLine]:
    """Yield the labels of an LMDB as lines; their content is empty, so that each counts 1 in the bar."""
    for index in range(1, lmdb_set.count + 1):
        label = lmdb_set.label(index)
        try:
            if label is None:
                yield LabelLine(index, b"", issue=f"there is no label-{index:09d}")
            else:
                yield LabelLine(index, b"", (f"image-{index:09d}",), label.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield LabelLine(index, b"", issue=f"the label is {utf8_issue(label or b'', error)}")


def lmdb_image_check(lmdb_set: LmdbSet, check: ImageCheck, max_pixels: int = MAX_IMAGE_PIXELS) -> LineCheck:
    """Return the check of a line's image in the LMDB: its issue, or None."""
    one_thread = Lock()  # a transaction serves one thread at a time

    def issue(line: LabelLine) -> SampleIssue | None:
        with one_thread:
            image = lmdb_set.image(line.number)
        if image is None:
            return SampleIssue("missing_image", f"there is no {line.images[0]}")
        return content_issue(image, line.images[0], check, max_pixels)

    return issue


def check(
    label_files: str | Path | Sequence[str | Path],
    data_dir: str | Path,
    charset: Charset,
    max_text_length: int,
    **options: Any,
) -> PreflightReport:
    """Call :func:`check_label_files`; the old name, for one version."""
    return check_label_files(
        label_files, data_dir, _old_rules("check_label_files", charset, max_text_length, options), **options
    )


def check_lmdb(
    data_dir: str | Path, charset: Charset, max_text_length: int, **options: Any
) -> PreflightReport:
    """Call :func:`check_lmdbs`; the old name, for one version."""
    return check_lmdbs(data_dir, _old_rules("check_lmdbs", charset, max_text_length, options), **options)


def _old_rules(new: str, charset: Charset, max_text_length: int, options: dict[str, Any]) -> SampleRules:
    """Take the options of the rules out of ``options``."""
    warnings.warn(f"the function is {new} now, and takes SampleRules", DeprecationWarning, stacklevel=3)
    names = [field.name for field in fields(SampleRules) if field.name in options]
    return SampleRules(charset, max_text_length, **{name: options.pop(name) for name in names})
