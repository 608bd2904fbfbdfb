"""Decide which samples train and which evaluate: what belongs together stays in one part; no Paddle."""

from __future__ import annotations

import re
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.sources.names import stem
from ppocr_ext.sources.samples import SPLITS, Sample

OWN_SPLIT = "your split"
_SHARE = 0.1  # of the samples that evaluate
_ENOUGH = 1_000  # samples from which on at least _LEAST evaluate
_LEAST = 200
_FEWEST = 10  # samples that can be split
_FEWEST_VAL = 2  # samples of the user that evaluate
FEW_VAL = 10  # samples: each one is 10 points of the accuracy or more
_MOST_FEW = 0.25  # share of the samples that evaluate, if more are needed than _SHARE
_GROUPS = 10  # groups from which on samples are split by them
_LARGEST = 0.3  # share of the samples in one group; a larger one says nothing about what belongs together
_TEXTS = 100  # different texts, at most, that are classes: whole words of a closed list, or single characters
_UNSEEN = 0.1  # share of the samples of val whose characters need not train, for whole pages
# what samples are split by, in this order; copy: an image with its copies
_KINDS = ("page", "name", "folder", "copy", "image")
# `page3_crop_12`, `form-0001_line_4`, `scan12_07`: the part before the last number names what it was cut from
_OF_A_PAGE = re.compile(
    r"(.+?)[_-](?:crop|line|word|box|row|cell|text)[_-]?\d+$|(.*\d.*?)[_-]\d+$", re.IGNORECASE
)
_SAFE = 16  # groups from which on a character is surely left in train: each evaluates with a chance of at most 0.2
_Pair = tuple[int, int]  # two samples
_Owners = dict[str, dict[int, int]]  # class of few groups -> these, with their samples


@dataclass(frozen=True)
class Split:
    """The part of each sample.

    Attributes:
        codes: int8 [samples]: the index in ``SPLITS``.
        by: what keeps samples in one part: ``"your split"``, ``"page"``, ``"name"``, ``"folder"``, ``"image"``, or
            ``"line"``: nothing, since there are too few pages.
        lacking: the characters that val has and train lacks.
        apart: how many copies are in another part than their original, since they would join whole pages or classes.
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
    """Return the part of each sample; the same for the same samples and seed. A sample takes 21 bytes.

    Args:
        samples: all samples, in their order.
        seed: the seed of the random choice of groups.
        redo: True splits anew, also if the data are split; their test part stays unless ``test`` takes one.
        test: True also takes a part for a test, as large as that for evaluation.
        copies: by image, an earlier image that is the same, in their order; what both belong to stays in one part.

    Raises:
        DataError: there are too few samples.
    """
    originals: dict[str, str] = {}
    for copy, original in (copies or {}).items():
        originals[copy] = originals.get(original, original)
    codes, keys_of, owners_of, characters = _look(samples, originals, with_test=redo and test)
    if len(codes) < _FEWEST:
        raise DataError(
            f"Only {len(codes)} samples are usable, and at least {_FEWEST} are needed to train and to evaluate. "
            "Fix: label more images.",
            code="too_few_samples",
        )
    is_split = 0 in codes and (codes == 1).sum() >= _FEWEST_VAL and not redo
    if is_split and (2 in codes or not test):
        return Split(codes, OWN_SPLIT, frozenset(characters[1] - characters[0]))
    if redo or 0 not in codes:  # only an evaluation or a test part: nothing to train on
        codes[codes == 1] = 0
    if redo and test or 0 not in codes:
        codes[:] = 0
    parts = [
        *([] if is_split else [1]),
        *([2] if test and 2 not in codes else []),
    ]  # val stays if it is there
    same = []
    if originals:
        first = dict(zip(keys_of["image"][::-1].tolist(), range(len(codes) - 1, -1, -1), strict=True))
        same = [(first[_key(copy)], first[_key(original)]) for copy, original in originals.items()]
    for by, keys, pairs, most_unseen in _attempts(keys_of, same):
        result = codes.copy()
        groups, owners = _joined(keys, owners_of.get(by, {}), pairs)
        taken = [_take(result, groups, code, seed, owners, most_unseen) for code in parts]
        lacking = taken[0] or set()
        if None not in taken:
            break
    return Split(
        result,
        by.replace("copy", "image"),
        frozenset(each for each in lacking if len(each) == 1),
        sum(bool(result[one] != result[other]) for one, other in same),
    )


def _look(
    samples: Iterable[Sample], originals: Mapping[str, str], with_test: bool
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, _Owners], list[set[str]]]:
    """Return what a split follows from; a test part that stays owns no characters.

    Returns:
        The parts that the data say, int8 [samples]; what a sample belongs to, by kind, uint32 [samples]; classes of few
        groups, by kind: characters, and whole texts if there are few of them; the characters of each part that the data
        say.
    """
    own = array("b")
    keys = {kind: array("I") for kind in _KINDS}
    owners: dict[str, _Owners] = {kind: {} for kind in _KINDS}
    safe: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    characters: list[set[str]] = [set() for _ in SPLITS]
    texts: set[str] = set()
    for sample in samples:
        code = SPLITS.index(sample.split or "train")
        own.append(code)
        characters[code].update(sample.text)
        classes = set(sample.text)
        if len(texts) <= _TEXTS:
            texts.add(sample.text)
            classes.add(f"\n{sample.text}")
        for kind, name in zip(_KINDS, _names(sample, originals), strict=True):
            key = _key(name)
            keys[kind].append(key)
            for each in classes - safe[kind] if with_test or code != 2 else ():
                groups = owners[kind].setdefault(each, {})
                groups[key] = groups.get(key, 0) + 1
                if len(groups) > _SAFE:
                    safe[kind].add(each)
                    del owners[kind][each]
    if len(texts) > min(_TEXTS, len(own) / _GROUPS):
        owners = {kind: {k: v for k, v in each.items() if k[0] != "\n"} for kind, each in owners.items()}
    return (
        np.array(own, np.int8),
        {kind: np.array(each, np.uint32) for kind, each in keys.items()},
        owners,
        characters,
    )


def _names(sample: Sample, originals: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a sample belongs to, by kind."""
    folder, _, file = (sample.image.partition("#")[0] or sample.image).rpartition("/")
    page = _OF_A_PAGE.match(stem(file))
    name = f"{folder}/{(page[1] or page[2]) if page else stem(file)}"
    return sample.group or sample.image, name, folder, originals.get(sample.image, sample.image), sample.image


def _key(name: str) -> int:
    """Return 32 bits for a name: two that are equal by chance only stay in one part."""
    return zlib.crc32(name.encode("utf-8", "surrogateescape"))


def _attempts(
    keys_of: Mapping[str, np.ndarray], same: list[_Pair]
) -> Iterator[tuple[str, np.ndarray, list[_Pair], float]]:
    """Yield what to split by, the groups, the copies to join, and the share of val that may not train.

    Pages of one form have the same words, and images of one class may look alike: if these join too much, copies are
    not kept together. Names and folders are guesses. The last attempt is taken as it is.
    """
    for kind, keys in keys_of.items():
        if kind in ("copy", "image"):
            yield kind, keys, [], 0.0
        elif _GROUPS <= len(sizes := np.unique(keys, return_counts=True)[1]) < len(keys) and (
            sizes.max() <= _LARGEST * len(keys)
        ):
            yield kind, keys, same, _UNSEEN if kind == "page" else 0.0
            if same and kind == "page":
                yield kind, keys, [], _UNSEEN
    yield "copy", keys_of["copy"], [], 1.0
    yield "line", np.arange(len(keys_of["copy"]), dtype=np.uint32), [], 1.0  # of a few pages with many lines


def _joined(
    keys: np.ndarray, owners: _Owners, pairs: list[_Pair]
) -> tuple[np.ndarray, dict[str, Counter[int]]]:
    """Return the groups after those of each pair of samples have become one, and the few groups of each class."""
    parent: dict[int, int] = {}

    def root(key: int) -> int:
        while key in parent:
            key = parent[key]
        return key

    for one, other in pairs:
        first, second = root(int(keys[one])), root(int(keys[other]))
        if first != second:
            parent[first] = second
    found, places = np.unique(keys, return_inverse=True)
    return np.array([root(key) for key in found.tolist()], keys.dtype)[places], {
        each: sum((Counter({root(key): count}) for key, count in groups.items()), Counter[int]())
        for each, groups in owners.items()
    }


def _take(
    codes: np.ndarray,
    groups: np.ndarray,
    code: int,
    seed: int,
    owners: Mapping[str, Mapping[int, int]],
    most_unseen: float,
) -> set[str] | None:
    """Give ``code`` to about a tenth of the samples that train: whole groups in a random order, no large ones.

    Half of each class stays, unless too few groups are left and ``most_unseen`` allows more.

    Returns:
        The classes that train lacks; None if this gives no part.
    """
    training = codes == 0
    count = int(training.sum())
    least = _LEAST if count >= _ENOUGH else min(FEW_VAL, int(_MOST_FEW * count))
    size = max(round(_SHARE * count), least) - int((codes == code).sum())
    found, sizes = np.unique(groups[training], return_counts=True)
    size_of = dict(zip(found.tolist(), sizes.tolist(), strict=True))
    classes_of: dict[int, list[tuple[str, int]]] = {}
    for each, own in owners.items():
        for key, samples in own.items():
            if key in size_of:
                classes_of.setdefault(key, []).append((each, samples))
    before = Counter({each: sum(own[key] for key in own if key in size_of) for each, own in owners.items()})
    left = before.copy()
    chosen: set[int] = set()
    total = 0
    order = np.random.default_rng([seed, code]).permutation(found).tolist()
    for strict in (True, False):
        for key in order:
            if total >= size:
                break
            own_classes = classes_of.get(key, [])
            keeps = not strict or all(2 * (left[each] - n) >= before[each] for each, n in own_classes)
            if key not in chosen and total + size_of[key] <= size + _SHARE * count and keeps:
                chosen.add(key)
                total += size_of[key]
                left.subtract(dict(own_classes))
        if not most_unseen or 2 * total >= size:
            break
    codes[training & np.isin(groups, list(chosen))] = code
    lacking = {each for each in owners if not left[each]}
    unseen = sum(samples for each in lacking for key, samples in owners[each].items() if key in chosen)
    return lacking if 2 * total >= max(size, 1) and unseen <= most_unseen * total else None
