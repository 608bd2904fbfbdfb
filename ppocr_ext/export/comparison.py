"""Compare two engines on the same input: probabilities first, since equal texts hide a second softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ModelError
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.engines import Engine

TOLERANCE = 1e-3  # of probabilities; Paddle and ONNX Runtime differ by less than 1e-5


@dataclass(frozen=True)
class Comparison:
    """How far an engine is from the one that it must equal.

    Attributes:
        engine: its name.
        images: how many were compared.
        largest: the largest difference of two probabilities; infinite if the shapes differ or a number is NaN.
        texts: (expected, found) of each image whose texts differ.
    """

    engine: str
    images: int
    largest: float
    texts: tuple[tuple[str, str], ...]

    def agrees(self, tolerance: float = TOLERANCE) -> bool:
        """Return True if no probability differs by more than ``tolerance``, and no text."""
        return self.largest <= tolerance and not self.texts

    def __str__(self) -> str:
        """Return ``onnx: 12 images, largest difference of probabilities 2.1e-07, texts equal``."""
        texts = f"{len(self.texts)} texts differ" if self.texts else "texts equal"
        return f"{self.engine}: {self.images} images, largest difference of probabilities {self.largest:.1e}, {texts}"


def compare(expected: Engine, found: Engine, batches: Sequence[np.ndarray], charset: Charset) -> Comparison:
    """Run two engines on the same batches.

    Args:
        expected: the engine that is right.
        found: the one to judge.
        batches: prepared images, float32 [B, 3, H, W]; B and W may differ between batches.
        charset: the dictionary of both.
    """
    largest, texts = 0.0, []
    for batch in batches:
        right, other = expected.probabilities(batch), found.probabilities(batch)
        if right.shape != other.shape:
            largest = math.inf
            continue
        difference = float(np.abs(right - other).max())
        largest = math.inf if math.isnan(difference) else max(largest, difference)
        pairs = [
            (read(one, charset).text, read(two, charset).text) for one, two in zip(right, other, strict=True)
        ]
        texts += [pair for pair in pairs if pair[0] != pair[1]]
    return Comparison(found.name, sum(map(len, batches)), largest, tuple(texts))


def require_equal(comparison: Comparison, what: str) -> None:
    """Refuse a file that computes something else than the network.

    Raises:
        ModelError: the probabilities or the texts differ.
    """
    if comparison.agrees():
        return
    pair = f" It reads {comparison.texts[0][1]!r} for {comparison.texts[0][0]!r}." if comparison.texts else ""
    raise ModelError(
        f"{what} does not compute what the network computes ({comparison}), so nothing is written.{pair} Fix: export "
        f"again; if it stays so, report it with the config: Paddle or the converter cannot express this network.",
        code="export_differs",
    )
