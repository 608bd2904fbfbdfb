"""PaddleOCR's recognition label files, line by line; imports no Paddle.

A line is ``path<delimiter>label``. ``path`` may be a JSON list of paths of which one is drawn each
time (``["a.jpg", "b.jpg"]``). Further columns are ignored, except with ``ds_width``, where the line is
``path, label, width, height`` exactly.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer

_SPACED = re.compile(r"\S*\.\w+ +\S")  # a file name, a space, and something more


class LabelLine(NamedTuple):
    """One line of a label file.

    Attributes:
        number: line number in the file, from 1.
        content: the line without its end, as it would be written to a filtered copy.
        images: the paths as they stand in the file; one, unless it is the list form.
        label: the text.
        extra: the columns after the label.
        fault: why the line cannot be read (the other fields are then empty), else None.
        altered: a byte order mark or a carriage return was taken off, which PaddleOCR's reader would
            have left in the path or the label.
    """

    number: int
    content: bytes
    images: tuple[str, ...] = ()
    label: str = ""
    extra: tuple[str, ...] = ()
    fault: str | None = None
    altered: bool = False


def read_label_file(
    path: str | Path, delimiter: str = "\t", *, ds_width: bool = False
) -> Iterator[LabelLine]:
    """Lines of a label file in their order; a line that cannot be read says so in ``fault``.

    Args:
        path: the label file, UTF-8.
        delimiter: what separates the columns (``dataset.delimiter``).
        ds_width: each line must have its image's width and height (``dataset.ds_width``).

    Raises:
        DataError: the file is missing, cannot be opened, or is UTF-16.
    """
    path = Path(path)
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DataError(
            f"{path}: the label file cannot be read: {error.strerror or error}. Check label_file_list; its "
            "paths are relative to the current folder, not to data_dir."
        ) from error
    with stream:
        for number, raw in enumerate(stream, start=1):
            if number == 1:
                refuse_utf16(path, raw)
            yield parse_line(number, raw, delimiter, ds_width)


def refuse_utf16(path: Path, first: bytes) -> None:
    """Say so where the first line of a label file starts with a byte order mark of UTF-16.

    Raises:
        DataError: it does.
    """
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path}: the label file is UTF-16; save it as UTF-8.")


def parse_line(number: int, raw: bytes, delimiter: str = "\t", ds_width: bool = False) -> LabelLine:
    """Read one line of a label file, with or without its end."""
    ended = raw.removesuffix(b"\n")
    content = ended.removesuffix(b"\r")
    if number == 1:
        content = content.removeprefix(codecs.BOM_UTF8)
    altered = len(content) != len(ended)
    fault, images, label, extra = _columns(content, delimiter, ds_width)
    return LabelLine(number, content, images, label, extra, fault, altered)


_Columns = tuple[str | None, tuple[str, ...], str, tuple[str, ...]]


def _columns(content: bytes, delimiter: str, ds_width: bool) -> _Columns:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}", (), "", ()
    if not text.strip():
        return "blank line", (), "", ()
    name, *rest = text.split(delimiter)
    if not rest:
        spaced = " (a space where the delimiter should be)" if _SPACED.match(text) else ""
        return f"no delimiter {delimiter!r} in {_short(text)}{spaced}", (), "", ()
    images = _image_names(name)
    if images is None:
        return f"no image path in {_short(text)}", (), "", ()
    if ds_width and not _has_size(rest[1:]):
        return f"ds_width needs `path, label, width, height`, found {_short(text)}", (), "", ()
    return None, images, rest[0], tuple(rest[1:])


def _image_names(name: str) -> tuple[str, ...] | None:
    """Paths of the first column; None where it has none. What is no JSON list is a path, as in PaddleOCR."""
    if name.startswith("["):
        try:
            listed = json.loads(name)
        except json.JSONDecodeError:
            return (name,)
        if not isinstance(listed, list) or not listed:
            return (name,)
        return tuple(listed) if all(isinstance(entry, str) and entry for entry in listed) else None
    return (name,) if name else None


def _has_size(columns: list[str]) -> bool:
    if len(columns) != 2:
        return False
    try:
        width, height = (float(column) for column in columns)
    except ValueError:
        return False
    return math.isfinite(width) and math.isfinite(height) and width > 0 and height > 0


def quotes_hint(column: str) -> str:
    """Return what to do about a column in quotes, as programs write CSV; empty if it has none."""
    quoted = len(column) > 1 and column[0] == column[-1] == '"'
    return "; the columns are in quotes, as in CSV: write them without" if quoted else ""


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[:limit]}…")


def write_label_file(path: str | Path, rows: Iterable[tuple[str, str]], delimiter: str = "\t") -> int:
    """Write ``(image path, label)`` rows, atomically; how many there were.

    Raises:
        DataError: a path or a label contains the delimiter or a line end, so that it could not be read
            back, or is empty.
    """
    count = 0
    with atomic_writer(Path(path)) as stream:
        for image, label in rows:
            for column in (image, label):
                if not column or delimiter in column or "\n" in column or "\r" in column:
                    raise DataError(
                        f"{path}: row {count + 1}: {column!r} cannot stand in a label file: it is empty, or "
                        f"contains the delimiter {delimiter!r} or a line end."
                    )
            stream.write(f"{image}{delimiter}{label}\n".encode())
            count += 1
    return count
