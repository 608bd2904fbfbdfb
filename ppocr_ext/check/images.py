"""Images of ``Train`` and ``Eval``: that they are decoded before they are worked on, and their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.check.data import source_of
from ppocr_ext.config import named_items
from ppocr_ext.config.values import shown
from ppocr_ext.data.preprocessing import (
    COLORS,
    positive_number,
    positive_numbers,
    sampler_factor,
    sampler_scales,
)

DECODE = "DecodeImage"
_GIVE_BYTES = (
    "SimpleDataSet",
    "MultiScaleDataSet",
    "TextRecDataset",
    "MSTextRecDataset",
    "LMDBDataSet",
)
_CHANNELS_FIRST = "[channels, height, width]"
# Transforms that make images of one size, and how their image_shape is written; others have forms of their own.
_SHAPES = {
    "RecResizeImg": _CHANNELS_FIRST,
    "CTCRecResizeImg": _CHANNELS_FIRST,
    "SVTRRecResizeImg": _CHANNELS_FIRST,
    "VLRecResizeImg": _CHANNELS_FIRST,
    "ABINetRecResizeImg": _CHANNELS_FIRST,
    "RecConAug": "[height, width, channels]",
}
_EXAMPLES = {_CHANNELS_FIRST: "[3, 48, 320]", _SHAPES["RecConAug"]: "[48, 320, 3]"}
_ON_PIXELS = ("ResizeImg", "Aug", "NormalizeImage", "ToCHWImage")  # how names of transforms of images end
_SAMPLER = "MultiScaleSampler"


def check_images(check: ConfigCheck) -> None:
    """Decoding, modes and sizes, in the sections that the role needs."""
    for mode in check.modes:
        _check_decoding(check, mode)
        _check_sizes(check, mode)
        if mode == "Train":
            _check_scales(check)


def _check_decoding(check: ConfigCheck, mode: str) -> None:
    """Whether an image file's bytes are decoded before a transform works on pixels."""
    path = (mode, "dataset", "transforms")
    listed = list(named_items(check.config, *path))
    if not listed or check.at(mode, "dataset", "name") not in _GIVE_BYTES:
        return
    first: tuple[str, Path] | None = None  # that needs a decoded image
    for name, where in listed:
        operator = check.host.component("operator", name)
        if operator is None or _decodes(name, operator):
            if first is not None and operator is not None:
                check.error(
                    first[1],
                    "image_not_decoded",
                    f"it needs a decoded image, but {name} comes after it. Put {name} before it.",
                )
            return
        if first is None and name.endswith(_ON_PIXELS):
            first = (name, where)
    said = "gives image files as they are, and no transform decodes them. Put `- DecodeImage: {img_mode: BGR}` first."
    if first is not None:
        check.error(
            first[1],
            "image_not_decoded",
            f"it needs a decoded image: {check.at(mode, 'dataset', 'name')} {said}",
        )
    else:
        check.error(path, "image_not_decoded", f"{check.at(mode, 'dataset', 'name')} {said}")


def _decodes(name: str, operator: Callable[..., Any]) -> bool:
    """``DecodeImage``, or a transform that may do the same, such as one of somebody else's."""
    foreign = "ppocr" not in getattr(operator, "__module__", "").split(".")
    return name == DECODE or foreign or "imdecode" in source_of(operator) or "ImgDecode" in name


def _check_mode(check: ConfigCheck, path: Path) -> None:
    mode = check.at(*path, "img_mode")
    if mode is not None and mode not in COLORS:
        why = " DecodeImage reads three channels, and fails on them under GRAY." if mode == "GRAY" else ""
        check.error((*path, "img_mode"), "bad_value", f"{shown(mode)} is none of {', '.join(COLORS)}.{why}")


def _check_sizes(check: ConfigCheck, mode: str) -> None:
    """Image shapes and modes of the transforms."""
    for name, where in named_items(check.config, mode, "dataset", "transforms"):
        if name == DECODE:
            _check_mode(check, where)
        form = _SHAPES.get(name)
        path = (*where, "image_shape")
        shape = check.at(*path)
        if form is not None and shape is not None and not positive_numbers(shape, 3):
            check.error(
                path,
                "bad_value",
                f"{shown(shape)} is not {form} of positive whole numbers, such as {_EXAMPLES[form]}.",
            )


def _check_scales(check: ConfigCheck) -> None:
    """Sizes that the sampler hands out."""
    path = ("Train", "sampler", "scales")
    scales = check.at(*path)
    if check.at("Train", "sampler", "name") != _SAMPLER or scales is None:
        return
    if not isinstance(scales, tuple) or not scales or not all(positive_numbers(each, 2) for each in scales):
        check.error(
            path,
            "bad_value",
            f"{shown(scales)} is no list of [width, height] in positive whole numbers, such as "
            f"[[320, 32], [320, 48]].",
        )
        return
    factor, widest = (check.at("Train", "sampler", key) for key in ("divided_factor", "max_w"))
    if factor is not None and not positive_numbers(factor, 2):
        check.error(
            (*path[:-1], "divided_factor"),
            "bad_value",
            f"{shown(factor)} is not [width, height], such as [8, 16].",
        )
    if widest is not None and not positive_number(widest):
        check.error(
            (*path[:-1], "max_w"),
            "bad_value",
            f"{shown(widest)} is no number of pixels above 0, such as 480.",
        )
    for given, rounded in zip(scales, sampler_scales(check.config, "Train"), strict=True):
        if 0 in rounded:
            factor = list(sampler_factor(check.config, "Train"))
            check.error(
                path,
                "bad_value",
                f"{list(given)} is rounded down to nothing: sizes are multiples of divided_factor, {factor}.",
            )
            return
