"""Check all label files or LMDBs before training, and skip, count and name the unusable samples.

PaddleOCR replaces such a sample by another one without a message. PaddleOCR accepts images in which nothing can be
read, and these teach a network to answer nothing: preflight looks for them in a part of the data. Imports no Paddle.
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
from itertools import groupby, islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext.data.image_check import ImageFolder, content_issue
from ppocr_ext.data.label_file import LabelLine, parse_line, read_raw_lines, utf8_issue
from ppocr_ext.data.lmdb_sets import LmdbSet, open_sets
from ppocr_ext.data.preflight_report import FileReport, PreflightReport, UnusableSample
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules
from ppocr_ext.errors import DataError
from ppocr_ext.io.image_pixels import TALL, decode_image
from ppocr_ext.limits import MAX_IMAGE_PIXELS, MAX_LABEL_LINE_BYTES

_BLOCK = 64  # images that a thread checks before it asks for more
_CHUNK = 32 * _BLOCK  # lines held in memory at a time
_SLOW = 100e-6  # seconds per line; above it, several threads are faster
_BETWEEN = "\0"  # stands between number and label of an LMDB's sample in the text of a block


class Block(NamedTuple):
    """Consecutive samples as they are stored, and the number of the first."""

    first: int
    items: Sequence[Any]


class LabelFile:
    """A label file.

    Args:
        path: the path of the file.
        images: its images.
        rules: what makes a sample usable.
        delimiter: separates the columns.
        ds_width: lines must have the image's width and height.
    """

    def __init__(
        self, path: Path, images: ImageFolder, rules: SampleRules, delimiter: str, ds_width: bool
    ) -> None:
        self.path = path
        self._images = images
        self._delimiter = delimiter
        self._ds_width = ds_width
        has_plain = rules.image_check == "header" and not ds_width
        self._plain_lines = rules.plain_lines(delimiter) if has_plain else None

    def items(self) -> Iterator[Any]:
        """Yield the lines as they are."""
        return read_raw_lines(self.path)

    def plain_labels(self, block: Block) -> list[str | None]:
        """Return the label of each line that is surely usable, None for the other lines.

        One regular expression over the block finds these lines, and each of their images is checked.
        """
        lines = block.items
        if self._plain_lines is None:
            return [None] * len(lines)
        if max(map(len, lines)) > MAX_LABEL_LINE_BYTES:
            lines = [line if len(line) <= MAX_LABEL_LINE_BYTES else b"\n" for line in lines]
        is_whole = self._images.is_whole
        text = b"".join(lines).decode(errors="surrogateescape")
        return [label if label and is_whole(path) else None for path, label in self._plain_lines(text)]

    def line(self, number: int, item: bytes) -> LabelLine:
        """Read a line."""
        return parse_line(number, item, self._delimiter, self._ds_width)

    def image_issue(self, line: LabelLine) -> SampleIssue | None:
        """Return the first issue of the images of a line."""
        issue = self._images.issue(line.images)
        if line.number == 1 and issue is not None and "." not in line.images[0]:
            return issue._replace(detail=f"{issue.detail}; if this line is a header, remove it")
        return issue

    def image(self, line: LabelLine) -> bytes | None:
        """Read the first image of a line."""
        return self._images.read(line.images[0])


class LmdbSamples:
    """An LMDB, whose samples are the labels as they are stored, or None for a missing label.

    Args:
        lmdb_set: the LMDB.
        rules: what makes a sample usable.
    """

    def __init__(self, lmdb_set: LmdbSet, rules: SampleRules) -> None:
        self.path = lmdb_set.path
        self._set = lmdb_set
        self._rules = rules
        self._one_thread = Lock()  # a transaction serves one thread at a time
        self._plain_lines = rules.plain_lines(_BETWEEN) if rules.image_check == "header" else None

    def items(self) -> Iterator[Any]:
        """Yield the labels as they are."""
        return (self._set.label(index) for index in range(1, self._set.count + 1))

    def plain_labels(self, block: Block) -> list[str | None]:
        """Return each label that is surely usable, None for the others; see :meth:`LabelFile.plain_labels`."""
        labels = block.items
        if self._plain_lines is None:
            return [None] * len(labels)
        lines = (b"0%b%b\n" % (_BETWEEN.encode(), label or b"") for label in labels)
        text = b"".join(lines).decode(errors="surrogateescape")
        # A label with one of these characters would be taken for two.
        if text.count(_BETWEEN) + text.count("\n") > 2 * len(labels):
            return [None] * len(labels)
        return [
            label if label and self.image_issue(LabelLine(number, b"")) is None else None
            for number, (_, label) in enumerate(self._plain_lines(text), block.first)
        ]

    def line(self, number: int, item: bytes | None) -> LabelLine:
        """Return a label as a line; its content is empty."""
        if item is None:
            return LabelLine(number, b"", issue=f"there is no label-{number:09d}")
        try:
            return LabelLine(number, b"", (f"image-{number:09d}",), item.decode("utf-8"))
        except UnicodeDecodeError as error:
            return LabelLine(number, b"", issue=f"the label is {utf8_issue(item, error)}")

    def image_issue(self, line: LabelLine) -> SampleIssue | None:
        """Return the issue of the image of a sample."""
        name = f"image-{line.number:09d}"
        with self._one_thread:
            image = self._set.image(line.number)
        if image is None:
            return SampleIssue("missing_image", f"there is no {name}")
        return content_issue(image, name, self._rules.image_check, self._rules.max_pixels)

    def image(self, line: LabelLine) -> bytes | None:
        """Return the image of a sample."""
        return self._set.image(line.number)


SampleSource = LabelFile | LmdbSamples
# The label of a plain sample, which is usable. For other samples, the line, and why it is unusable or None.
_Result = str | tuple[LabelLine, SampleIssue | None]


def open_sources(report: PreflightReport, files: Sequence[Path]) -> Sequence[SampleSource]:
    """Open the LMDBs that ``report`` is about, or these label ``files``.

    Raises:
        DataError: an LMDB cannot be read.
    """
    rules = report.rules
    if report.is_lmdb:
        return [LmdbSamples(each, rules) for each in open_sets(report.data_dir)]
    images = ImageFolder(report.data_dir, rules.image_check, rules.allow_outside_data_dir, rules.max_pixels)
    return [LabelFile(path, images, rules, report.delimiter, report.ds_width) for path in files]


LOOKED_AT = 200  # images of a section, at most
_LEAST_SIDE = 5  # pixels; no character can be read in fewer
_LEAST_CONTRAST = 12  # levels (of 255) between the darkest and the lightest pixel
_TURNED = 0.3  # height to width of vertical text, at least, for each character: squeezed words are less high

_SAME_SHAPE = 1.25  # ratio of two ratios of width to height, since sizes may have been rounded or scaled
OTHER_SIZE = "other_size"


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

    Memory grows by one byte for each line, whatever the lines and images hold.

    Args:
        label_files: PaddleOCR label files.
        data_dir: folder that relative image paths start from.
        rules: what makes a sample usable.
        delimiter: separates the columns.
        ds_width: lines must have the image's width and height.
        examples: how many unusable samples of each reason are kept by name. All are counted.
        seconds: stop after this time, with ``stopped`` set in the report; None to check every line.

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
    # The bar counts bytes, since the number of lines is not known before they are read.
    size = sum(path.stat().st_size for path in files if path.is_file())
    with tqdm(total=size, desc="label files", unit="B", unit_scale=True, **BAR) as bar:
        _check(report, sources, seconds, bar)
    return report


def check_lmdbs(
    data_dir: str | Path, rules: SampleRules, *, examples: int = 20, seconds: float | None = None
) -> PreflightReport:
    """Check every sample of the LMDBs in and below ``data_dir`` once, and return which are usable.

    A file of the report is the folder of an LMDB, and a line the index of a sample, from 1. Arguments are
    those of :func:`check_label_files`.

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
    sample = SpreadSample()
    _check_lines(report, sources, seconds, bar, sample)
    if report.rules.image_check == "none":
        return
    for source, number, item in sample.items:
        with suppress(OSError):  # the image was removed after the check
            line = source.line(number, item)
            stated = line.extra if report.ds_width else ()
            issue = visibility_issue(source.image(line) or b"", line.label, report.rules.max_pixels, stated)
            report.looked_at += 1
            if issue is not None:
                report.unseen.append(UnusableSample(source.path, number, *issue))


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
            items = source.items()
            number = 1
            report.files.append(FileReport(source.path))
            while chunk := list(islice(items, _CHUNK)):
                if report.total and time.monotonic() > end:
                    report.stopped = True
                    return
                blocks = [Block(number + at, chunk[at : at + _BLOCK]) for at in range(0, len(chunk), _BLOCK)]
                checked = _check_blocks(pool, source, report.rules, blocks)
                for block, results in zip(blocks, checked, strict=True):
                    _add_block(report, source, block, results, sample)
                number += len(chunk)
                bar.update(len(chunk) if report.is_lmdb else sum(map(len, chunk)))
            if number == 1:
                between = "<tab>" if report.delimiter == "\t" else report.delimiter
                raise DataError(
                    f"{source.path}: the label file is empty. Fix: write a line `path{between}label` for each sample.",
                    code="empty_file",
                )


def _add_block(
    report: PreflightReport,
    source: SampleSource,
    block: Block,
    results: Sequence[_Result],
    sample: SpreadSample,
) -> None:
    """Add the results of a block to ``report``, and its usable samples to ``sample``."""
    samples = [(source, number, item) for number, item in enumerate(block.items, block.first)]
    at = 0
    file = report.files[-1]
    lines = [file.digest.encode(), *(item or b"" for item in block.items)]
    file.digest = hashlib.blake2b(b"\n".join(lines), digest_size=8).hexdigest()
    for kind, group in groupby(results, type):
        same: list[Any] = list(group)
        if kind is str:  # a group of plain labels is added at once, which is faster
            report.add_plain(same)
            sample.add(samples[at : at + len(same)])
        else:
            for number, (line, issue) in enumerate(same, at):
                report.add(line, issue)
                if issue is None:
                    sample.add([samples[number]])
        at += len(same)
    if not report.is_lmdb:
        file.further.add(block.first, block.items, file.lines[-at:], report.delimiter.encode())


def _check_blocks(
    pool: ThreadPoolExecutor, source: SampleSource, rules: SampleRules, blocks: Sequence[Block]
) -> Iterator[list[_Result]]:
    """Yield the results of each block. After a slow block, several threads check the others.

    Threads help where images are decoded, or come from a slow disk. Elsewhere they only wait for each other.
    """
    check = partial(_check_block, rules, source)
    for done, block in enumerate(blocks, start=1):
        began = time.perf_counter()
        results = check(block)
        is_slow = time.perf_counter() - began > _SLOW * len(block.items)
        yield results
        if is_slow:
            yield from pool.map(check, blocks[done:])
            return


def _check_block(rules: SampleRules, source: SampleSource, block: Block) -> list[_Result]:
    results: list[_Result] = []
    for number, (label, item) in enumerate(
        zip(source.plain_labels(block), block.items, strict=True), block.first
    ):
        if label is not None:
            results.append(label)
        else:
            line = source.line(number, item)
            results.append((line, rules.label_issue(line) or source.image_issue(line)))
    return results


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
            if len(self.items) > self._most:  # the number is odd here, so the last item stays
                self.items = self.items[::2]
                self._every *= 2
            at += self._every
        self._seen += len(items)


def visibility_issue(
    content: bytes, label: str, max_pixels: int = MAX_IMAGE_PIXELS, stated: Sequence[str] = ()
) -> SampleIssue | None:
    """Return why nothing can be read in an encoded image (a key of ``RULES`` of issue_rules.py), or None.

    An image that cannot be decoded gives None, since the check of images reports it.

    Args:
        content: the encoded image.
        label: its text.
        max_pixels: the limit of pixels of an image.
        stated: width and height in its line, if it has them; another shape is an issue too.
    """
    try:
        pixels = decode_image(content, max_pixels)
    except ValueError:
        return None
    issue = unseen_issue(pixels, content, label)
    if issue or not stated:
        return issue
    height, width = pixels.shape[:2]
    if 1 / _SAME_SHAPE < float(stated[0]) / float(stated[1]) * height / width < _SAME_SHAPE:
        return None
    line = f"{stated[0]}×{stated[1]} pixels in the line"
    return SampleIssue(OTHER_SIZE, f"{line}, {width}×{height} in the image; the label is {label!r}")


def unseen_issue(pixels: Any, content: bytes, label: str) -> SampleIssue | None:
    """Return :func:`visibility_issue` of an image that is decoded already.

    Args:
        pixels: uint8 [H, W, 3].
        content: the encoded image.
        label: its text.
    """
    height, width = pixels.shape[:2]
    size = f"{width}×{height} pixels"
    if min(height, width) < _LEAST_SIDE:
        return SampleIssue("tiny_image", size)
    if len(label) > 2 and height >= max(TALL, _TURNED * len(label)) * width:
        return SampleIssue("tall_image", f"{size} for {len(label)} characters")
    contrast = int(pixels.max()) - int(pixels.min())
    if contrast < _LEAST_CONTRAST:
        return SampleIssue("flat_image", f"{_why_flat(content)}, a contrast of {contrast} of 255")
    return None


def _why_flat(content: bytes) -> str:
    """Return why an image looks flat to PaddleOCR, which reads 8 bits of three channels."""
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
