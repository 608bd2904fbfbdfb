"""What a sample holds after the transforms: which keys they make, and what of them is kept for a batch."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.check.data import source_of
from ppocr_ext.data.preprocessing import RESIZING_DATASETS
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.registry import DATASETS

_FROM_LABEL_FILES = frozenset({"img_path", "label", "image", "ext_data", "filename"})
# Keys of a sample before its transforms; of other datasets they are not known.
_MADE_BY_DATASET = {
    "SimpleDataSet": _FROM_LABEL_FILES,
    "MultiScaleDataSet": _FROM_LABEL_FILES,
    "TextRecDataset": _FROM_LABEL_FILES,
    "MSTextRecDataset": _FROM_LABEL_FILES,
    "CaptchaDataSet": _FROM_LABEL_FILES,
    "TextLineDataSet": _FROM_LABEL_FILES,
    "LMDBDataSet": frozenset({"label", "image", "ext_data"}),
}
KEEP = "KeepKeys"
_MULTI = "MultiLabelEncode"


@dataclass(frozen=True)
class Sample:
    """What the transforms of ``Train`` or ``Eval`` leave.

    Attributes:
        kept: keys in their order in a batch; None where that cannot be told.
        made_by: for each key, the operator that made it (the last one that did).
        gtc: the encoder of the second label, ``"SARLabelEncode"`` where MultiLabelEncode names none.
    """

    kept: tuple[str, ...] | None
    made_by: Mapping[str, str]
    gtc: str | None


def follow(check: ConfigCheck, mode: str) -> Sample | None:
    """Go through the transforms of ``mode``, with an issue for each kept key that none of them makes.

    None where the section has no transforms.
    """
    path = (mode, "dataset", "transforms")
    entries = check.at(*path)
    if not isinstance(entries, tuple) or not entries:
        return None
    named = [next(iter(e.items())) for e in entries if isinstance(e, Mapping) and len(e) == 1]
    walk = _Walk(check, mode, path)
    for index, (name, options) in enumerate(named):
        last = index == len(named) - 1
        walk.step(str(name), options if isinstance(options, Mapping) else {}, last)
    walk.finish()
    return Sample(walk.kept, walk.made_by, walk.gtc)


class _Walk:
    """State of going through a list of transforms."""

    def __init__(self, check: ConfigCheck, mode: str, path: Path) -> None:
        self.check, self.path = check, path
        self.dataset = str(check.at(mode, "dataset", "name"))
        start = _MADE_BY_DATASET.get(self.dataset)
        self.known = start is not None  # whether every key of the sample is known
        self.made_by: dict[str, str] = dict.fromkeys(start or (), self.dataset)
        self.lost: dict[str, str] = {}  # keys that were made, and what left them out
        self.gtc: str | None = None
        self.kept: tuple[str, ...] | None = None

    def step(self, name: str, options: Mapping[Any, Any], last: bool) -> None:
        if last and (self.dataset in RESIZING_DATASETS or self._dataset_resizes()):
            self.made_by["valid_ratio"] = self.dataset
        if name == KEEP:
            self._keep(options, last)
        elif name == _MULTI:
            self._encode_both(options)
        else:
            operator = self.check.host.component("operator", name)
            made = None if operator is None else keys_made(operator)
            if made is None:
                self.known = False
            self.made_by.update(dict.fromkeys(made or (), name))

    def _dataset_resizes(self) -> bool:
        """Whether a dataset of somebody else's speaks of the key that resizing makes."""
        if self.dataset in _MADE_BY_DATASET:
            return False
        try:
            return "valid_ratio" in source_of(DATASETS.get(self.dataset))
        except PPOCRExtError:  # said of its name
            return True

    def _encode_both(self, options: Mapping[Any, Any]) -> None:
        """MultiLabelEncode gives a new sample, with nothing of the old one but the image."""
        self.gtc = str(options.get("gtc_encode") or "SARLabelEncode")
        second = "label_gtc" if options.get("gtc_encode") is not None else "label_sar"
        made = ("label_ctc", second, "length")
        kept = {key: maker for key, maker in self.made_by.items() if key in ("img_path", "image")}
        self.lost.update({key: _MULTI for key in self.made_by if key not in kept})
        self.made_by = {**kept, **dict.fromkeys(made, _MULTI)}
        self.known = True

    def _keep(self, options: Mapping[Any, Any], last: bool) -> None:
        path = (*self.path, KEEP)
        keys = options.get("keep_keys")
        if not isinstance(keys, tuple) or not keys:
            return  # that keep_keys must be given is said of its options
        self.kept = tuple(str(key) for key in keys)
        if not last:
            self.check.error(
                path,
                "transform_order",
                "KeepKeys makes a list of the sample, so nothing can come after it. Put it last.",
            )
        if self.kept[0] != "image":
            self.check.error(
                (*path, "keep_keys"), "keep_keys_order", f"the image must come first, not {self.kept[0]!r}."
            )
        for key in self.kept:
            if self.known and key not in self.made_by:
                self.check.error((*path, "keep_keys"), "unknown_sample_key", self._not_made(key))

    def _not_made(self, key: str) -> str:
        if key in self.lost:
            return (
                f"{key!r} is made before {self.lost[key]}, which leaves it out. Put the transform that makes it "
                f"behind {self.lost[key]}."
            )
        there = ", ".join(sorted(self.made_by))
        remedy = " RecResizeImg makes it." if key == "valid_ratio" else ""
        return f"no transform makes {key!r}; there are {there}.{remedy}"

    def finish(self) -> None:
        collate = self.check.at(self.path[0], "loader", "collate_fn")
        if self.kept is None and self.known and collate is None:
            self.check.error(
                self.path,
                "missing_transform",
                "there is no KeepKeys with keep_keys at the end, so batches would not be lists.",
            )


@cache
def keys_made(operator: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keys that an operator puts into a sample, read from its source; None where that cannot be told."""
    source = textwrap.dedent(source_of(operator))
    if not source:
        return None
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    made = set()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        for target in targets:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                made.add(str(target.slice.value))
        if isinstance(node, ast.Call) and _updates(node):
            return None
    return frozenset(made)


def _updates(call: ast.Call) -> bool:
    """``data.update(…)``: what it puts in cannot be told."""
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "update"
        and isinstance(function.value, ast.Name)
        and function.value.id in ("data", "results", "sample")
    )
