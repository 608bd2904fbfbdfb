"""Decide which samples train and which evaluate: what belongs together stays in one part; no Paddle."""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.sources.samples import SPLITS, Sample

OWN_SPLIT = "your split"
_SHARE = 0.1  # of the samples that evaluate
_ENOUGH = 1_000  # samples from which on at least _LEAST evaluate
_LEAST = 200
_FEWEST = 10  # samples that can be split
_FEWEST_VAL = 2  # samples that can evaluate
_GROUPS = 10  # groups from which on samples are split by them
_LARGEST = 0.3  # share of the samples in one group; a larger one says nothing about what belongs together
_TEXTS = 100  # different texts, at most, that are classes: whole words of a closed list, or single characters
_UNSEEN = 0.1  # share of the samples of val whose characters need not train, for whole pages
_KINDS = ("page", "name", "folder", "image")  # what samples are split by, in this order
# `page3_crop_12`, `form-0001_line_4`, `scan12_07`: the part before the last number names what it was cut from
_OF_A_PAGE = re.compile(
    r"(.+?)[_-](?:crop|line|word|box|row|cell|text)[_-]?\d+$|(.*\d.*?)[_-]\d+$", re.IGNORECASE
)
_Pairs = tuple[np.ndarray, np.ndarray]  # int [pairs] each: a sample, and a class that it has


@dataclass(frozen=True)
class Split:
    """The part of each sample.

    Attributes:
        codes: int8 [samples]: the index in ``SPLITS``.
        by: what samples were split by: ``"your split"``, ``"page"``, ``"name"``, ``"folder"`` or ``"image"``.
        lacking: characters that val has and train lacks.
        apart: copies in another part than their original, so that pages stay whole.
    """

    codes: np.ndarray
    by: str
    lacking: frozenset[str] = frozenset()
    apart: int = 0

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
    """Return the part of each sample; the same for the same samples and seed.

    A sample takes about 25 bytes, and 4 for each character.

    Args:
        samples: all of them, in their order.
        seed: of the random choice of groups.
        redo: do not take the split of the user's data; its test part stays unless ``test`` takes one.
        test: also take a part for a test, as large as that for evaluation.
        copies: image -> an earlier image that is the same; what both belong to stays in one part.

    Raises:
        DataError: there are too few samples.
    """
    table = _look(samples)
    codes = table.own
    if len(codes) < _FEWEST:
        raise DataError(
            f"Only {len(codes)} samples are usable, and at least {_FEWEST} are needed to train and to evaluate. "
            "Fix: label more images.",
            code="too_few_samples",
        )
    if 0 in codes and (codes == 1).sum() >= _FEWEST_VAL and not redo:
        return Split(codes, OWN_SPLIT, table.lacking(codes))
    if redo or 0 not in codes:  # only an evaluation or a test part: nothing to train on
        codes[codes == 1] = 0
    if redo and test or 0 not in codes:
        codes[:] = 0
    parts = (1, 2) if test and not (codes == 2).any() else (1,)
    first = dict(zip(table.keys["image"][::-1].tolist(), range(len(codes) - 1, -1, -1), strict=True))
    same = [(first[_key(copy)], first[_key(original)]) for copy, original in (copies or {}).items()]
    result, by = codes, ""
    for kind, groups, most_unseen in _attempts(table.keys, same):
        result, by = codes.copy(), kind
        generators = {code: np.random.default_rng([seed, code]) for code in parts}
        if all(
            _take(result, groups, code, rng, table.classes, most_unseen) for code, rng in generators.items()
        ):
            break
    apart = sum(result[one] != result[other] for one, other in same)
    return Split(result, by, table.lacking(result), int(apart))


class _Table(NamedTuple):
    """What a split follows from.

    Attributes:
        own: int8 [samples]: the parts that the data say.
        keys: kind -> uint32 [samples]: what a sample belongs to.
        names: all characters.
        characters: each with its number in ``names``.
        classes: the same, and after them the whole text if there are few.
    """

    own: np.ndarray
    keys: dict[str, np.ndarray]
    names: list[str]
    characters: _Pairs
    classes: _Pairs

    def lacking(self, codes: np.ndarray) -> frozenset[str]:
        """Return the characters that val has and train lacks."""
        return frozenset(compress(self.names, _lacking(codes, self.characters)))


def _look(samples: Iterable[Sample]) -> _Table:
    own = array("b")
    keys = {kind: array("I") for kind in _KINDS}
    numbers: dict[str, int] = {}  # of characters
    characters, sizes, texts = array("I"), array("I"), array("I")
    for sample in samples:
        own.append(SPLITS.index(sample.split or "train"))
        for kind, name in zip(_KINDS, _names(sample), strict=True):
            keys[kind].append(_key(name))
        different = set(sample.text)
        characters.extend(numbers.setdefault(each, len(numbers)) for each in different)
        sizes.append(len(different))
        texts.append(_key(sample.text))
    every = np.arange(len(own))
    pairs = np.repeat(every, np.array(sizes, np.int64)), np.array(characters, np.int64)
    classes = pairs
    distinct, of_text = np.unique(np.array(texts, np.uint32), return_inverse=True)
    if len(distinct) <= min(_TEXTS, len(own) / _GROUPS):
        classes = np.append(pairs[0], every), np.append(pairs[1], len(numbers) + of_text)
    arrays = {kind: np.array(each, np.uint32) for kind, each in keys.items()}
    return _Table(np.array(own, np.int8), arrays, list(numbers), pairs, classes)


def _names(sample: Sample) -> tuple[str, str, str, str]:
    """Return what a sample belongs to, by kind."""
    path = PurePosixPath(sample.image.partition("#")[0] or sample.image)
    page = _OF_A_PAGE.match(path.stem)
    name = f"{path.parent}/{(page[1] or page[2]) if page else path.stem}"
    return sample.group or sample.image, name, str(path.parent), sample.image


def _key(name: str) -> int:
    """Return 32 bits for a name: two that are equal by chance only stay in one part."""
    return zlib.crc32(name.encode("utf-8", "surrogateescape"))


def _attempts(
    keys: Mapping[str, np.ndarray], same: list[tuple[int, int]]
) -> Iterator[tuple[str, np.ndarray, float]]:
    """Yield what to split by, the groups, and the share of val that may have characters that train lacks.

    Pages of one form have the same words: if these join too many pages, pages are kept whole, and copies are not kept
    together. Names and folders are guesses. The last attempt is taken as it is.
    """
    for kind in _KINDS[:-1]:
        if _are_groups(keys[kind]):
            yield kind, _joined(keys[kind], same), _UNSEEN if kind == "page" else 0.0
            if same and kind == "page":
                yield kind, keys[kind], _UNSEEN
    for unseen in (0.0, 1.0):
        yield "image", _joined(keys["image"], same), unseen


def _are_groups(keys: np.ndarray) -> bool:
    """Return True if samples can be split by these keys: enough groups, and none of them too large."""
    sizes = np.unique(keys, return_counts=True)[1]
    return _GROUPS <= len(sizes) < len(keys) and sizes.max() <= _LARGEST * len(keys)


def _joined(keys: np.ndarray, same: list[tuple[int, int]]) -> np.ndarray:
    """Return the keys after the groups of each pair of samples have become one group."""
    parent: dict[int, int] = {}

    def root(key: int) -> int:
        while key in parent:
            key = parent[key]
        return key

    for one, other in same:
        first, second = root(int(keys[one])), root(int(keys[other]))
        if first != second:
            parent[first] = second
    found, inverse = np.unique(keys, return_inverse=True)
    return np.array([root(key) for key in found.tolist()], keys.dtype)[inverse]


def _take(
    codes: np.ndarray,
    groups: np.ndarray,
    code: int,
    rng: np.random.Generator,
    pairs: _Pairs,
    most_unseen: float,
) -> bool:
    """Give ``code`` to about a tenth of the samples that train: whole groups in a random order, no large ones.

    Groups with a class that would not train any more stay, unless too few are left and ``most_unseen`` allows it.

    Returns:
        Whether that gives a part.
    """
    training = np.flatnonzero(codes == 0)
    fewest = _LEAST if len(training) >= _ENOUGH else _FEWEST_VAL
    size = max(round(_SHARE * len(training)), fewest) - int((codes == code).sum())
    most = size + round(_SHARE * len(training))
    group_of = np.full(len(codes), -1)
    _, group_of[training], sizes = np.unique(groups[training], return_inverse=True, return_counts=True)
    samples, classes = pairs
    owner = group_of[samples]
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(len(sizes) + 1))
    sorted_classes = classes[order]
    left = np.bincount(classes[owner >= 0], minlength=classes.max() + 1)
    chosen: dict[int, None] = {}
    total = 0
    permutation = rng.permutation(len(sizes)).tolist()
    for strict in (True, False):
        for group in permutation:
            if total >= size:
                break
            if group in chosen or total + sizes[group] > most:
                continue
            own, counts = np.unique(sorted_classes[ends[group] : ends[group + 1]], return_counts=True)
            if not strict or (left[own] > counts).all():
                left[own] -= counts
                chosen[group] = None
                total += sizes[group]
        if not most_unseen or 2 * total >= size:
            break
    codes[np.isin(group_of, list(chosen))] = code
    lacking = _lacking(codes, pairs, code)[classes] & (codes[samples] == code)
    return total >= max(size / 2, 1) and len(np.unique(samples[lacking])) <= most_unseen * total


def _lacking(codes: np.ndarray, pairs: _Pairs, code: int = 1) -> np.ndarray:
    """Return the classes that a part has and train lacks: bool [classes]."""
    samples, classes = pairs
    count = classes.max(initial=0) + 1
    train, part = (np.bincount(classes[codes[samples] == each], minlength=count) for each in (0, code))
    return (train == 0) & (part > 0)
