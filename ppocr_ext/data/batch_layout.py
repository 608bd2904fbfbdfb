"""Where the entries of a sample stand after ``KeepKeys``; imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# PaddleOCR's order, by which its losses read a batch
SINGLE_HEAD = ("image", "label", "length")
MULTI_HEAD = ("image", "label_ctc", "label_gtc", "length", "valid_ratio")


@dataclass(frozen=True)
class BatchLayout:
    """Positions in a sample, and so in a batch; None where an entry is not kept.

    Attributes:
        image: of the image.
        label: of the CTC label.
        second_label: of the label of NRTR or SAR beside it.
        length: of the length of the CTC label.
        valid_ratio: of the share of the image's width that is not padding.
    """

    image: int | None = None
    label: int | None = None
    second_label: int | None = None
    length: int | None = None
    valid_ratio: int | None = None

    @classmethod
    def of_keys(cls, keys: Sequence[str]) -> BatchLayout:
        """Return the layout of the kept ``keys``, in their order."""

        def place(*names: str) -> int | None:
            return next((keys.index(name) for name in names if name in keys), None)

        return cls(
            image=place("image"),
            label=place("label_ctc", "label"),
            second_label=place("label_gtc", "label_sar"),
            length=place("length"),
            valid_ratio=place("valid_ratio"),
        )


def kept_keys(transforms: Any) -> tuple[str, ...] | None:
    """Return ``keep_keys`` of ``KeepKeys`` among ``transforms``; None where there is none."""
    for entry in transforms or ():
        options = entry.get("KeepKeys") if isinstance(entry, Mapping) else None
        if isinstance(options, Mapping) and options.get("keep_keys"):
            return tuple(str(key) for key in options["keep_keys"])
    return None
