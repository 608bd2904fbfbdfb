"""Check all label files or LMDBs before training: an unusable sample is skipped, counted and named.

PaddleOCR replaces such a sample by another one without a message. Images in which nothing can be read are usable for
PaddleOCR, and teach a network to answer nothing: they are looked for in a sample of the data. Imports no Paddle.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count, groupby, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext.charset import PLAIN
from ppocr_ext.data.label_file import LabelLine
from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.data.preflight_report import FileReport, PreflightReport
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules
from ppocr_ext.data.sample_sources import Block, LmdbSamples, SampleSource, open_sources
from ppocr_ext.errors import DataError
from ppocr_ext.io.image_pixels import decode_image
from ppocr_ext.limits import MAX_IMAGE_PIXELS

_BLOCK = 64  # images that a thread checks before it asks for more
_CHUNK = 32 * _BLOCK  # lines held in memory at a time
_SLOW = 100e-6  # seconds a line from which threads are worth their cost
_Seen = tuple[SampleSource, int, Any]  # source, number and item of a sample

LOOKED_AT = 200  # images of a section, at most
_LEAST_SIDE = 5  # pixels; no character can be read in fewer
_LEAST_CONTRAST = 12  # of 255 between the darkest and the lightest pixel
_TALL = (
    1.5  # height to width; PaddleOCR turns such images before it reads them, but not before it trains on them
)

UNSEEN_FIXES: dict[str, str] = {  # reason -> what to do about it
    "flat_image": "Look at these images: convert them to 8 bits, with the text on a background of another brightness.",
    "tiny_image": "Remove them, or cut the text lines out again.",
    "tall_image": "Turn vertical text by 90° before the training, or remove it.",
}


class _Found(NamedTuple):
    """The samples of a block.

    Attributes:
        labels: of the plain ones, which are usable; None for each other.
        others: the others, in their order.
    """

    labels: Sequence[str | None]
    others: list[tuple[LabelLine, SampleIssue | None]]


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
    report = PreflightReport(Path(data_dir), rules, delimiter, ds_width, examples)
    sources = open_sources(report, files)
    # bytes, since lines are not known before they are read
    size = sum(path.stat().st_size for path in files if path.is_file())
    with tqdm(total=size, desc="label files", unit="B", unit_scale=True, **BAR) as bar:
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
    sources = [LmdbSamples(each, rules) for each in sets]
    with tqdm(total=sum(each.count for each in sets), desc="samples", **BAR) as bar:
        _check(report, sources, seconds, bar)
    return report


BAR: dict[str, Any] = {"leave": False, "disable": None, "delay": 1}  # shown after a second of work


def _check(
    report: PreflightReport, sources: Sequence[SampleSource], seconds: float | None, bar: tqdm
) -> None:
    """Add each line of the sources to ``report``, and look at some of the images."""
    sample: SpreadSample = SpreadSample()
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
    sources: Sequence[SampleSource],
    seconds: float | None,
    bar: tqdm,
    sample: SpreadSample,
) -> None:
    """Add each line to ``report``, and the usable ones to ``sample``."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    with ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 2)) as pool:
        for source in sources:
            items: Iterator[Any] = source.items()
            number = 1
            report.files.append(FileReport(source.path))
            while chunk := list(islice(items, _CHUNK)):
                if report.total and time.monotonic() > end:
                    report.stopped = True
                    return
                blocks = [Block(number + at, chunk[at : at + _BLOCK]) for at in range(0, len(chunk), _BLOCK)]
                for block, found in zip(
                    blocks, _check_blocks(pool, source, report.rules, blocks), strict=True
                ):
                    _add_block(report, source, block, found, sample)
                number += len(chunk)
                bar.update(len(chunk) if report.is_lmdb else sum(map(len, chunk)))
            if number == 1:
                between = "<tab>" if report.delimiter == "\t" else report.delimiter
                raise DataError(
                    f"{source.path}: the label file is empty. Fix: write a line `path{between}label` for each sample.",
                    code="empty_file",
                )


def _add_block(
    report: PreflightReport, source: SampleSource, block: Block, found: _Found, sample: SpreadSample
) -> None:
    """Add what was found for a block to ``report``, and its usable samples to ``sample``."""
    seen: list[_Seen] = list(zip(repeat(source), count(block.first), block.items))  # noqa: B905
    others = iter(found.others)
    at = 0
    file = report.files[-1]
    lines = [file.digest.encode(), *(item or b"" for item in block.items)]
    file.digest = hashlib.blake2b(b"\n".join(lines), digest_size=8).hexdigest()
    for _, group in groupby(found.labels, bool):
        labels = list(group)
        run = seen[at : at + len(labels)]
        at += len(labels)
        if plain := list(filter(None, labels)):  # all of them, or none
            report.add_plain(plain)
            report.plain += sum(map(bool, map(PLAIN.search, plain)))
            sample.add(run)
            continue
        for each, (line, issue) in zip(run, others):  # noqa: B905
            report.add(line, issue)
            if issue is None:
                report.plain += PLAIN.search(line.label) is not None
                sample.add([each])
    if not report.is_lmdb:
        file.further.add(block.first, block.items, file.lines[-len(seen) :], report.delimiter.encode())


def _check_blocks(
    pool: ThreadPoolExecutor, source: SampleSource, rules: SampleRules, blocks: Sequence[Block]
) -> Iterator[_Found]:
    """Yield what is found for each block; after a slow one, several threads check the others.

    Threads help where images are decoded, or come from a slow disk. Elsewhere they only wait for each other.
    """
    check = partial(_check_block, rules, source)
    for done, block in enumerate(blocks, start=1):
        began = time.perf_counter()
        found = check(block)
        is_slow = time.perf_counter() - began > _SLOW * len(block.items)
        yield found
        if is_slow:
            yield from pool.map(check, blocks[done:])
            return


def _check_block(rules: SampleRules, source: SampleSource, block: Block) -> _Found:
    labels = source.plain_labels(block)
    others = []
    for at, label in enumerate(labels):
        if label is None:
            line = source.line(block.first + at, block.items[at])
            others.append((line, rules.label_issue(line) or source.image_issue(line)))
    return _Found(labels, others)


class SpreadSample:
    """Keep at most ``most`` items of a sequence of unknown length, evenly spread over it.

    Args:
        most: an even number of items.
    """

    def __init__(self, most: int = LOOKED_AT) -> None:
        self.items: list[Any] = []
        self._most = most
        self._every = 1
        self._seen = 0

    def add(self, items: Sequence[Any]) -> None:
        """Take the next items of the sequence."""
        at = -self._seen % self._every
        while at < len(items):
            self.items.append(items[at])
            if len(self.items) > self._most:  # an odd number, so that the last one stays
                self.items = self.items[::2]
                self._every *= 2
            at += self._every
        self._seen += len(items)


def visibility_issue(content: bytes, label: str, max_pixels: int = MAX_IMAGE_PIXELS) -> SampleIssue | None:
    """Return why nothing can be read in an encoded image (a key of ``UNSEEN_FIXES``), or None.

    An image that cannot be decoded gives None: preflight names it if it is looked at there.
    """
    try:
        pixels = decode_image(content, max_pixels)
    except ValueError:
        return None
    height, width = pixels.shape[:2]
    size = f"{width}×{height} pixels"
    if min(height, width) < _LEAST_SIDE:
        return SampleIssue("tiny_image", size)
    if len(label) > 2 and height >= _TALL * width:
        return SampleIssue("tall_image", f"{size} for {len(label)} characters")
    contrast = int(pixels.max()) - int(pixels.min())
    if contrast < _LEAST_CONTRAST:
        return SampleIssue("flat_image", f"{_why_flat(content)}, a contrast of {contrast} of 255")
    return None


def _why_flat(content: bytes) -> str:
    """Say where the text may be, which PaddleOCR does not see: it reads 8 bits of three channels."""
    import cv2
    import numpy as np

    stored: Any = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    if stored is None or stored.max() == stored.min():
        return "one colour"
    if stored.ndim == 3 and stored.shape[2] == 4 and stored[..., 3].max() != stored[..., 3].min():
        return "drawn only in its transparency"
    if stored.dtype == np.uint16:
        return f"16 bits of which {int(stored.max()):,} of 65,535 are used"
    return "nearly one colour"
