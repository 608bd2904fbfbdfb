"""A teacher cache: a folder with ``cache.json``, which describes it, and shards with the stored outputs.

A shard is written as a whole and read through a memory map. It has a header, a table with a row for each entry, and the
bytes of the entries. An entry has the outputs of one sample, branch after branch: normalisers, rests, values, classes
(:class:`TopClasses`). The checksum of header and table is compared when the shard is opened, and that of an entry when
it is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ppocr_ext.config import Config
from ppocr_ext.data.sample_seeds import CACHE_FACTS, Views
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer, is_temporary, write_text
from ppocr_ext.limits import open_regular, read_json_object
from ppocr_ext.messages import LOG

_LEAST = -1e4  # log of a probability that float32 rounds to 0


@dataclass(frozen=True)
class TopClasses:
    """The most probable classes of N rows.

    Attributes:
        normaliser: float32 [N], ``log Σ_c exp(logits)``.
        rest: float16 [N], log of the mean probability of the classes that are not kept.
        values: float16 [N, k], log-probabilities of the classes that are kept.
        classes: uint16 [N, k], their ids; None if all classes are kept in order.
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
        k: number of classes to keep, at least 1.
        always: a class that is always kept, in place of the least probable kept one if it is not among them.
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

    They are copied to the device in float16, since numpy takes four times as long to convert them.

    Args:
        kept: the kept classes of B samples, with the same number of rows.
        count: C.
        rows: N; None for all rows.
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
# Magic, number of entries, bytes of the data, dropped mass and rows of each branch, checksum of all before the data.
_HEADER = struct.Struct("<8sQQ4dI")
STORED_BRANCHES = ("ctc", "gtc")  # the order in an entry
TABLE = np.dtype(
    [("key", "<u8", (2,)), ("offset", "<u8"), ("rows", "<u2", (2,)), ("sum", "<u4")], align=False
)


@dataclass(frozen=True)
class BranchForm:
    """The form of the stored rows of a branch.

    Attributes:
        classes: number of classes of the branch.
        kept: number of classes that a row keeps.
    """

    classes: int
    kept: int

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return 6 + self.kept * (2 if self.kept >= self.classes else 4)


Entry = Mapping[str, TopClasses]


def input_key(image: np.ndarray, labels: Sequence[np.ndarray]) -> bytes:
    """Return a digest (16 bytes) of the input of a network: the pixels of an image, and its labels.

    Args:
        image: float32 [C, H, W].
        labels: labels of this sample that outputs depend on.
    """
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    for array in (image, *labels):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def write_shard(path: Path, entries: Mapping[bytes, Entry], dropped: Mapping[str, tuple[float, int]]) -> None:
    """Write a shard atomically.

    Args:
        path: the path of the file.
        entries: the entries by their keys, all with the same branches.
        dropped: for each branch, the summed probability of the classes that are not kept, and the number of rows.

    Raises:
        OSError: the file cannot be written.
    """
    table = np.zeros(len(entries), TABLE)
    contents, offset = [], 0
    for number, (key, entry) in enumerate(entries.items()):
        content = b"".join(_to_bytes(entry[name]) for name in STORED_BRANCHES if name in entry)
        lengths = [len(entry[name].rest) if name in entry else 0 for name in STORED_BRANCHES]
        table[number] = (np.frombuffer(key, "<u8"), offset, lengths, zlib.crc32(content))
        contents.append(content)
        offset += len(content)
    numbers = [value for name in STORED_BRANCHES for value in dropped.get(name, (0.0, 0))]
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
        path: the path of the file.
        forms: the forms of its branches.

    Attributes:
        table: a row of :data:`TABLE` for each entry.
        dropped: for each branch, the summed probability of the classes that are not kept, and the number of rows.

    Raises:
        DataError: the file is damaged.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path, forms: Mapping[str, BranchForm]) -> None:
        self._forms = [(name, forms[name]) for name in STORED_BRANCHES if name in forms]
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
        self.dropped = dict(zip(STORED_BRANCHES, (numbers[:2], numbers[2:]), strict=True))

    def entry(self, row: int) -> dict[str, TopClasses] | None:
        """Return the entry of a row of the table; None if it is damaged."""
        where, found = self.table[row], {}
        begin = first = int(where["offset"])
        for name, form in self._forms:
            rows = int(where["rows"][STORED_BRANCHES.index(name)])
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


_FORMAT = 1
_NOT_OF_OUTPUTS = ("pretrained", "pretrained_dict", "freeze_params")
# The option that sets an attribute, for messages.
_SET_BY = {
    "views": "views (--views, --seed)",
    "dtype": "dtype (Global.teacher_dtype)",
    "data": "data (Train.dataset, Train.sampler, Train.mix)",
}
_DRAWN_BY = ("dataset", "sampler")  # sections of Train that a view depends on


@dataclass(frozen=True)
class CacheFacts:
    """The content of ``cache.json``.

    Attributes:
        model: the sub-model.
        teacher: digest of its weights and architecture.
        charset: digest of the dictionary.
        data: digest of ``Train.dataset``, ``Train.sampler`` and the lists of ``Train.mix``.
        views: number of views of each sample, and their seed.
        branches: the stored form of ``"ctc"`` and ``"gtc"``.
        shards: number of files of each view.
        batches: number of batches in a file.
        dtype: type in which the sub-model has computed.
        code: digest of the version and of the source files of its layers.
    """

    model: str
    teacher: str
    charset: str
    data: str
    views: Views
    branches: Mapping[str, BranchForm]
    shards: int
    batches: int
    dtype: str
    code: str = ""  # empty in caches of older versions

    def write(self, folder: Path) -> None:
        """Write ``cache.json`` into the folder of the cache, as the first of its files.

        Raises:
            DataError: another host has begun another cache there; see :func:`require_same_cache`.
        """
        require_same_cache(folder, self)
        write_text(folder / CACHE_FACTS, json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n")


def read_facts(folder: Path) -> CacheFacts:
    """Read ``cache.json`` of a folder.

    Raises:
        DataError: the folder holds no cache, or a cache of another version.
    """
    file = folder / CACHE_FACTS
    try:
        content = read_json_object(file)
        if content.pop("format") != _FORMAT:
            raise ValueError("another version")
        views = Views(**content.pop("views"))
        branches = {name: BranchForm(**form) for name, form in content.pop("branches").items()}
        return CacheFacts(views=views, branches=branches, **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"Train.teacher_cache: {folder} holds no teacher cache of this version ({type(error).__name__}: {error}). "
            f"Fix: build one: ppocr-ext cache-teacher -c CONFIG --output {folder}.",
            code="no_teacher_cache",
        ) from error


def require_same_cache(folder: Path, facts: CacheFacts) -> None:
    """Check that the folder is empty, or holds the cache of ``facts``.

    Another host may begin the same cache meanwhile. It writes ``cache.json`` first, so until then only temporary files
    can be seen; and the folder is listed before ``cache.json`` is looked for.

    Raises:
        DataError: it holds another cache, or other files.
    """
    if not folder.exists() or all(is_temporary(file.name) for file in folder.iterdir()):
        return
    if not (folder / CACHE_FACTS).exists():
        raise DataError(
            f"{folder} holds other files and no {CACHE_FACTS}. Fix: give another --output, or empty the folder.",
            code="other_cache",
        )
    before, now = vars(read_facts(folder)), vars(facts)
    other = [
        f"  {_SET_BY.get(name, name)}: found {before[name]}, expected {now[name]}"
        for name in now
        if before[name] != now[name] and name != "shards"  # more shards if the data have grown
    ]
    if other:
        raise DataError(
            "\n".join([f"{folder} holds another teacher cache:", *other])
            + "\nFix: give another --output, or remove the folder.",
            code="other_cache",
        )


def shard_file(folder: Path, view: int, number: int, samples: str) -> Path:
    """Return the file of a shard; its name has a digest of its ``samples``, so it changes when the data grow."""
    return folder / f"view{view:03d}-{number:05d}-{samples}.shard"


def teacher_digest(config: Config, model: str, weights: str) -> str:
    """Return a digest of everything that the outputs of a sub-model depend on, except its input.

    Args:
        config: resolved.
        model: the sub-model.
        weights: digest of its state.
    """
    section = config.at(("Architecture", "Models", model)).thaw()
    kept = {key: value for key, value in section.items() if key not in _NOT_OF_OUTPUTS}
    return _digest([kept, weights])


def data_digest(config: Config) -> str:
    """Return a digest of the config keys that a view of a sample depends on; label files are not read."""
    section = config.at("Train").thaw()
    mixed = [[each["dataset"], each.get("labelled") is False] for each in section.get("mix") or ()]
    return _digest([*(section.get(part) for part in _DRAWN_BY), *mixed])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def open_shard(path: Path, facts: CacheFacts, level: int = logging.WARNING) -> Shard | None:
    """Open a shard; return None if it is missing, or if it is damaged, which goes to the log at ``level``."""
    try:
        return Shard(path, facts.branches)
    except (FileNotFoundError, DataError) as error:
        if path.exists():
            LOG.log(level, "%s", error)
        return None


class Store:
    """The entries of a cache; they are read from its files when they are needed.

    Args:
        folder: the folder of the cache.

    Attributes:
        facts: content of ``cache.json``.
        folder: the folder of the cache.
        entries: number of entries, in which a sample that is listed twice counts twice.
    """

    def __init__(self, folder: Path) -> None:
        self.facts, self.folder = read_facts(folder), folder
        opened = (open_shard(path, self.facts) for path in sorted(folder.glob("view*.shard")))
        self._shards = [shard for shard in opened if shard is not None]
        tables = [np.zeros(0, TABLE), *(shard.table for shard in self._shards)]
        begins = np.concatenate([table["key"][:, 0] for table in tables])
        order = np.argsort(begins, kind="stable")
        self._begins = begins[order]
        shards = np.repeat(np.arange(-1, len(self._shards), dtype=np.int32), [*map(len, tables)])
        rows = np.concatenate([np.arange(len(table), dtype=np.uint32) for table in tables])
        self._shard_of, self._row_of = shards[order], rows[order]
        self.entries = len(begins)

    def find(self, key: bytes) -> dict[str, TopClasses] | None:
        """Return the entry of an input; None if there is none, or if it is damaged."""
        wanted = np.frombuffer(key, "<u8")
        place = int(np.searchsorted(self._begins, wanted[0]))
        while place < self.entries and self._begins[place] == wanted[0]:
            shard, row = self._shards[self._shard_of[place]], int(self._row_of[place])
            if shard.table[row]["key"][1] == wanted[1]:
                return shard.entry(row)
            place += 1
        return None

    def dropped(self, branch: str) -> float:
        """Return the mean probability of the classes that a row of a branch does not keep."""
        sums = np.array([shard.dropped[branch] for shard in self._shards] or [[0.0, 0.0]]).sum(axis=0)
        return float(sums[0] / max(sums[1], 1.0))
