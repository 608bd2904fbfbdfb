"""Check all label files or LMDBs before training: an unusable sample is skipped, counted and named.

PaddleOCR replaces such a sample by another one without a message. Imports no Paddle.
"""

from __future__ import annotations

import math
import os
import re
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
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext.charset import Charset
from ppocr_ext.data.image_check import ImageFolder, content_issue
from ppocr_ext.data.label_file import LabelLine, parse_line, read_raw_lines, utf8_issue
from ppocr_ext.data.lmdb.reader import LmdbSet, open_sets
from ppocr_ext.data.preflight_report import FileReport, PreflightReport
from ppocr_ext.data.sample_rules import ImageCheck, SampleIssue, SampleRules
from ppocr_ext.data.visible_text import SpreadSample, visibility_issue
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_IMAGE_PIXELS, MAX_LABEL_LINE_BYTES

_BLOCK = 64  # images that a thread checks before it asks for more
_CHUNK = 32 * _BLOCK  # lines held in memory at a time
_SLOW = 100e-6  # seconds a line from which threads are worth their cost
LineCheck = Callable[[LabelLine], SampleIssue | None]
_Outcome = str | tuple[LabelLine, SampleIssue | None]  # a plain label, whose sample is usable; or the line


class _Source(NamedTuple):
    """The samples of a label file or an LMDB: its path, the samples as they are stored, and how to read them."""

    path: Path
    items: Iterable[Any]
    plain_label: Callable[[Any], str | None]  # if the sample surely is usable
    line: Callable[[int, Any], LabelLine]
    image_issue: LineCheck
    image: Callable[[LabelLine], bytes | None]


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
    plain_line = None if ds_width or rules.image_check != "header" else rules.plain_line(delimiter)
    sources = [
        _Source(
            path,
            read_raw_lines(path),
            partial(_plain_label, images, plain_line),
            partial(parse_line, delimiter=delimiter, ds_width=ds_width),
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
        _Source(
            each.path,
            lmdb_lines(each),
            lambda line: None,
            lambda number, line: line,
            lmdb_image_check(each, rules.image_check, rules.max_pixels),
            partial(_lmdb_image, each),
        )
        for each in sets
    ]
    with tqdm(total=sum(each.count for each in sets), desc="samples", **_BAR) as bar:
        _check(report, sources, seconds, bar)
    return report


_BAR: dict[str, Any] = {"leave": False, "disable": None, "delay": 1}  # shown after a second of work


def _plain_label(
    images: ImageFolder, plain_line: Callable[[str], re.Match[str] | None] | None, raw: bytes
) -> str | None:
    """Return the label of a line that surely is usable, by one regular expression and a look at its image."""
    if plain_line is None or len(raw) > MAX_LABEL_LINE_BYTES:
        return None
    try:
        found = plain_line(raw.decode())
    except UnicodeDecodeError:
        return None
    return found[2] if found is not None and images.is_whole(found[1]) else None


def _lmdb_image(lmdb_set: LmdbSet, line: LabelLine) -> bytes | None:
    return lmdb_set.image(line.number)


def _check(report: PreflightReport, sources: Sequence[_Source], seconds: float | None, bar: tqdm) -> None:
    """Add each line of the sources to ``report``, and look at some of the images."""
    sample: SpreadSample[tuple[_Source, int, Any]] = SpreadSample()
    _check_lines(report, sources, seconds, bar, sample)
    if report.rules.image_check == "none":
        return
    for source, number, item in sample.items:
        with suppress(OSError):  # gone since it was checked
            line = source.line(number, item)
            issue = visibility_issue(source.image(line) or b"", line.label, report.rules.max_pixels)
            report.add_seen(source.path, line, issue)


def _check_lines(
    report: PreflightReport,
    sources: Sequence[_Source],
    seconds: float | None,
    bar: tqdm,
    sample: SpreadSample[tuple[_Source, int, Any]],
) -> None:
    """Add each line to ``report``, and the usable ones to ``sample``."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    with ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 2)) as pool:
        for source in sources:
            items, number = iter(source.items), 0
            report.files.append(FileReport(source.path))
            while chunk := list(islice(items, _CHUNK)):
                if report.total and time.monotonic() > end:
                    report.stopped = True
                    return
                outcomes = _outcomes(pool, partial(_check_block, report.rules, source), number + 1, chunk)
                for item, outcome in zip(chunk, outcomes, strict=True):
                    number += 1
                    if isinstance(outcome, str):
                        report.add_plain(outcome)
                    else:
                        report.add(*outcome)
                    if isinstance(outcome, str) or outcome[1] is None:
                        sample.add((source, number, item))
                bar.update(len(chunk) if report.is_lmdb else sum(map(len, chunk)))
            if not number:
                between = "<tab>" if report.delimiter == "\t" else report.delimiter
                raise DataError(
                    f"{source.path}: the label file is empty. Fix: write a line `path{between}label` for each sample.",
                    code="empty_file",
                )


def _outcomes(
    pool: ThreadPoolExecutor,
    check: Callable[[tuple[int, list[Any]]], list[_Outcome]],
    first: int,
    chunk: list[Any],
) -> Iterator[_Outcome]:
    """Yield what ``check`` finds for each item; after a slow block, several threads check the others.

    Threads help where images are decoded, or come from a slow disk. Elsewhere they only wait for each other.
    """
    blocks = ((first + at, chunk[at : at + _BLOCK]) for at in range(0, len(chunk), _BLOCK))
    for block in blocks:
        began = time.perf_counter()
        found = check(block)
        is_slow = time.perf_counter() - began > _SLOW * len(found)
        yield from found
        if is_slow:
            yield from chain.from_iterable(pool.map(check, blocks))


def _check_block(rules: SampleRules, source: _Source, block: tuple[int, list[Any]]) -> list[_Outcome]:
    """Check items with consecutive numbers, of which the first is given."""
    found: list[_Outcome] = []
    for number, item in enumerate(block[1], start=block[0]):
        label = source.plain_label(item)
        if label is None:
            line = source.line(number, item)
            found.append((line, rules.label_issue(line) or source.image_issue(line)))
        else:
            found.append(label)
    return found


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
