"""Shards: the files of a teacher cache, each written as a whole and read through a memory map.

A shard begins with a header; then come its table, one row for each entry, and the bytes of the entries. An entry has
the outputs of one sample, branch after branch: normalisers, rests, values, classes (:class:`TopClasses`). Header and
table have a checksum that is compared when the shard is opened; an entry has one that is compared when it is read.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.limits import open_regular
from ppocr_ext.teacher_cache.top_classes import TopClasses

_MAGIC = b"ppxtc001"
# magic; entries and bytes of the data; mass dropped and rows of each branch; checksum of all before the data
_HEADER = struct.Struct("<8sQQ4dI")
BRANCHES = ("ctc", "gtc")  # the order in an entry
TABLE = np.dtype(
    [("key", "<u8", (2,)), ("offset", "<u8"), ("rows", "<u2", (2,)), ("sum", "<u4")], align=False
)


@dataclass(frozen=True)
class BranchForm:
    """How the rows of a branch are kept.

    Attributes:
        classes: of the branch.
        kept: of them in each row.
    """

    classes: int
    kept: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return 6 + self.kept * (2 if self.kept >= self.classes else 4)


Entry = Mapping[str, TopClasses]


def input_key(image: np.ndarray, labels: Sequence[np.ndarray]) -> bytes:
    """Return 16 bytes that tell the input of a network from others: the pixels of one image, and its labels.

    Args:
        image: float32 [C, H, W].
        labels: what the network gets besides, of this sample; empty if no output depends on it.
    """
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    for array in (image, *labels):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def write_shard(path: Path, entries: Mapping[bytes, Entry], dropped: Mapping[str, tuple[float, int]]) -> None:
    """Write entries by their keys, atomically.

    Args:
        path: of the file.
        entries: each with the same branches.
        dropped: for each branch, the probability of classes that are not kept, summed over rows, and the rows.

    Raises:
        OSError: the file cannot be written.
    """
    table = np.zeros(len(entries), TABLE)
    contents, offset = [], 0
    for number, (key, entry) in enumerate(entries.items()):
        content = b"".join(_to_bytes(entry[name]) for name in BRANCHES if name in entry)
        lengths = [len(entry[name].rest) if name in entry else 0 for name in BRANCHES]
        table[number] = (np.frombuffer(key, "<u8"), offset, lengths, zlib.crc32(content))
        contents.append(content)
        offset += len(content)
    numbers = [value for name in BRANCHES for value in dropped.get(name, (0.0, 0))]
    begin = _HEADER.pack(_MAGIC, len(entries), offset, *numbers, 0)[:-4]
    check = zlib.crc32(table.tobytes(), zlib.crc32(begin))
    with atomic_writer(path) as stream:
        stream.write(begin + struct.pack("<I", check))
        stream.write(table.tobytes())
        stream.writelines(contents)


def _to_bytes(kept: TopClasses) -> bytes:
    classes = b"" if kept.classes is None else kept.classes.astype("<u2").tobytes()
    parts = (kept.normaliser.astype("<f4"), kept.rest.astype("<f2"), kept.values.astype("<f2"))
    return b"".join(part.tobytes() for part in parts) + classes


class Shard:
    """An open shard.

    Args:
        path: of the file.
        forms: of its branches.

    Attributes:
        table: a row for each entry, of :data:`TABLE`.
        dropped: for each branch, the probability of classes that are not kept, summed over rows, and the rows.

    Raises:
        DataError: it is damaged.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, forms: Mapping[str, BranchForm]) -> None:
        self._forms = [(name, forms[name]) for name in BRANCHES if name in forms]
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            whole = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        content, begin = memoryview(whole), _HEADER.size
        magic, count, length, *numbers, check = (
            _HEADER.unpack(content[:begin]) if size >= begin else (b"", 0, 0, 0)
        )
        end = begin + count * TABLE.itemsize
        fits = magic == _MAGIC and size == end + length
        if not fits or zlib.crc32(content[begin:end], zlib.crc32(content[: begin - 4])) != check:
            raise DataError(
                f"{path}: the shard is damaged. Fix: build it again with the command of the cache.",
                code="damaged_file",
            )
        self.table = np.frombuffer(content[begin:end], TABLE)
        self._data = content[end:]
        self.dropped = dict(zip(BRANCHES, (numbers[:2], numbers[2:]), strict=True))

    def entry(self, row: int) -> dict[str, TopClasses] | None:
        """Return the entry of a row of the table; None if it is damaged."""
        where, found = self.table[row], {}
        begin = first = int(where["offset"])
        for name, form in self._forms:
            rows = int(where["rows"][BRANCHES.index(name)])
            end = begin + rows * form.row_bytes
            found[name] = _from_bytes(self._data[begin:end], form, rows)
            begin = end
        return found if zlib.crc32(self._data[first:begin]) == where["sum"] else None


def _from_bytes(content: memoryview, form: BranchForm, rows: int) -> TopClasses:
    def array(kind: str, begin: int, *shape: int) -> np.ndarray:
        return np.frombuffer(content, kind, int(np.prod(shape)), begin * rows).reshape(shape)

    kept = form.kept
    classes = None if kept >= form.classes else array("<u2", 6 + 2 * kept, rows, kept)
    return TopClasses(array("<f4", 0, rows), array("<f2", 4, rows), array("<f2", 6, rows, kept), classes)
