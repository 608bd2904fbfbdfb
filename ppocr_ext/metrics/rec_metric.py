"""Accuracy of recognised lines."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from ppocr_ext.registry import METRICS

# PaddleOCR adds this to the number of lines: 950 of 1000 is 0.9499999905, and of no line 0.
EPSILON = 1e-5
_KEPT = frozenset(string.digits + string.ascii_letters)


@METRICS.register()
class RecMetric:
    """``acc``: lines read entirely right; ``norm_edit_dis``: 1 minus the mean normalised edit distance.

    PaddleOCR's numbers: both divide by the number of lines + 1e-5, so that ``acc`` never quite reaches 1, and
    of no line at all ``acc`` is 0 and ``norm_edit_dis`` 1: look at ``judged``.

    Args:
        main_indicator: which of the two decides what the best model is.
        is_filter: compare digits and ASCII letters only, in lower case.
        ignore_space: compare without spaces.

    Attributes:
        judged: lines that the last :meth:`get_metric` was about.
    """

    def __init__(
        self, main_indicator: str = "acc", is_filter: bool = False, ignore_space: bool = True
    ) -> None:
        self.main_indicator = main_indicator
        self.is_filter = is_filter
        self.ignore_space = ignore_space
        self.judged = 0
        self.reset()

    def __call__(
        self,
        pred_label: tuple[Sequence[Sequence[Any]], Sequence[Sequence[Any]]],
        batch: Any = None,
        **unused: Any,
    ) -> dict[str, float]:
        """Count a batch.

        Args:
            pred_label: (predictions, labels), each a list of (text, confidence).
            batch: what the loader gave; PaddleOCR's loop hands it over, it is not looked at.

        Returns:
            The two numbers for this batch alone.
        """
        lines = right = 0
        distance = 0.0
        for prediction, label in zip(*pred_label, strict=True):
            read, truth = self.normalised(prediction[0]), self.normalised(label[0])
            distance += Levenshtein.normalized_distance(read, truth)
            right += read == truth
            lines += 1
        self._lines += lines
        self._right += right
        self._distance += distance
        return _rates(right, distance, lines)

    def normalised(self, text: str) -> str:
        """The part of ``text`` that is compared."""
        if self.ignore_space:
            text = text.replace(" ", "")
        if self.is_filter:
            text = "".join(character for character in text if character in _KEPT).lower()
        return text

    def get_metric(self) -> dict[str, float]:
        """``{"acc", "norm_edit_dis"}`` of all lines since the last call, and start anew."""
        rates = _rates(self._right, self._distance, self._lines)
        self.judged = self._lines
        self.reset()
        return rates

    def reset(self) -> None:
        """Forget all lines; ``judged`` stays."""
        self._lines = 0
        self._right = 0
        self._distance = 0.0


def _rates(right: int, distance: float, lines: int) -> dict[str, float]:
    return {"acc": right / (lines + EPSILON), "norm_edit_dis": 1 - distance / (lines + EPSILON)}
