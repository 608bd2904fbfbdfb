"""The samples of a user's folder: an image, its text, and the place that says so; no Paddle."""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

Corner = tuple[float, float]  # x, y in pixels of the page
Box = tuple[Corner, Corner, Corner, Corner]
SPLITS = ("train", "val", "test")

Fields = dict[str, Any]  # an object of JSON, or a row of a table by its columns


class Row(NamedTuple):
    """What a label file says about one text, before its image is looked for.

    Attributes:
        image: the path as it stands in the file; of an image in an LMDB its final name.
        text: the text as the file has it, without the line end.
        place: where the text stands; see :class:`Sample`.
        split: the split that a column of the file names; empty if there is none.
        box: where the text is on a page, as ``page_formats.corners`` takes it; None if it is the whole image.
    """

    image: str
    text: str
    place: str
    split: str = ""
    box: Fields | None = None


class Sample(NamedTuple):
    """One image of a text line with its text.

    Attributes:
        image: the path relative to the data folder, with ``/``; in an LMDB ``FOLDER#12``, numbered from 1.
        text: the text as the file has it, without the line end.
        place: where the text stands, for messages: ``labels.csv:12``, ``labels.json#12`` for the 12th of a JSON file.
        split: ``"train"``, ``"val"`` or ``"test"``, if the data say so; else empty.
        group: what the image was cut from, such as a page; empty if unknown. Samples of a group stay in one split.
        box: the four corners of the text on a page, clockwise from its top left one; None if it is the whole image.
    """

    image: str
    text: str
    place: str
    split: str = ""
    group: str = ""
    box: Box | None = None


class Skipped(NamedTuple):
    """A text or an image that gives no sample.

    Attributes:
        reason: a key of :data:`ppocr_ext.data.issue_rules.RULES`.
        place: the file and line where it stands.
        detail: what is wrong there.
        image: the path of its image relative to the data folder; empty if there is none.
    """

    reason: str
    place: str
    detail: str
    image: str = ""


Rows = Iterator[Row | Skipped]
Entries = Iterator[Sample | Skipped]
BLOCK = 300  # entries that are read at a time


class Records:
    """The entries of label files. They are read once, and kept compressed for all who iterate over them again.

    Args:
        entries: yields the entries. They are taken only when they are asked for, in blocks of ``BLOCK``.
    """

    def __init__(self, entries: Iterable[Sample | Skipped]) -> None:
        self._entries = iter(entries)
        self._blocks: list[bytes] = []

    def __iter__(self) -> Entries:
        for number in count():
            if number == len(self._blocks):
                block = [tuple(entry) for entry in islice(self._entries, BLOCK)]
                if not block:
                    return
                self._blocks.append(zlib.compress(marshal.dumps(block), 1))
            for values in marshal.loads(zlib.decompress(self._blocks[number])):
                yield Sample._make(values) if len(values) == len(Sample._fields) else Skipped._make(values)


@dataclass(frozen=True)
class Source:
    """The label files of a folder in one format.

    Attributes:
        format: the name of the format, a key of ``FORMATS``; ``"file_names"`` if the texts come from the names of
            the images.
        root: the data folder.
        files: the label files, relative to ``root``.
        images: all images below ``root``, with a text or without.
        notes: sentences that a user should read, such as that an encoding is not UTF-8.
        read: a function that yields all entries from the beginning, each time that it is called. The files are
            read at the first time alone; after that, an entry takes 10 to 40 bytes of memory.
        moved: the first samples whose polygon begins elsewhere than at the top left of the text.
    """

    format: str
    root: Path
    files: tuple[str, ...]
    images: tuple[str, ...]
    notes: tuple[str, ...]
    read: Callable[[], Entries]
    moved: tuple[Sample, ...] = ()

    def samples(self) -> Iterator[Sample]:
        """Yield the entries that are samples, in their order."""
        return (entry for entry in self.read() if isinstance(entry, Sample))

    def without(self, reason: str, is_bad: Callable[[Sample], bool]) -> Source:
        """Return the source that skips some samples for a reason, a key of ``RULES``."""

        def read() -> Entries:
            for entry in self.read():
                if isinstance(entry, Sample) and is_bad(entry):
                    yield Skipped(reason, entry.place, repr(entry.text[:60]), entry.image)
                else:
                    yield entry

        return replace(self, read=read)
