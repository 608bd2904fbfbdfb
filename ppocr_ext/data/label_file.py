"""Read and write PaddleOCR's recognition label files, one line at a time; imports no Paddle.

A line is ``path<delimiter>label``. ``path`` may be a JSON list of paths (``["a.jpg", "b.jpg"]``); one of them is drawn
each time. Further columns are ignored, except with ``ds_width``: then a line must be ``path, label, width, height``.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.limits import MAX_LABEL_LINE_BYTES, MAX_TEXT_BYTES, open_regular

# a path, what separates it from its label, and another character; some write the letters \t for a tab
_OTHER = re.compile(r".{0,300}?\.(?i:bmp|gif|jp2|jpe?g?|p[bgnp][gm]|tiff?|webp)(\t|\\t|/t| +|[,;|])\S")
BOXES = r'\[\{[^}\n]*"transcription"'  # a regular expression: how a label for text detection begins
_BOXES_FIX = (
    "boxes of a whole image (Label.txt of PPOCRLabel); train on rec_gt.txt and crop_img/, which its menu File > Export "
    "Recognition Result writes"
)


class LabelLine(NamedTuple):
    """One line of a label file, or the label of one sample of an LMDB.

    Attributes:
        number: line number in the file, or number of the sample, from 1.
        content: the line without its end, as it is written to a filtered copy.
        images: the paths as they stand in the file. Only the list form has more than one.
        label: the text.
        extra: the columns after the label.
        issue: why the line cannot be read; the other fields are then empty. None if it can be read.
        altered: True if a byte order mark or a carriage return was removed. PaddleOCR's reader leaves both in the path
            or the label.
    """

    number: int
    content: bytes
    images: tuple[str, ...] = ()
    label: str = ""
    extra: tuple[str, ...] = ()
    issue: str | None = None
    altered: bool = False


def read_label_file(
    path: str | Path, delimiter: str = "\t", *, ds_width: bool = False
) -> Iterator[LabelLine]:
    """Yield the lines of a label file in their order. A line that cannot be read has an ``issue``.

    Args:
        path: the label file, UTF-8.
        delimiter: separates the columns (``dataset.delimiter``).
        ds_width: each line must have its image's width and height (``dataset.ds_width``).

    Raises:
        DataError: the file is missing, cannot be opened, is UTF-16, or has a line that is far too long to skip.
    """
    for number, raw in enumerate(read_raw_lines(path), start=1):
        yield parse_line(number, raw, delimiter, ds_width)


def read_raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a label file as they are, each with its end. Of a line that is too long, yield only the start.

    Raises:
        DataError: as :func:`read_label_file`.
    """
    try:
        # Not inside `with`: errors of the caller's block would be caught here.
        stream = open_regular(path)
    except OSError as error:
        raise DataError(
            f"{path}: the label file cannot be read: {error.strerror or error}. Fix: correct the path; it is relative "
            "to the current folder, not to data_dir.",
            code="missing_file" if isinstance(error, FileNotFoundError) else "unreadable_file",
        ) from error
    with stream:
        if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise DataError(f"{path}: the label file is UTF-16. Fix: save it as UTF-8.", code="bad_encoding")
        stream.seek(0)
        while line := stream.readline(MAX_LABEL_LINE_BYTES + 1):
            rest = line
            begin = stream.tell()
            while len(rest) > MAX_LABEL_LINE_BYTES and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_LABEL_LINE_BYTES + 1)
                if stream.tell() - begin > MAX_TEXT_BYTES:
                    raise DataError(
                        f"{path}: a line has no end within {MAX_TEXT_BYTES:,} bytes. Fix: give a label file.",
                        code="bad_content",
                    )
            yield line


def parse_line(number: int, raw: bytes, delimiter: str = "\t", ds_width: bool = False) -> LabelLine:
    """Read one line of a label file, with or without its end."""
    if len(raw) > MAX_LABEL_LINE_BYTES:
        return LabelLine(number, raw[:80], issue=f"longer than the limit of {MAX_LABEL_LINE_BYTES:,} bytes")
    ended = raw.removesuffix(b"\n")
    content = ended.removesuffix(b"\r")
    if number == 1:
        content = content.removeprefix(codecs.BOM_UTF8)
    altered = len(content) != len(ended)
    columns = _columns(content, delimiter, ds_width)
    if isinstance(columns, str):
        return LabelLine(number, content, issue=columns, altered=altered)
    return LabelLine(number, content, *columns, altered=altered)


def _columns(
    content: bytes, delimiter: str, ds_width: bool
) -> str | tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return images, label and further columns of a line, or why it cannot be read."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return utf8_issue(content, error)
    if not text.strip():
        return "blank line"
    if "\r" in text:  # the line end of old Macs: the whole file would be one line
        return "a carriage return inside the line; end each line with a line feed"
    name, *rest = text.split(delimiter)
    if not rest:
        found = _OTHER.match(text)
        instead = f" (`delimiter: {json.dumps(found[1])}` would fit)" if found else ""
        return f"no delimiter {delimiter!r} in {_short(text)}{instead}"
    if (images := _image_names(name)) is None:
        return f"no image path in {_short(text)}"
    if re.match(BOXES, rest[0]):
        return _BOXES_FIX
    if ds_width and not _is_size(rest[1:]):
        return f"ds_width needs `path, label, width, height`, found {_short(text)}"
    return images, rest[0], tuple(rest[1:])


def utf8_issue(content: bytes, error: UnicodeDecodeError) -> str:
    """Return which byte of ``content`` is not UTF-8, for a message."""
    return f"not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}"


def _image_names(name: str) -> tuple[str, ...] | None:
    """Return the paths in the first column, or None. A column that is not a JSON list is a path, as in PaddleOCR."""
    if name.startswith("["):
        with suppress(ValueError, RecursionError):  # RecursionError: too many brackets
            listed = json.loads(name)
            if isinstance(listed, list) and listed:
                return tuple(listed) if all(isinstance(entry, str) and entry for entry in listed) else None
    return (name,) if name else None


def _is_size(columns: list[str]) -> bool:
    try:
        return len(columns) == 2 and all(0 < float(column) < math.inf for column in columns)
    except ValueError:
        return False


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[:limit]}…")


def write_label_file(path: str | Path, rows: Iterable[tuple[str, str]]) -> int:
    """Write ``(image path, label)`` rows atomically, and return how many there were.

    Raises:
        DataError: a path or a label is empty, or contains a tab or a line end, and could not be read again.
    """
    count = 0
    with atomic_writer(Path(path)) as stream:
        for count, columns in enumerate(rows, start=1):
            for column in columns:
                if not column or "\t" in column or "\n" in column or "\r" in column:
                    raise DataError(
                        f"{path}: row {count}: {column!r} cannot stand in a label file: it is empty, or contains "
                        "a tab or a line end.",
                        code="bad_value",
                    )
            stream.write(("\t".join(columns) + "\n").encode())
    return count
