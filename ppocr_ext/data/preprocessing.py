"""Read from a config how the images of ``Train`` or ``Eval`` become input of the network; imports no Paddle."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from ppocr_ext.base.parts import DATASET_ROWS, HALF, SCALE_FACTOR, SCALE_WIDEST, TRANSFORM_ROWS
from ppocr_ext.config import Config, named_items
from ppocr_ext.errors import HostError

Operator = Any  # a callable of one dict; some have attributes that a dataset reads
Factory = Callable[[list[dict[str, Any]], dict[str, Any]], list[Operator]]
# PaddleOCR builds a dataset from config, mode, logger and seed alone, so the factory cannot be an argument.
_factory: Factory | None = None


def set_transform_factory(factory: Factory | None) -> None:
    """Set the function that builds transforms from ``dataset.transforms`` and ``Global``; None removes it."""
    global _factory
    _factory = factory


def create_transforms(
    transforms: Sequence[Mapping[str, Any]], global_config: Mapping[str, Any]
) -> list[Operator]:
    """Return the transforms of a list; PaddleOCR's factory changes its arguments, so it gets copies.

    Raises:
        HostError: no host has been opened.
    """
    if _factory is None:
        raise HostError(
            "Transforms are PaddleOCR's, and no host is open. Fix: call open_host() before datasets are built.",
            code="host_not_open",
        )
    return _factory(copy.deepcopy([dict(t) for t in transforms]), copy.deepcopy(dict(global_config)))


def apply_transforms(data: dict[str, Any], operators: Sequence[Operator]) -> Any:
    """Return ``data`` after all transforms in turn; None as soon as one of them returns None."""
    result: Any = data
    for operator in operators:
        result = None if result is None else operator(result)
    return result


Size = tuple[int, int, int]  # channels, height, width
_Resizing = tuple[tuple[Size, ...], str, tuple[str, ...]]  # sizes, fit and path of a Preprocessing
PAD = "padded"
SQUASH = "squashed"
WIDEN = "widened"
COLORS = ("BGR", "RGB")

_MOST_RATIOS = 200  # highest ratio of width to height; no text line is longer


@dataclass(frozen=True)
class Preprocessing:
    """How the images of one section become input of the network.

    Attributes:
        sizes: [channels, height, width] of the batches. Empty for a transform that writes its sizes in another form.
        all_sizes: whether each batch has one of ``sizes``. False under ``eval_mode`` or ``infer_mode``, where longer
            images make wider batches.
        fit: PAD (keep the aspect ratio, fill up to the width, squeeze longer images), SQUASH (always resize to the
            width), WIDEN (keep the aspect ratio, so that a longer image makes a wider input), or a transform with its
            options.
        color: order of the channels, ``"BGR"`` or ``"RGB"``; None if no DecodeImage sets it.
        normalisation: formulas for the pixels x, in order.
        path: the config path of the sizes.
    """

    sizes: tuple[Size, ...]
    fit: str
    color: str | None
    normalisation: tuple[str, ...]
    path: tuple[str, ...]

    @property
    def all_sizes(self) -> bool:
        """True if each batch has one of ``sizes``; see the class."""
        return bool(self.sizes) and (self.fit != WIDEN or self.path[-1] == "scales")


def read_preprocessing(config: Config, mode: str) -> Preprocessing | None:
    """Return how images of ``mode`` (``"Train"``, ``"Eval"``) are prepared; None if the config does not tell.

    The config does not tell if no known part resizes the images (a dataset or transform of a plugin may do it), or if a
    size is malformed.
    """
    color = None
    normalisation = []
    first = HALF
    resized: _Resizing | None = None
    for name, path in named_items(config, mode, "dataset", "transforms"):
        options = config.at(path, None)
        options = options if isinstance(options, Mapping) else {}
        if name == "DecodeImage":
            color = options.get("img_mode", "RGB")
        elif name == "NormalizeImage":
            normalisation.append(f"NormalizeImage {_shown(options)}")
        elif name.endswith("ResizeImg"):
            # PaddleOCR passes these keys of Global to every transform, where they replace the transform's own options.
            of_global = config.host_options()
            passed = {
                key: of_global[key] for key in ("infer_mode", "eval_mode") if of_global.get(key) is not None
            }
            resized = _by_transform(name, path, {**options, **passed})
            first = TRANSFORM_ROWS[name].normalises if name in TRANSFORM_ROWS else name
    dataset = DATASET_ROWS.get(str(config.at((mode, "dataset", "name"), None)))
    # A dataset of several scales resizes images before the last transform.
    if dataset is not None and dataset.of_one_size:
        resized = _by_sampler(config, mode)
        first = HALF
    if resized is None:
        return None
    sizes, fit, path = resized
    return Preprocessing(sizes, fit, color if color in COLORS else None, (first, *normalisation), path)


def _by_transform(name: str, path: tuple[str, ...], options: Mapping[Any, Any]) -> _Resizing | None:
    if (row := TRANSFORM_ROWS.get(name)) is None:
        return (), f"{name} {_shown(options)}", path
    shape = options.get("image_shape")
    if not are_positive_numbers(shape, 3):
        return None
    fit = SQUASH if row.squashes or options.get("padding", True) is False else PAD
    if name == "RecResizeImg" and (options.get("eval_mode") or options.get("infer_mode")):
        fit = WIDEN
    return ((shape[0], shape[1], shape[2]),), fit, (*path, "image_shape")


def _by_sampler(config: Config, mode: str) -> _Resizing | None:
    path = (mode, "sampler", "scales")
    sizes = tuple((3, height, width) for width, height in sampler_scales(config, mode))
    if not sizes or not all(height and width for _, height, width in sizes):
        return None
    if config.at(f"{mode}.dataset.ds_width", None) is not True:
        return sizes, PAD, path
    # under `ds_width` the width of a batch is a multiple of its height, by the ratio of its images
    max_w = config.at((mode, "sampler", "max_w"), None)
    widest = max_w if is_positive_number(max_w) else SCALE_WIDEST
    ratios = {height: min(max(1, round(widest / height)), _MOST_RATIOS) for _, height, _ in sizes}
    return (
        tuple((3, height, height * n) for height, most in ratios.items() for n in range(1, most + 1)),
        WIDEN,
        path,
    )


def sampler_scales(config: Config, mode: str) -> list[tuple[int, int]]:
    """Return (width, height) of each scale of a MultiScaleSampler, as it rounds them; empty if there are none."""
    scales = config.at((mode, "sampler", "scales"), None)
    across, down = sampler_factor(config, mode)
    if not isinstance(scales, tuple) or not all(are_positive_numbers(scale, 2) for scale in scales):
        return []
    return [(width // across * across, height // down * down) for width, height in scales]


def sampler_factor(config: Config, mode: str) -> tuple[int, ...]:
    """Return the numbers of which a MultiScaleSampler's (widths, heights) are multiples."""
    factor = config.at((mode, "sampler", "divided_factor"), None)
    return factor if are_positive_numbers(factor, 2) else SCALE_FACTOR


def is_positive_number(value: Any) -> TypeGuard[float]:
    """Return True if ``value`` is a finite number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def are_positive_numbers(value: Any, count: int) -> TypeGuard[tuple[int, ...]]:
    """Return True if ``value`` is a list of ``count`` positive whole numbers."""
    return (
        isinstance(value, tuple)
        and len(value) == count
        and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in value)
    )


def _shown(options: Mapping[Any, Any]) -> str:
    plain = options.thaw() if isinstance(options, Config) else dict(options)
    return ", ".join(f"{key}: {value}" for key, value in sorted(plain.items(), key=str)) or "without options"
