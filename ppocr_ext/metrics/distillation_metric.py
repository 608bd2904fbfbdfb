"""A metric for each sub-model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.errors import ConfigError
from ppocr_ext.registry import METRICS


@METRICS.register()
class DistillationMetric:
    """One ``base_metric_name`` for each sub-model that is decoded.

    The numbers of the sub-model ``key`` have their own names (``acc``), those of the others the model's
    before it (``Teacher_acc``).

    Args:
        key: the sub-model that decides what the best model is.
        base_metric_name: the metric of one model.
        main_indicator: which of its numbers decides.
        has_space: the dictionary has the space. Given by a run, not by a config.
        options: the base metric's own (``ignore_space``, ``is_filter``, …).

    Attributes:
        judged: lines of ``key`` that the last :meth:`get_metric` was about.

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
            raise ConfigError("Metric: `key` is missing: the sub-model that decides, such as `key: Student`.")
        self.key = key
        self.main_indicator = main_indicator
        self.judged = 0
        self._base = base_metric_name
        self._has_space = has_space
        self._options = {**options, "main_indicator": main_indicator}
        self._metrics: dict[str, Any] = {}
        self._unseen = self._build()

    def _build(self) -> Any:
        return METRICS.build(self._base, self._options, has_space=self._has_space)

    @property
    def ignore_space(self) -> bool:
        """Return whether the base metric compares without spaces; False where it does not say."""
        return bool(getattr(self._unseen, "ignore_space", False))

    def __call__(self, preds: Mapping[str, Any], batch: Any = None, **extra: Any) -> None:
        """Count a batch: ``{sub-model: (predictions, labels)}``.

        Raises:
            ConfigError: ``preds`` is no mapping, or lacks the sub-model ``key``.
        """
        if not isinstance(preds, Mapping):
            raise ConfigError(
                f"DistillationMetric judges several sub-models, but the decoder gives {type(preds).__name__}. "
                f"Use a Distillation… decoder under PostProcess, or {self._base} under Metric."
            )
        if self.key not in preds:
            raise ConfigError(
                f"Metric.key is {self.key!r}, but the decoder gives {', '.join(map(str, preds))}. "
                f"Name it in PostProcess.model_name."
            )
        for name, pred_label in preds.items():
            if name not in self._metrics:
                self._metrics[name] = self._build()
            self._metrics[name](pred_label, batch, **extra)

    def get_metric(self) -> dict[str, float]:
        """The numbers of all sub-models since the last call, and start anew; of nothing seen, those of no line."""
        numbers: dict[str, float] = {} if self._metrics else self._unseen.get_metric()
        for name, metric in self._metrics.items():
            prefix = "" if name == self.key else f"{name}_"
            numbers.update({f"{prefix}{label}": value for label, value in metric.get_metric().items()})
        self.judged = getattr(self._metrics.get(self.key), "judged", 0)
        return numbers

    def normalised(self, text: str) -> str:
        """The part of ``text`` that is compared; all of it where the base metric does not say."""
        return str(self._unseen.normalised(text)) if hasattr(self._unseen, "normalised") else text

    def reset(self) -> None:
        """Forget all lines."""
        for metric in self._metrics.values():
            metric.reset()
