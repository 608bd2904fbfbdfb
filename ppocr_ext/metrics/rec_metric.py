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
    """``acc``: share of the lines read right; ``norm_edit_dis``: 1 minus the mean normalised edit distance.

    Both ignore spaces unless ``ignore_space`` is False: ``"a b"`` read as ``"ab"`` is right. Where the dictionary
    has the space, ``acc_with_space`` is the share of the lines read right, spaces and all.

    PaddleOCR's numbers: both divide by the number of lines + 1e-5, so that ``acc`` never quite reaches 1, and
    of no line at all ``acc`` is 0 and ``norm_edit_dis`` 1: look at ``judged``.

    Args:
        main_indicator: ``acc`` or ``norm_edit_dis``: which decides what the best model is.
        is_filter: compare digits and ASCII letters only, in lower case.
        ignore_space: compare without spaces.
        has_space: the dictionary has the space. Given by a run, not by a config.

    Attributes:
        judged: lines that the last :meth:`get_metric` was about.
    """

    def __init__(
        self,
        main_indicator: str = "acc",
        is_filter: bool = False,
        ignore_space: bool = True,
        has_space: bool = False,
    ) -> None:
        self.main_indicator = main_indicator
        self.is_filter = is_filter
        self.ignore_space = ignore_space
        self._counts_spaces = has_space and ignore_space and not is_filter
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
            The numbers for this batch alone.
        """
        lines = right = right_with_space = 0
        distance = 0.0
        for prediction, label in zip(*pred_label, strict=True):
            read, truth = self.normalised(prediction[0]), self.normalised(label[0])
            distance += Levenshtein.normalized_distance(read, truth)
            right += read == truth
            right_with_space += prediction[0] == label[0]
            lines += 1
        self._lines += lines
        self._right += right
        self._right_with_space += right_with_space
        self._distance += distance
        return self._rates(right, right_with_space, distance, lines)

    def normalised(self, text: str) -> str:
        """The part of ``text`` that is compared."""
        if self.ignore_space:
            text = text.replace(" ", "")
        if self.is_filter:
            text = "".join(character for character in text if character in _KEPT).lower()
        return text

    def get_metric(self) -> dict[str, float]:
        """Return ``{"acc", "norm_edit_dis"}`` of all lines since the last call, and start anew.

        Where the dictionary has the space and it is ignored, ``"acc_with_space"`` is among them.
        """
        rates = self._rates(self._right, self._right_with_space, self._distance, self._lines)
        self.judged = self._lines
        self.reset()
        return rates

    def reset(self) -> None:
        """Forget all lines; ``judged`` stays."""
        self._lines = 0
        self._right = 0
        self._right_with_space = 0
        self._distance = 0.0

    def _rates(self, right: int, right_with_space: int, distance: float, lines: int) -> dict[str, float]:
        divisor = lines + EPSILON
        with_space = {"acc_with_space": right_with_space / divisor} if self._counts_spaces else {}
        return {"acc": right / divisor, **with_space, "norm_edit_dis": 1 - distance / divisor}
