"""Turn an image into input of the network as PaddleOCR's ``RecResizeImg`` does, bit for bit; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import cv2
import numpy as np

from ppocr_ext.base.parts import HALF, TRANSFORMS, kind_of
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.node import dotted
from ppocr_ext.data.preprocessing import (
    COLORS,
    PAD,
    SQUASH,
    WIDEN,
    are_positive_numbers,
    read_preprocessing,
)
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.limits import MAX_INPUT_WIDTH

Kind = Literal["pad", "squash", "widen"]
Color = Literal["BGR", "RGB"]
_KINDS: dict[str, Kind] = {PAD: "pad", SQUASH: "squash", WIDEN: "widen"}
# of each value of a pixel, in the order of PaddleOCR's operations; a table is faster than they are
_NORMALISED = (np.arange(256, dtype=np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
_PIXELS = ("ignore_orientation", "channel_first")  # options of DecodeImage that are not followed


@dataclass(frozen=True)
class WidthPolicy:
    """Say what width an image gets in front of the network, and how its pixels are normalised.

    The height is always that of ``image_shape``. Pixels become (x / 255 - 0.5) / 0.5; what is filled up is 0.

    Attributes:
        kind: ``"pad"``: keep the aspect ratio, fill up on the right to the width of ``image_shape``, squeeze what
            is longer. ``"squash"``: always that width (``padding: false``). ``"widen"``: keep the aspect ratio, a
            longer image makes a wider input (``eval_mode: true``).
        image_shape: (3, height, width).
        color: order of the channels that the network takes.
        max_width: limit of ``"widen"``, beyond which an image is squeezed. PaddleOCR's transform has none (None), so a
            PNG of 662 bytes can ask for gigabytes; :meth:`from_config` sets ``MAX_INPUT_WIDTH``.
    """

    kind: Kind
    image_shape: tuple[int, int, int]
    color: Color = "BGR"
    max_width: int | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            DataError: a value is not one of those above.
        """
        known = self.kind in get_args(Kind) and self.color in COLORS
        sizes = are_positive_numbers(self.image_shape, 3) and self.image_shape[0] == 3
        if not known or not sizes or not are_positive_numbers((self.max_width or 1,), 1):
            raise DataError(
                f"a width policy has a kind of {', '.join(get_args(Kind))}, a color of {', '.join(COLORS)}, the "
                f"image_shape [3, height, width], and as max_width pixels or None (found {vars(self)}).",
                code="bad_value",
            )

    @classmethod
    def from_config(cls, config: Config) -> WidthPolicy:
        """Return the policy of the transforms of ``Eval``.

        Raises:
            ConfigError: they prepare images in a way that this class does not compute.
        """
        resizing = [name for name, _ in _of_pixels(config) if name.endswith("ResizeImg")]
        found = read_preprocessing(config, "Eval")
        for name, path in _of_pixels(config):
            if name not in TRANSFORMS or not TRANSFORMS[name].is_usual:
                raise _unsupported(config, path, f"{name} changes the pixels")
        decoding = config.at(("Eval", "dataset", "transforms", "DecodeImage"), None)
        for key in _PIXELS if isinstance(decoding, Mapping) else ():
            if decoding.get(key):
                path = ("Eval", "dataset", "transforms", "DecodeImage", key)
                raise _unsupported(config, path, "the option is not followed")
        if found is None or len(resizing) != 1 or len(found.sizes) != 1 or found.fit not in _KINDS:
            raise _unsupported(config, ("Eval", "dataset", "transforms"), "no single RecResizeImg is found")
        if found.normalisation != (HALF,) or found.sizes[0][0] != 3 or found.color is None:
            said = f"found {found.color}, {list(found.sizes[0])}, {' then '.join(found.normalisation)}"
            raise _unsupported(config, found.path, said)
        return cls(
            _KINDS[found.fit],
            found.sizes[0],
            "RGB" if found.color == "RGB" else "BGR",
            _most_columns(_KINDS[found.fit]),
        )

    @classmethod
    def from_json(cls, content: Any, where: str) -> WidthPolicy:
        """Return the policy that :meth:`to_json` wrote.

        Args:
            content: what was read from a JSON file.
            where: the file, for messages.

        Raises:
            DataError: it is not what :meth:`to_json` writes.
        """
        try:
            shape = tuple(content["image_shape"])
            return cls(
                content["kind"],
                shape,
                content["color"],
                content.get("max_width", _most_columns(content["kind"])),
            )
        except (DataError, TypeError, KeyError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise DataError(
                f"{where}: width_policy is not that of an exported recogniser ({reason}). Fix: export it again.",
                code="bad_content",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return ``{"kind", "image_shape", "color"}``, and ``"max_width"`` if there is one."""
        limit = {} if self.max_width is None else {"max_width": self.max_width}
        return {"kind": self.kind, "image_shape": list(self.image_shape), "color": self.color, **limit}

    def widths(self, height: int, width: int) -> tuple[int, int]:
        """Return the width of the input for an image of a size, and how many of its columns the image fills.

        Args:
            height: of the image, pixels.
            width: of the image, pixels.
        """
        _, rows, columns = self.image_shape
        if self.kind == "squash":
            return columns, columns
        ratio = width / float(height)
        if self.kind == "widen":
            # in PaddleOCR's order of operations: another one differs by a column
            columns = int(rows * max(columns * 1.0 / rows, ratio))
            if self.max_width is not None and columns > self.max_width:
                return self.max_width, self.max_width
        return columns, min(columns, math.ceil(rows * ratio))

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Return the input of the network for an image: float32 [3, height, width].

        Args:
            image: uint8 [H, W, 3], BGR.
        """
        rows = self.image_shape[1]
        columns, filled = self.widths(*image.shape[:2])
        resized = cv2.resize(image, (filled, rows), interpolation=cv2.INTER_LINEAR)
        if self.color == "RGB":
            resized = cv2.cvtColor(resized, cv2.COLOR_BGR2RGB)
        prepared = np.zeros((3, rows, columns), np.float32)
        prepared[:, :, :filled] = cv2.LUT(resized, _NORMALISED).transpose(2, 0, 1)
        return prepared


def _most_columns(kind: Kind) -> int | None:
    return MAX_INPUT_WIDTH if kind == "widen" else None


def _of_pixels(config: Config) -> list[tuple[str, tuple[str, ...]]]:
    """Return name and path of the transforms of ``Eval`` that change pixels after they are decoded."""
    listed = named_items(config, "Eval", "dataset", "transforms")
    return [(name, path) for name, path in listed if kind_of(name) != "plain"]


def _unsupported(config: Config, path: tuple[str, ...], reason: str) -> ConfigError:
    found = config.at(path, None) is not None
    where = f"{config.where(path)}: {dotted(path)}" if found else dotted(path)
    return ConfigError(
        f"{where}: images of Eval are prepared in a way that only `eval` follows: {reason}. Fix: let Eval decode with "
        f"DecodeImage and resize only with RecResizeImg, if the network was trained so.",
        code="unsupported_preprocessing",
    )
