"""Metrics by PaddleOCR's names, for one model or several sub-models.

Only a run ignores spaces, by its ``Metric``: ``predict`` of an exported or a released model, ``confusions`` and the
report's count over a predictions file compare whole texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein

from ppocr_ext.charset import PLAIN
from ppocr_ext.errors import ConfigError
from ppocr_ext.registry import METRICS

SPACES_IGNORED = "spaces ignored (Metric.ignore_space: true)"
# PaddleOCR adds this to the number of samples: 950 of 1000 give 0.9499999905, and no samples give 0.
EPSILON = 1e-5


def build_metric(config: Mapping[str, Any], has_space: bool = False) -> Any:
    """Build the metric that the ``Metric`` section of a config names; ``config`` is not changed.

    Args:
        config: the section.
        has_space: whether the dictionary has the space; a metric that ignores spaces then adds ``acc_with_space``.

    Raises:
        ConfigError: the name is missing, or a name or key is unknown.
    """
    options = dict(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"Metric: `name` is missing. Fix: give one of {', '.join(METRICS.names())}.", code="missing_key"
        )
    return METRICS.build(name, options, has_space=has_space)


def comparison_of(metric: Any) -> Callable[[str, str], bool]:
    """Return the function that says if a text equals a label for ``acc`` of ``metric``; all of both, if it has none."""
    return getattr(metric, "is_right", str.__eq__)


def space_note(metric: Any) -> str:
    """Return a note for the numbers of a ``metric`` that ignores spaces; empty for another metric."""
    return SPACES_IGNORED if getattr(metric, "ignore_space", False) else ""


@METRICS.register()
class RecMetric:
    """Compute ``acc``, the share of correct samples, and ``norm_edit_dis``, 1 minus the mean normalised edit distance.

    Both ignore spaces unless ``ignore_space`` is False: ``"a b"`` read as ``"ab"`` is correct. If the dictionary
    has the space, ``acc_with_space`` is the share of samples that are correct with their spaces.

    The numbers are PaddleOCR's: both divide by the number of samples + 1e-5, so ``acc`` never quite reaches 1.
    Without samples, ``acc`` is 0 and ``norm_edit_dis`` is 1. One rule differs: if ``is_filter`` removes all characters
    of both texts, they are compared without the filter. In PaddleOCR such texts are always equal.

    Args:
        main_indicator: ``acc`` or ``norm_edit_dis``, which decides which checkpoint is the best.
        is_filter: compare digits and ASCII letters only, in lower case.
        ignore_space: compare without spaces.
        has_space: whether the dictionary has the space. A run gives it, not a config.
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
        self._totals = [0.0] * 4  # correct samples, correct with their spaces, distance, samples

    def __call__(
        self,
        pred_label: tuple[Sequence[Sequence[Any]], Sequence[Sequence[Any]]],
        batch: Any = None,
        **unused: Any,
    ) -> dict[str, float]:
        """Add a batch.

        Args:
            pred_label: (predictions, labels), each a list of (text, confidence).
            batch: the loader's, which PaddleOCR's loop passes; not used.

        Returns:
            The numbers of this batch.
        """
        pairs = [(prediction[0], label[0]) for prediction, label in zip(*pred_label, strict=True)]
        compared = [self._compared(*pair) for pair in pairs]
        counts = (
            sum(text == label for text, label in compared),
            sum(text == label for text, label in pairs),
            sum(Levenshtein.normalized_distance(text, label) for text, label in compared),
            len(pairs),
        )
        self._totals = [total + count for total, count in zip(self._totals, counts, strict=True)]
        return self._rates(*counts)

    def normalise(self, text: str) -> str:
        """Return the part of ``text`` that is compared."""
        text = self._without_spaces(text)
        return "".join(PLAIN.findall(text)).lower() if self.is_filter else text

    def is_right(self, text: str, label: str) -> bool:
        """Return True if ``acc`` counts ``text`` as correct."""
        compared, expected = self._compared(text, label)
        return compared == expected

    def _compared(self, text: str, label: str) -> tuple[str, str]:
        """Return the compared parts of both texts. The filter is not used if it would remove all of both."""
        pair = self.normalise(text), self.normalise(label)
        return pair if any(pair) else (self._without_spaces(text), self._without_spaces(label))

    def _without_spaces(self, text: str) -> str:
        return text.replace(" ", "") if self.ignore_space else text

    def get_metric(self) -> dict[str, float]:
        """Return ``{"acc", "norm_edit_dis"}`` of all samples since the last call, and reset.

        ``"acc_with_space"`` is added if the dictionary has the space and the metric ignores it.
        """
        rates = self._rates(*self._totals)
        self.reset()
        return rates

    def reset(self) -> None:
        """Forget all samples."""
        self._totals = [0.0] * 4

    def _rates(
        self, right: float, right_with_space: float, distance: float, samples: float
    ) -> dict[str, float]:
        divisor = samples + EPSILON
        with_space = {"acc_with_space": right_with_space / divisor} if self._counts_spaces else {}
        return {"acc": right / divisor, **with_space, "norm_edit_dis": 1 - distance / divisor}


@METRICS.register()
class DistillationMetric:
    """Compute the metric ``base_metric_name`` for each sub-model that is decoded.

    The numbers of the sub-model ``key`` keep their names (``acc``); the others get the name of their sub-model as a
    prefix (``Teacher_acc``).

    Args:
        key: the sub-model that decides which checkpoint is the best.
        base_metric_name: the metric of one model.
        main_indicator: the number of the base metric that decides which checkpoint is the best.
        has_space: whether the dictionary has the space. A run gives it, not a config.
        options: options of the base metric (``ignore_space``, ``is_filter``, …).

    Raises:
        ConfigError: ``key`` is missing, or the base metric is unknown.
    """

    def __init__(
        self,
        key: str | None = None,
        base_metric_name: str = "RecMetric",
        main_indicator: str = "acc",
        has_space: bool = False,
        **options: Any,
    ) -> None:
        if key is None:
            raise ConfigError(
                "Metric: `key` is missing. Fix: name the sub-model that decides, such as `key: Student`.",
                code="missing_key",
            )
        self.key = key
        self.main_indicator = main_indicator
        self._base = base_metric_name
        self._has_space = has_space
        self._options = {**options, "main_indicator": main_indicator}
        self._metrics: dict[str, Any] = {}
        self._empty = self._build()

    def _build(self) -> Any:
        return METRICS.build(self._base, self._options, has_space=self._has_space)

    @property
    def ignore_space(self) -> bool:
        """Return whether the base metric ignores spaces; False if it has no such attribute."""
        return bool(getattr(self._empty, "ignore_space", False))

    def __call__(self, preds: Mapping[str, Any], batch: Any = None, **extra: Any) -> None:
        """Add a batch: ``{sub-model: (predictions, labels)}``.

        Raises:
            ConfigError: ``preds`` is not a mapping, or the sub-model ``key`` is missing.
        """
        if not isinstance(preds, Mapping):
            raise ConfigError(
                f"DistillationMetric needs predictions by sub-model, but the decoder returns {type(preds).__name__}. "
                f"Fix: use a Distillation… decoder under PostProcess, or {self._base} under Metric.",
                code="wrong_output",
            )
        if self.key not in preds:
            raise ConfigError(
                f"Metric.key is {self.key!r}, but the decoder returns {', '.join(map(str, preds))}. "
                f"Fix: name it in PostProcess.model_name.",
                code="missing_output",
            )
        for name, pred_label in preds.items():
            if name not in self._metrics:
                self._metrics[name] = self._build()
            self._metrics[name](pred_label, batch, **extra)

    def get_metric(self) -> dict[str, float]:
        """Return the numbers of all sub-models since the last call, and reset."""
        numbers: dict[str, float] = {} if self._metrics else self._empty.get_metric()
        for name, metric in self._metrics.items():
            prefix = "" if name == self.key else f"{name}_"
            numbers.update({f"{prefix}{label}": value for label, value in metric.get_metric().items()})
        return numbers

    def is_right(self, text: str, label: str) -> bool:
        """Return True if the base metric counts ``text`` as correct; one without ``is_right`` compares both texts."""
        return comparison_of(self._empty)(text, label)

    def reset(self) -> None:
        """Forget all samples."""
        for metric in self._metrics.values():
            metric.reset()
