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
import paddle

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.limits import open_regular

_LEAST = -1e4  # log of a probability that float32 rounds to 0


@dataclass(frozen=True)
class TopClasses:
    """The most probable classes of N rows.

    Attributes:
        normaliser: float32 [N], ``log Σ_c exp(logits)``.
        rest: float16 [N], log of the mean probability of a class that is not kept.
        values: float16 [N, k], log-probabilities of the classes that are kept.
        classes: uint16 [N, k], their ids; None if all classes are kept, in their order.
    """

    normaliser: np.ndarray
    rest: np.ndarray
    values: np.ndarray
    classes: np.ndarray | None

    def mass(self, count: int) -> np.ndarray:
        """Return the probability of all classes that are not kept, float32 [N]."""
        left = 0 if self.classes is None else count - self.classes.shape[1]
        return np.exp(self.rest.astype(np.float32)) * left


def top_classes(logits: np.ndarray, k: int, always: int | None = None) -> TopClasses:
    """Keep the ``k`` most probable classes of each row; all of them if there are fewer.

    Args:
        logits: float32 [N, C].
        k: classes to keep, at least 1.
        always: a class that is kept though it is not one of them, in place of the least probable.
    """
    peak = logits.max(axis=1, keepdims=True)
    shares = np.exp(logits - peak)
    total = shares.sum(axis=1)
    normaliser = (np.log(total) + peak[:, 0]).astype(np.float32)
    count = logits.shape[1]
    if k >= count:
        values = np.maximum(logits - normaliser[:, None], _LEAST).astype(np.float16)
        return TopClasses(normaliser, np.full(len(logits), _LEAST, np.float16), values, None)
    classes = np.argpartition(logits, count - k, axis=1)[:, count - k :]
    if always is not None:
        kept = np.take_along_axis(logits, classes, axis=1)
        lacking = np.flatnonzero(~(classes == always).any(axis=1))
        classes[lacking, kept[lacking].argmin(axis=1)] = always
    values = np.take_along_axis(logits, classes, axis=1) - normaliser[:, None]
    np.put_along_axis(shares, classes, 0.0, axis=1)
    with np.errstate(divide="ignore"):
        rest = np.log(shares.sum(axis=1) / total / (count - k))
    return TopClasses(
        normaliser,
        np.maximum(rest, _LEAST).astype(np.float16),
        np.maximum(values, _LEAST).astype(np.float16),
        classes.astype(np.uint16),
    )


def dense_logits(kept: Sequence[TopClasses], count: int, rows: int | None = None) -> paddle.Tensor:
    """Return logits of all ``count`` classes, float32 [B, N, count]; classes that are not kept share one value.

    They travel to the device in float16; numpy takes four times as long to widen it.

    Args:
        kept: what each of B samples keeps, of equally many rows.
        count: C.
        rows: N, the first of them; None: all.
    """

    def batch(part: str) -> np.ndarray:
        return np.stack([getattr(each, part)[:rows] for each in kept])

    normaliser = paddle.to_tensor(batch("normaliser")).unsqueeze(-1)
    logits = paddle.to_tensor(batch("values")).astype("float32") + normaliser
    if kept[0].classes is None:
        return logits
    classes = paddle.to_tensor(batch("classes").astype(np.int64))  # Paddle takes uint16 for bfloat16
    rest = paddle.to_tensor(batch("rest")).astype("float32").unsqueeze(-1) + normaliser
    return paddle.put_along_axis(
        rest.expand([*rest.shape[:2], count]), classes, logits, axis=2, broadcast=False
    )


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
