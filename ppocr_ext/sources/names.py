"""Tell from the names of files and folders what a file is, and which part of a split is meant; no Paddle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from posixpath import splitext

# fmt: off
IMAGE_ENDINGS = ("bmp", "dib", "gif", "jfif", "jp2", "jpe", "jpeg", "jpg", "pbm", "pgm", "png", "pnm", "ppm", "tif",
                 "tiff", "webp")
LIST_ENDINGS = ("csv", "gt", "jsonl", "label", "labels", "list", "lst", "ndjson", "tsv", "txt")
# fmt: on
# PaddleOCR's folder of all parts; it is the part that trains only if there are others beside it
_TRAIN_DATA = re.compile(r"train(ing)?[ _-]?data(set)?(?![a-z])", re.IGNORECASE)
_CHINESE = "训练|訓練|验证|驗證|测试|測試"
_WORD = re.compile(rf"[A-Z]?[a-z]+|[A-Z]+|(?:{_CHINESE})集?|[^\W\d_a-zA-Z]+?(?={_CHINESE}|[\W\d_a-zA-Z]|$)")
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", "trainset", "训练", "訓練"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), "val"),
    **dict.fromkeys(("valset", "devset", "evalset", "holdout", "验证", "驗證"), "val"),
    **dict.fromkeys(("test", "testing", "testset", "测试", "測試"), "test"),
}
# words that say nothing about the content of a folder or list
_PLAIN = {
    "anno", "annotation", "annotations", "crops", "data", "dataset", "image", "images", "img", "imgs", "json", "lists",
    "rec", "set", "split", "word", "words", "xml", *LIST_ENDINGS,
    "ch", "challenge", "localization", "task", "transcription",  # of ICDAR
}  # fmt: skip
_CROP = re.compile(r"(.+)_crop_\d+\.\w+")
IN_DOUBT = "?"  # in place of a split


def ending(path: str) -> str:
    """Return what follows the last point of a path, in lower case."""
    return path.rpartition(".")[2].lower()


def stem(path: str) -> str:
    """Return the file name of a path without its ending."""
    return splitext(path.rpartition("/")[2])[0]


def page_of_crop(path: str) -> str:
    """Return ``a/page`` for ``a/page_crop_3.jpg``, as PPOCRLabel names what it cuts from a page; empty for others."""
    return crop[1] if (crop := _CROP.fullmatch(path)) else ""


def split_named(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the split that a name has as a word, such as ``"val"`` for ``rec_gt_val.txt``, and its other words.

    The split is empty if there is none, or more than one. Words that say nothing, such as ``list``, are left out.
    """
    words = [word.lower().removesuffix("集") for word in _WORD.findall(name)]
    splits = {_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS}
    others = tuple(word for word in words if word not in _SPLIT_WORDS and word not in _PLAIN)
    return splits.pop() if len(splits) == 1 else "", others


def splits_of(names: Iterable[str], are_folders: bool) -> dict[str, str]:
    """Return the split that each of the names side by side stands for; those without such a word are left out.

    A name of other words too, such as ``crash test``, stands for a split if there is one for training with the same
    words, or if the names are all the data and have a split without it; else it stands for none (empty), and so does
    ``train_data``, which may hold all parts, unless another part is named in the same way.
    ``IN_DOUBT``: a split may be meant, since there is data to train on beside it that is named otherwise.
    """
    found = {name: split_named(name) for name in names}
    of_train = {words for split, words in found.values() if split == "train"}
    of_others = {words for split, words in found.values() if split not in ("", "train")}
    plain = {words for split, words in found.values() if not split}
    splits = {}
    for name, (split, words) in found.items():
        if split == "train":
            splits[name] = split if words in of_others or not (words or _TRAIN_DATA.match(name)) else ""
        elif split and words:
            # the word "val" means nothing else, as "dev" and "test" may
            in_doubt = of_train or words in plain or split == "val" and "val" in name.lower()
            splits[name] = split if words in of_train else IN_DOUBT if in_doubt else ""
        elif split:
            splits[name] = IN_DOUBT if are_folders and not of_train and plain - {()} else split
    if not plain and {"train"} < set(splits.values()) - {IN_DOUBT, ""}:
        splits.update({name: found[name][0] for name, split in splits.items() if split == IN_DOUBT})
    return splits


def in_two_splits(one: str, other: str) -> bool:
    """Return whether two names of splits contradict each other; an empty one says nothing."""
    return "" != one != other != ""


@lru_cache(maxsize=1024)  # of few folders, asked for each line
def split_in(path: str) -> str:
    """Return the split that the last part of a path has as a word, else the part before it, and so on."""
    parts = reversed(_TRAIN_DATA.sub("", path).split("/"))
    return next(filter(None, (split_named(part)[0] for part in parts)), "")
