"""Refuse weights whose numbers cannot be those of a trained network; imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.errors import WeightsError

_FIX = "Fix: give another checkpoint, one from before it went wrong."


def require_usable_values(file: Path, values: Mapping[str, np.ndarray]) -> None:
    """Check the entries of ``file`` that are loaded into a network.

    Args:
        file: for the message.
        values: by name; a part (``Student``, ``backbone``) is what stands before the first dot.

    Raises:
        WeightsError: an entry is not of real numbers, is not finite, or is a negative variance; or all matrices of a
            part are zero.
    """
    filled: dict[str, list[bool]] = {}  # of each part, whether a matrix has a number other than 0
    for name, value in values.items():
        problem, code = _problem(name, value)
        if problem:
            raise WeightsError(f"{file}: the entry {name!r} {problem}. {_FIX}", code=code)
        if value.ndim > 1:
            filled.setdefault(name.partition(".")[0], []).append(bool(value.any()))
    for part, matrices in filled.items():
        if len(matrices) > 1 and not any(matrices):  # a network may begin with one matrix of zeros
            raise WeightsError(
                f"{file}: all {len(matrices)} matrices of {part!r} are 0, so that it computes nothing. {_FIX}",
                code="zero_weights",
            )


def not_finite(values: Mapping[str, Any]) -> list[str]:
    """Return the names of the entries (arrays or tensors) that hold NaN or infinity."""
    return [name for name, value in values.items() if not np.isfinite(np.asarray(value)).all()]


def _problem(name: str, value: np.ndarray) -> tuple[str, str]:
    """Return what is wrong with an entry, and the code of the error; both empty if nothing is."""
    if value.dtype.kind not in "biuf":
        return f"is of type {value.dtype}, not of real numbers", "bad_content"
    if value.dtype.kind != "f":
        return "", ""
    if not np.isfinite(value).all():
        wrong = int(value.size - np.isfinite(value).sum())
        return f"has {wrong:,} of {value.size:,} numbers that are NaN or infinite", "nonfinite_weights"
    if name.endswith("._variance") and (value < 0).any():  # of BatchNorm, which takes its root
        return f"is a variance, but has negative numbers (least {value.min():.3g})", "negative_variance"
    return "", ""
