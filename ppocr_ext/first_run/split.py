"""Decide which samples train and which evaluate: what belongs together stays in one part; no Paddle."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.sources.samples import SPLITS, Sample

OWN_SPLIT = "your split"
_SHARE = 0.1  # of the samples that evaluate
_ENOUGH = 1_000  # samples from which on at least _LEAST evaluate
_LEAST = 200
_FEWEST = 10  # samples that can be split
_GROUPS = 10  # groups from which on samples are split by them
_LARGEST = 0.3  # share of the samples in one group; a larger one says nothing about what belongs together
_KINDS = ("page", "name", "folder", "image")  # what samples are split by, in this order
# `page3_crop_12`, `form-0001_line_4`, `scan12_07`: the part before the last number names what it was cut from
_OF_A_PAGE = re.compile(
    r"(.+?)[_-](?:crop|line|word|box|row|cell|text)[_-]?\d+$|(.*\d.*?)[_-]\d+$", re.IGNORECASE
)


@dataclass(frozen=True)
class Split:
    """The part of each sample.

    Attributes:
        codes: int8 [samples]: the index in ``SPLITS``.
        by: what samples were split by: ``"your split"``, ``"page"``, ``"name"``, ``"folder"`` or ``"image"``.
    """

    codes: np.ndarray
    by: str

    def counts(self) -> dict[str, int]:
        """Return the samples of each part."""
        return {name: int((self.codes == number).sum()) for number, name in enumerate(SPLITS)}


def split_samples(
    samples: Iterable[Sample],
    seed: int,
    *,
    redo: bool = False,
    test: bool = False,
    copies: Mapping[str, str] | None = None,
) -> Split:
    """Return the part of each sample; the same for the same samples and seed. A sample takes 17 bytes.

    Args:
        samples: all of them, in their order.
        seed: of the random choice of groups.
        redo: do not take the split of the user's data.
        test: also take a part for a test, as large as that for evaluation.
        copies: image -> an earlier image that is the same; both stay in one part.

    Raises:
        DataError: there are too few samples.
    """
    own = array("b")
    keys_by_kind = {kind: array("I") for kind in _KINDS}
    for sample in samples:
        own.append(SPLITS.index(sample.split or "train"))
        for kind, name in zip(_KINDS, _names(sample), strict=True):
            keys_by_kind[kind].append(_key(name))
    codes = np.array(own, np.int8)
    if len(codes) < _FEWEST:
        raise DataError(
            f"Only {len(codes)} samples are usable, and at least {_FEWEST} are needed to train and to evaluate. "
            "Fix: label more images.",
            code="too_few_samples",
        )
    parts = set(codes.tolist())
    if {0, 1} <= parts and not redo:
        return Split(codes, OWN_SPLIT)
    if redo or 0 not in parts:  # only an evaluation or a test part: nothing to train on
        codes[:] = 0
    keys = {kind: np.array(each, np.uint32) for kind, each in keys_by_kind.items()}
    kind = next(each for each in _KINDS if each == "image" or _are_groups(keys[each]))
    groups = keys[kind].copy()
    first = {key: at for at, key in reversed(list(enumerate(keys["image"].tolist())))} if copies else {}
    for copy, original in (copies or {}).items():
        groups[first[_key(copy)]] = groups[first[_key(original)]]
    for code in (1, 2) if test and not (codes == 2).any() else (1,):
        _take(codes, groups, code, np.random.default_rng([seed, code]))
    return Split(codes, kind)


def _names(sample: Sample) -> tuple[str, str, str, str]:
    """Return what a sample belongs to, by kind."""
    path = PurePosixPath(sample.image.partition("#")[0] or sample.image)
    page = _OF_A_PAGE.match(path.stem)
    name = f"{path.parent}/{(page[1] or page[2]) if page else path.stem}"
    return sample.group, name, str(path.parent), sample.image


def _key(name: str) -> int:
    """Return 32 bits for a name: two that are equal by chance only stay in one part."""
    return zlib.crc32(name.encode("utf-8", "surrogateescape"))


def _are_groups(keys: np.ndarray) -> bool:
    """Return True if samples can be split by these keys: enough groups, and none of them too large."""
    sizes = np.unique(keys, return_counts=True)[1]
    return _GROUPS <= len(sizes) < len(keys) and sizes.max() <= _LARGEST * len(keys)


def _take(codes: np.ndarray, groups: np.ndarray, code: int, rng: np.random.Generator) -> None:
    """Give ``code`` to a tenth of the samples that train, whole groups in a random order, never to the last group."""
    training = np.flatnonzero(codes == 0)
    size = max(round(_SHARE * len(training)), _LEAST if len(training) >= _ENOUGH else 1)
    _, numbers, sizes = np.unique(groups[training], return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))[: len(sizes) - 1]
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = np.isin(numbers, order[before < size])
    codes[training[chosen]] = code
