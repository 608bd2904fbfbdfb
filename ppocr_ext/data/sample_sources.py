"""Where the label check finds samples: label files and LMDBs, read in blocks; imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ppocr_ext.data.image_check import ImageFolder, content_issue
from ppocr_ext.data.label_file import LabelLine, parse_line, read_raw_lines, utf8_issue
from ppocr_ext.data.lmdb_sets import LmdbSet, open_sets
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules
from ppocr_ext.limits import MAX_LABEL_LINE_BYTES

_BETWEEN = "\0"  # number and label of a sample of an LMDB, in the text of a block


class Block(NamedTuple):
    """Consecutive samples as they are stored, and the number of the first."""

    first: int
    items: Sequence[Any]


class LabelFile:
    """A label file.

    Args:
        path: of the file.
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

    def items(self) -> Iterator[bytes]:
        """Yield the lines as they are."""
        return read_raw_lines(self.path)

    def plain_labels(self, block: Block) -> list[str | None]:
        """Decide most lines by one regular expression over the block, and a look at each image."""
        lines = block.items
        if self._plain_lines is None:
            return [None] * len(lines)
        if max(map(len, lines)) > MAX_LABEL_LINE_BYTES:
            lines = [line if len(line) <= MAX_LABEL_LINE_BYTES else b"\n" for line in lines]
        found = self._plain_lines(b"".join(lines).decode(errors="surrogateescape"))
        is_whole = self._images.is_whole
        return [label if label and is_whole(path) else None for path, label in found]

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
    """An LMDB; its samples are labels as they are stored, or None for one that is missing.

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

    def items(self) -> Iterator[bytes | None]:
        """Yield the labels as they are."""
        return (self._set.label(index) for index in range(1, self._set.count + 1))

    def plain_labels(self, block: Block) -> list[str | None]:
        """Decide most labels by one regular expression over the block, and a look at each image."""
        between = _BETWEEN.encode()
        labels = block.items
        if self._plain_lines is None:
            return [None] * len(labels)
        text = b"".join(b"0%b%b\n" % (between, label or b"") for label in labels).decode(
            errors="surrogateescape"
        )
        # a label may have such characters
        if text.count(_BETWEEN) + text.count("\n") > 2 * len(labels):
            return [None] * len(labels)
        found = self._plain_lines(text)
        return [
            label if label and self.image_issue(LabelLine(number, b"")) is None else None
            for number, (_, label) in enumerate(found, block.first)
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
