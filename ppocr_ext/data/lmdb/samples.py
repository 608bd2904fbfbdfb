"""Lines of label files with the bytes of their images, from any place on; imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from posixpath import abspath, join  # on strings, as in preflight
from typing import Any, Literal, NamedTuple

from ppocr_ext.charset import Charset
from ppocr_ext.data.image_check import content_fault, missing_image
from ppocr_ext.data.label_file import LabelLine, parse_line, refuse_utf16
from ppocr_ext.data.sample_rules import LabelRules
from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content

ContentCheck = Literal["header", "decode", "none"]
_CHUNK = 64  # lines whose images are in memory at a time
_NO_LIMIT = 1 << 30  # characters of a label
Fault = tuple[str, str]  # reason, detail


@dataclass(frozen=True)
class LmdbInput:
    """What goes into an LMDB.

    Args:
        label_files: PaddleOCR label files, in the order of the samples.
        data_dir: folder that relative image paths start from.
        delimiter: what separates the columns; what follows the label is not used.
        check: how closely to look at an image: as :func:`ppocr_ext.data.image_check.image_fault`, or only
            whether the file is there and not empty.
        charset: labels with other characters are unusable; None: any character will do.
        max_text_length: longer labels are unusable; None: any length will do.
        allow_outside_data_dir: False makes an image outside ``data_dir`` unusable.
    """

    label_files: tuple[Path, ...]
    data_dir: Path
    delimiter: str = "\t"
    check: ContentCheck = "header"
    charset: Charset | None = field(default=None, repr=False)
    max_text_length: int | None = None
    allow_outside_data_dir: bool = False

    def to_json(self) -> dict[str, Any]:
        """What determines the samples, as plain values; label files by name and content.

        Raises:
            DataError: a label file cannot be read.
        """
        return {
            "label_files": [_named(path) for path in self.label_files],
            "data_dir": abspath(str(self.data_dir)),
            "delimiter": self.delimiter,
            "check": self.check,
            "dictionary": self.charset.digest if self.charset else None,
            "max_text_length": self.max_text_length,
            "allow_outside_data_dir": self.allow_outside_data_dir,
        }


class Position(NamedTuple):
    """A place between two lines: number of the label file from 0, byte, and lines of that file before it."""

    file: int = 0
    offset: int = 0
    line: int = 0


class Entry(NamedTuple):
    """A line and what comes of it.

    Attributes:
        after: the place behind it.
        file: its label file.
        line: its number in the file, from 1.
        label: the text.
        images: encoded images, each of which is a sample with this label; none where there is a fault.
        fault: reason and detail, or None.
    """

    after: Position
    file: Path
    line: int
    label: str
    images: Sequence[bytes]
    fault: Fault | None


def entries(wanted: LmdbInput, start: Position) -> Iterator[list[Entry]]:
    """All lines from ``start`` on, in their order, some at a time; images are read by several threads.

    Raises:
        DataError: a label file cannot be read, or is shorter than ``start`` says.
    """
    reader = _Reader(wanted)
    with ThreadPoolExecutor(4) as pool:
        for number in range(start.file, len(wanted.label_files)):
            begin = start if number == start.file else Position(number)
            lines = _lines(wanted.label_files[number], wanted.delimiter, begin)
            while chunk := list(islice(lines, _CHUNK)):
                yield list(pool.map(reader.entry, chunk))


class _Reader:
    """Judges lines and reads their images."""

    def __init__(self, wanted: LmdbInput) -> None:
        self._wanted = wanted
        self._rules = (
            LabelRules(wanted.charset, wanted.max_text_length or _NO_LIMIT) if wanted.charset else None
        )
        self._data_dir = str(wanted.data_dir)
        self._root = None if wanted.allow_outside_data_dir else join(abspath(self._data_dir), "")

    def entry(self, placed: tuple[Path, Position, LabelLine]) -> Entry:
        """The line with its images."""
        file, after, line = placed
        fault = self._label_fault(line)
        images: list[bytes] = []
        for name in line.images if fault is None else ():
            content, fault = self._image(name)
            if fault is not None:
                images = []
                break
            images.append(content)
        return Entry(after, file, line.number, line.label, images, fault)

    def _label_fault(self, line: LabelLine) -> Fault | None:
        if self._rules is not None:
            return self._rules.fault(line)
        if line.fault is not None:
            return "bad_format", line.fault
        if not line.label:
            return "empty_label", f"{line.images[0]} has no text"
        most = self._wanted.max_text_length
        if most is not None and len(line.label) > most:
            return "too_long", f"{len(line.label)} characters, max_text_length is {most}"
        return None

    def _image(self, name: str) -> tuple[bytes, Fault | None]:
        path = join(self._data_dir, name)
        if self._root is not None and not abspath(path).startswith(self._root):
            return b"", ("outside_data_dir", f"{path} is outside data_dir {self._data_dir}")
        try:
            content = Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return b"", missing_image(self._data_dir, name)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            return b"", (
                "broken_image",
                f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}",
            )
        if self._wanted.check == "none":
            return content, None if content else ("broken_image", f"{path} is empty")
        return content, content_fault(content, path, self._wanted.check)


def _lines(path: Path, delimiter: str, start: Position) -> Iterator[tuple[Path, Position, LabelLine]]:
    try:
        with path.open("rb") as stream:
            stream.seek(start.offset)
            offset = start.offset
            for number, raw in enumerate(stream, start=start.line + 1):
                offset += len(raw)
                if number == 1:
                    refuse_utf16(path, raw)
                yield path, Position(start.file, offset, number), parse_line(number, raw, delimiter)
    except OSError as error:
        raise DataError(f"{path}: the label file cannot be read: {error.strerror or error}.") from error


def _named(path: Path) -> str:
    try:
        return named_by_content(path)
    except OSError as error:
        raise DataError(
            f"{path}: the label file cannot be read: {error.strerror or error}. Its path is relative to the "
            "current folder, not to --data-dir."
        ) from error
