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
from functools import partial
from itertools import compress, groupby, islice
from pathlib import Path
from posixpath import join
from threading import Lock
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext.data.image_check import ImageFolder, content_issue, image_pixels, unseen_issue
from ppocr_ext.data.label_file import LabelLine, parse_line, read_raw_lines, utf8_issue
from ppocr_ext.data.lmdb_sets import LmdbSet, open_sets
from ppocr_ext.data.preflight_report import FileReport, PreflightReport, UnusableSample
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_LABEL_LINE_BYTES

_BLOCK = 64  # images that a thread checks before it asks for more
_BLOCKS = 32  # blocks held in memory at a time
_SLOW = 100e-6  # seconds per line; above it, several threads are faster
_NAME = "image-%09d"
_BETWEEN = "\0"  # stands between number and label of an LMDB's sample in the text of a block


class Block(NamedTuple):
    """Consecutive samples as they are stored, and the number of the first."""

    first: int
    items: Sequence[Any]


class Judged(NamedTuple):
    """A sample with its issue, None if it is usable; and the content of its images, if it is wanted."""

    line: LabelLine
    issue: SampleIssue | None
    images: list[bytes]


class LabelFile:
    """A label file.

    Args:
        path: the path of the file.
        images: its images.
        rules: what makes a sample usable.
        delimiter: separates the columns.
        ds_width: lines must have the image's width and height.

    Attributes:
        size: the bytes of the file; 0 if there is none.
    """

    def __init__(
        self, path: Path, images: ImageFolder, rules: SampleRules, delimiter: str, ds_width: bool
    ) -> None:
        self.path = path
        self.size = path.stat().st_size if path.is_file() else 0
        self.rules = rules
        self.folder = images.path("")
        self._images = images
        self._delimiter = delimiter
        self._ds_width = ds_width
        # No line is plain with ds_width, since its width and height must be read.
        self._plain_lines = rules.plain_lines("" if ds_width else delimiter)

    def items(self) -> Iterator[Any]:
        """Yield the lines as they are."""
        return read_raw_lines(self.path)

    def plain_labels(self, block: Block) -> list[str | None]:
        """Return the label of each line that is surely usable, None for the other lines.

        One regular expression over the block finds these lines, and each of their images is checked.
        """
        lines = block.items
        if max(map(len, lines)) > MAX_LABEL_LINE_BYTES:
            lines = [line if len(line) <= MAX_LABEL_LINE_BYTES else b"\n" for line in lines]
        is_whole = self._images.is_whole
        text = b"".join(lines).decode(errors="surrogateescape")
        return [label if label and is_whole(path) else None for path, label in self._plain_lines(text)]

    def is_whole(self, name: str) -> bool:
        """Return True if the ends of an image show that it is usable; only with ds_width, else plain labels did it."""
        return self._ds_width and self.rules.image_check == "header" and self._images.is_whole(name)

    def line(self, number: int, item: bytes) -> LabelLine:
        """Read a line."""
        return parse_line(number, item, self._delimiter, self._ds_width)

    def read(self, line: LabelLine, name: str) -> bytes | SampleIssue:
        """Return the content of an image file, or why it cannot be read."""
        content = self._images.read(name)
        if isinstance(content, SampleIssue) and line.number == 1 and "." not in name:
            return content._replace(detail=f"{content.detail}; if this line is a header, remove it")
        return content


class LmdbSamples:
    """An LMDB, whose samples are the labels as they are stored, or None for a missing label.

    Args:
        lmdb_set: the LMDB.
        rules: what makes a sample usable.

    Attributes:
        size: how many samples it has.
    """

    def __init__(self, lmdb_set: LmdbSet, rules: SampleRules) -> None:
        self.path = lmdb_set.path
        self.size = lmdb_set.count
        self.rules = rules
        self.folder = ""
        self._set = lmdb_set
        self._one_thread = Lock()  # a transaction serves one thread at a time
        self._plain_lines = rules.plain_lines(_BETWEEN)

    def items(self) -> Iterator[Any]:
        """Yield the labels as they are."""
        return map(self._set.label, range(1, self.size + 1))

    def plain_labels(self, block: Block) -> list[str | None]:
        """Return each label that is surely usable, None for the others; see :meth:`LabelFile.plain_labels`."""
        labels = block.items
        lines = (b"0%b%b\n" % (_BETWEEN.encode(), label or b"") for label in labels)
        text = b"".join(lines).decode(errors="surrogateescape")
        # A label with one of these characters would be taken for two.
        if text.count(_BETWEEN) + text.count("\n") > 2 * len(labels):
            return [None] * len(labels)
        return [
            label
            if label and isinstance(usable_image(self, LabelLine(number, b""), _NAME % number), bytes)
            else None
            for number, (_, label) in enumerate(self._plain_lines(text), block.first)
        ]

    def is_whole(self, name: str) -> bool:
        """Return False: the whole image must be read."""
        return False

    def line(self, number: int, item: bytes | None) -> LabelLine:
        """Return a label as a line; its content is empty."""
        if item is None:
            return LabelLine(number, b"", issue=f"there is no label-{number:09d}")
        try:
            return LabelLine(number, b"", (_NAME % number,), item.decode("utf-8"))
        except UnicodeDecodeError as error:
            return LabelLine(number, b"", issue=f"the label is {utf8_issue(item, error)}")

    def read(self, line: LabelLine, name: str) -> bytes | SampleIssue:
        """Return the image of a sample, or that it is missing."""
        with self._one_thread:
            content = self._set.image(line.number)
        return SampleIssue("missing_image", f"there is no {name}") if content is None else content


SampleSource = LabelFile | LmdbSamples


def usable_image(source: SampleSource, line: LabelLine, name: str) -> bytes | SampleIssue:
    """Return the content of an image of ``line``, or why it is not usable."""
    content = source.read(line, name)
    if isinstance(content, SampleIssue):
        return content
    rules = source.rules
    return content_issue(content, join(source.folder, name), rules.image_check, rules.max_pixels) or content


def judge(source: SampleSource, number: int, item: Any, keeps_images: bool = False) -> Judged:
    """Read a sample and its images, all of which must be usable, since any of them may be drawn."""
    line = source.line(number, item)
    issue = source.rules.label_issue(line)
    images = []
    for name in () if issue else line.images:
        if not keeps_images and source.is_whole(name):
            continue
        content = usable_image(source, line, name)
        if isinstance(content, SampleIssue):
            return Judged(line, content, [])
        images.append(content)
    return Judged(line, issue, images if keeps_images else [])


# The label of a plain sample, which is usable; other samples with their issues.
_Result = str | Judged


def open_sources(report: PreflightReport, files: Sequence[Path]) -> Sequence[SampleSource]:
    """Open the LMDBs that ``report`` is about, or these label ``files``.

    Raises:
        DataError: an LMDB cannot be read.
    """
    rules = report.rules
    if report.is_lmdb:
        return [LmdbSamples(each, rules) for each in open_sets(report.data_dir)]
    images = ImageFolder(report.data_dir, rules.allow_outside_data_dir, rules.max_pixels)
    return [LabelFile(path, images, rules, report.delimiter, report.ds_width) for path in files]


LOOKED_AT = 200  # images of a section, at most


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
    return _check(report, open_sources(report, files), seconds)


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
    return _check(report, open_sources(report, ()), seconds)


BAR: dict[str, Any] = {"leave": False, "disable": None, "delay": 1}  # shown after a second of work


def _check(
    report: PreflightReport, sources: Sequence[SampleSource], seconds: float | None
) -> PreflightReport:
    """Add each sample of the sources to ``report``, which is returned, and look at some of the images."""
    spread = SpreadSample()
    for source, block, results in judge_blocks(report, sources, seconds):
        samples = [(source, number, item) for number, item in enumerate(block.items, block.first)]
        spread.add([*compress(samples, report.files[-1].lines[-len(results) :])])
    for source, number, item in spread.items if report.rules.image_check != "none" else ():
        line = source.line(number, item)
        content = source.read(line, line.images[0])
        if isinstance(content, SampleIssue):
            continue  # the image was removed after the check
        report.looked_at += 1
        pixels = image_pixels(content, "", report.rules.max_pixels)
        if isinstance(pixels, SampleIssue):
            continue  # only its ends are those of an image
        issue = unseen_issue(pixels, content, line.label, line.extra if report.ds_width else ())
        if issue is not None:
            report.unseen.append(UnusableSample(source.path, number, *issue))
    return report


def judge_blocks(
    report: PreflightReport,
    sources: Sequence[SampleSource],
    seconds: float | None = None,
    size: int = _BLOCK,
    keeps_images: bool = False,
) -> Iterator[tuple[SampleSource, Block, list[_Result]]]:
    """Judge all samples of the sources block by block, add each block to ``report``, and yield it.

    Args:
        report: gets a report on each file.
        sources: what :func:`open_sources` returns for it.
        seconds: stop after this time, with ``stopped`` set in the report; None to judge every sample.
        size: samples of a block; 32 blocks are in memory at a time.
        keeps_images: the results have the images, and none is a plain label.

    Raises:
        DataError: a source cannot be read, or is an empty label file.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    unit = {"unit": "it"} if report.is_lmdb else {"unit": "B", "unit_scale": True}
    total = sum(
        source.size for source in sources
    )  # bytes of label files, since their lines are not counted yet
    pool = ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 2))
    with tqdm(desc="samples", total=total, **unit, **BAR) as bar, pool:
        for source in sources:
            items = source.items()
            number = 1
            report.files.append(FileReport(source.path))
            while chunk := list(islice(items, _BLOCKS * size)):
                if report.total and time.monotonic() > end:
                    report.stopped = True
                    return
                blocks = [Block(number + at, chunk[at : at + size]) for at in range(0, len(chunk), size)]
                for block, results in zip(
                    blocks, _judge_all(pool, source, blocks, keeps_images), strict=True
                ):
                    _add_block(report, block, results)
                    yield source, block, results
                number += len(chunk)
                bar.update(len(chunk) if report.is_lmdb else sum(map(len, chunk)))
            if number == 1:
                between = "<tab>" if report.delimiter == "\t" else report.delimiter
                raise DataError(
                    f"{source.path}: the label file is empty. Fix: write a line `path{between}label` for each sample.",
                    code="empty_file",
                )


def _add_block(report: PreflightReport, block: Block, results: Sequence[_Result]) -> None:
    """Add the results of a block to ``report``."""
    file = report.files[-1]
    lines = [file.digest.encode(), *(item or b"" for item in block.items)]
    file.digest = hashlib.blake2b(b"\n".join(lines), digest_size=8).hexdigest()
    for kind, group in groupby(results, type):
        same: list[Any] = list(group)
        if kind is str:  # a group of plain labels is added at once, which is faster
            report.add_plain(same)
        else:
            for line, issue, _ in same:
                report.add(line, issue)
    if not report.is_lmdb:
        usable = file.lines[-len(results) :]
        file.further.add(block.first, block.items, usable, report.delimiter.encode())


def _judge_all(
    pool: ThreadPoolExecutor, source: SampleSource, blocks: Sequence[Block], keeps_images: bool
) -> Iterator[list[_Result]]:
    """Yield the results of each block. After a slow block, several threads judge the others.

    Threads help where images are decoded, or come from a slow disk. Elsewhere they only wait for each other.
    """
    check = partial(_judge_block, source, keeps_images)
    for done, block in enumerate(blocks, start=1):
        began = time.perf_counter()
        results = check(block)
        is_slow = time.perf_counter() - began > _SLOW * len(block.items)
        yield results
        if is_slow:
            yield from pool.map(check, blocks[done:])
            return


def _judge_block(source: SampleSource, keeps_images: bool, block: Block) -> list[_Result]:
    labels = [None] * len(block.items) if keeps_images else source.plain_labels(block)
    return [
        judge(source, number, item, keeps_images) if label is None else label
        for number, (label, item) in enumerate(zip(labels, block.items, strict=True), block.first)
    ]


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
