"""Watch for a collapse of the training: ``Global.on_collapse``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.summary import is_start
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.loop.events import EvalDone, Hook, Position, StepDone
from ppocr_ext.loop.incidents import layout_of
from ppocr_ext.loop.monitors.measurements import first_loss, measure_model
from ppocr_ext.loop.monitors.nrtr_reading import NrtrReader
from ppocr_ext.loop.monitors.rules import LEARNT, Finding, StepRules, healthy_ranges, judge_evaluation
from ppocr_ext.loop.proxies import Proxy
from ppocr_ext.loop.step_values import head_outputs, trained_ctc_models
from ppocr_ext.messages import LOG
from ppocr_ext.run.run import Run

LEAST_EVERY = 10  # steps between two measurements, at least
_BEST = "best accuracy"  # of the training, in the state
_FIXED = 16  # images that NRTR reads at each evaluation


class CollapseWatch(Hook):
    """Measure the outputs in every so many steps and at each evaluation; warn of a collapse, or stop (rank 0).

    Args:
        every: steps between two measurements; at least :data:`LEAST_EVERY`.

    Attributes:
        every: steps between two measurements.
    """

    def __init__(self, every: int) -> None:
        self.every = max(every, LEAST_EVERY)

    def on_start(self, run: Run, position: Position) -> None:
        self._run, self._steps = run, position.global_step
        self._stops = global_value(run.config, "on_collapse") == "stop"
        self._ranges = healthy_ranges()
        self._layout = layout_of(run.config)
        kept: Mapping[str, Any] = run.hook_states.get(type(self).__name__, {})
        self._rules = {
            model: StepRules(self._ranges, kept.get(model or ""))
            for model in trained_ctc_models(run.network, run.loss)
        }
        self._said: set[tuple[str, str | None]] = set()
        self._measured: dict[str | None, dict[str, float]] = {}
        self._nrtr = NrtrReader(run)
        self._images: list[np.ndarray] = []
        best = {} if is_start(run.best) else run.best
        self._best = float(kept.get(_BEST, best.get("acc", best.get(run.metric.main_indicator, 0.0))))

    def state(self) -> Mapping[str, Any]:
        states = {model or "": rules.state() for model, rules in self._rules.items()} | {_BEST: self._best}
        return {name: state for name, state in states.items() if state}

    def wrap_metric(self, metric: Any) -> Any:
        return _FirstImages(metric, self._images) if self._nrtr.exists else metric

    def measure_outputs(
        self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]
    ) -> Mapping[str, float]:
        self._measured = {}
        first = self._steps == 0
        if not first and (self._steps + 1) % self.every:
            return {}
        outputs = dict(head_outputs(predictions, self._run.network))
        labels = None if self._layout.label is None else batch[self._layout.label]
        for model in self._rules:
            self._measured[model] = measure_model(outputs, model, labels)
            if first and model in (None, "Student"):
                self._measured[model] |= first_loss(losses, outputs, self._run.charset)
        return {
            f"{name}_{model}" if model else name: value
            for model, values in self._measured.items()
            for name, value in values.items()
        }

    def on_step(self, step: StepDone) -> None:
        self._steps = step.position.global_step
        for model, values in self._measured.items() if step.applied else ():
            blanks = step.values.get(f"blank_share_{model}" if model else "blank_share")
            values |= {} if blanks is None else {"blank_share": blanks}
            self._say(self._rules[model].see(self._steps, values, self._best >= LEARNT), self._steps, model)
        self._measured = {}

    def measure_eval(self) -> Mapping[str, float]:
        if not self._images:
            return {}
        texts = self._nrtr.read(self._images)
        return {"nrtr_empty": texts.count("") / len(texts), "nrtr_distinct": float(len(set(texts)))}

    def on_eval(self, result: EvalDone) -> None:
        if result.is_start:
            return
        indicator = "acc" if "acc" in result.metrics else self._run.metric.main_indicator
        accuracy, step = float(result.metrics[indicator]), result.position.global_step
        self._best = max(self._best, accuracy)
        self._say(judge_evaluation(step, result.metrics, accuracy, self._best, self._ranges), step, None)

    def _say(self, findings: Sequence[Finding], step: int, model: str | None) -> None:
        for finding in findings:
            if (finding.code, model) in self._said:
                continue
            self._said.add((finding.code, model))
            of = f" of {model}" if model else ""
            reason = f"step {step}: the training{of} has collapsed ({finding.code}): {finding.text}"
            causes = "".join(f"\n  {number}. {cause}" for number, cause in enumerate(finding.causes, start=1))
            LOG.log(
                logging.ERROR if self._stops else logging.WARNING,
                "%s. Probable causes, in order:%s",
                reason,
                causes,
            )
            if self._stops:
                self.loop.request_stop(reason, status="collapsed", save_latest=False)


class _FirstImages(Proxy):
    """The run's metric as the host calls it, which keeps the first images that it sees in ``images``."""

    def __init__(self, metric: Any, images: list[np.ndarray]) -> None:
        super().__init__(metric)
        self._images = images

    def __call__(self, decoded: Any, batch: Any = None, **kwargs: Any) -> Any:
        images = batch[0] if isinstance(batch, Sequence) and len(batch) else None
        if not self._images and isinstance(images, np.ndarray) and images.ndim == 4:
            self._images += [image.copy() for image in images[:_FIXED]]
        return self.real(decoded, batch, **kwargs)
