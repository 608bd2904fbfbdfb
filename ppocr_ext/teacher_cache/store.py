"""A teacher cache as a folder: ``cache.json``, which says whose outputs it has, and the shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import BFLOAT16, FLOAT32
from ppocr_ext.data.sample_seeds import CACHE_FACTS, Views
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_json_object
from ppocr_ext.messages import LOG
from ppocr_ext.teacher_cache.shards import BRANCHES, TABLE, BranchForm, Shard, TopClasses

_FORMAT = 1
_NOT_OF_OUTPUTS = ("pretrained", "pretrained_dict", "freeze_params")
# what sets a fact, for messages
_SET_BY = {"views": "views (--views, --seed)", "dtype": "dtype (Global.teacher_dtype)"}
_DRAWN_BY = ("dataset", "sampler")  # parts of Train that decide what a view shows


@dataclass(frozen=True)
class CacheFacts:
    """What a cache has.

    Attributes:
        model: the sub-model.
        teacher: digest of its weights and architecture.
        charset: digest of the dictionary.
        data: digest of ``Train.dataset`` and ``Train.sampler``.
        views: how many of each sample, and their seed.
        branches: how rows are kept, by ``"ctc"`` and ``"gtc"``.
        shards: files of each view.
        batches: in a file.
        dtype: that the sub-model computed in.
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
    code: str = ""  # caches of older versions do not say it

    def write(self, folder: Path) -> None:
        """Write them into the folder of the cache."""
        write_text(folder / CACHE_FACTS, json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n")


def read_facts(folder: Path) -> CacheFacts:
    """Return what the cache of a folder has.

    Raises:
        DataError: the folder holds no cache, or one of another version.
    """
    file = folder / CACHE_FACTS
    try:
        content = read_json_object(file)
        if content.pop("format") != _FORMAT:
            raise ValueError("another version")
        views, branches = Views(**content.pop("views")), content.pop("branches")
        forms = {name: BranchForm(**form) for name, form in branches.items()}
        facts = CacheFacts(views=views, branches=forms, **content)
        numbers = {"shards": facts.shards, "batches": facts.batches}
        for name, part in {"views": views, **forms}.items():
            numbers |= {f"{name}.{key}": number for key, number in vars(part).items()}
        for key, number in numbers.items():
            if type(number) is not int or number < (0 if key == "views.seed" else 1):
                raise ValueError(f"{key} is {number!r}")
        right = (
            forms
            and set(forms) <= set(BRANCHES)
            and all(form.kept <= form.classes for form in forms.values())
        )
        if not right or facts.dtype not in (FLOAT32, BFLOAT16):
            raise ValueError(f"dtype is {facts.dtype!r}, branches are {branches}")
        return facts
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"Train.teacher_cache: {folder} holds no teacher cache of this version ({type(error).__name__}: {error}). "
            f"Fix: build one: ppocr-ext cache-teacher -c CONFIG --output {folder}.",
            code="no_teacher_cache",
        ) from error


def require_same_cache(folder: Path, facts: CacheFacts) -> None:
    """Refuse a folder that holds another cache than that of ``facts``, or other files.

    Raises:
        DataError: it does.
    """
    if not folder.exists() or not any(folder.iterdir()):
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
        if before[name] != now[name] and name != "shards"  # of which the data may need more now
    ]
    if other:
        raise DataError(
            "\n".join([f"{folder} holds another teacher cache:", *other])
            + "\nFix: give another --output, or remove the folder.",
            code="other_cache",
        )


def shard_file(folder: Path, view: int, number: int, samples: str) -> Path:
    """Return the file of a shard, whose name has a digest of its ``samples``: it is another one if the data grow."""
    return folder / f"view{view:03d}-{number:05d}-{samples}.shard"


def teacher_digest(config: Config, model: str, weights: str) -> str:
    """Return a digest of all that the outputs of a sub-model follow from, besides its input.

    Args:
        config: resolved.
        model: the sub-model.
        weights: digest of its state.
    """
    section = config.at(("Architecture", "Models", model)).thaw()
    kept = {key: value for key, value in section.items() if key not in _NOT_OF_OUTPUTS}
    return _digest([kept, weights])


def data_digest(config: Config) -> str:
    """Return a digest of the keys that decide what a view of a sample shows; label files are not read."""
    section = config.at("Train").thaw()
    return _digest([section.get(part) for part in _DRAWN_BY])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def open_shard(path: Path, facts: CacheFacts) -> Shard | None:
    """Open a shard; return None if it is missing or, with a warning, if it is damaged."""
    try:
        return Shard(path, facts.branches)
    except (FileNotFoundError, DataError) as error:
        if path.exists():
            LOG.warning("%s", error)
        return None


class Store:
    """The entries of a cache, read where they are needed.

    Args:
        folder: of the cache.

    Attributes:
        facts: what it has.
        folder: of the cache.
        entries: how many; the same sample in two lines counts twice.
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
        """Return the entry of an input; None if there is none, or it is damaged."""
        wanted = np.frombuffer(key, "<u8")
        place = int(np.searchsorted(self._begins, wanted[0]))
        while place < self.entries and self._begins[place] == wanted[0]:
            shard, row = self._shards[self._shard_of[place]], int(self._row_of[place])
            if shard.table[row]["key"][1] == wanted[1]:
                return shard.entry(row)
            place += 1
        return None

    def dropped(self, branch: str) -> float:
        """Return the mean probability of the classes that rows of a branch do not keep."""
        sums = np.array([shard.dropped[branch] for shard in self._shards] or [[0.0, 0.0]]).sum(axis=0)
        return float(sums[0] / max(sums[1], 1.0))
