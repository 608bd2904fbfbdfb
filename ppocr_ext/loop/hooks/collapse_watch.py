"""Watch for a collapse of the training (``Global.on_collapse``), and for one that learns nothing from its images."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.contents import is_start
from ppocr_ext.commands import command_line
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position, StepDone
from ppocr_ext.loop.incidents import layout_of
from ppocr_ext.loop.monitors.constant_guess import HeadLosses, ctc_guess, decoder_guess, head_losses
from ppocr_ext.loop.monitors.measurements import first_loss, measure_model
from ppocr_ext.loop.monitors.nrtr_reading import NrtrReader
from ppocr_ext.loop.monitors.rules import (
    LEARNT,
    Finding,
    StepRules,
    healthy_ranges,
    judge_evaluation,
    judge_learning,
)
from ppocr_ext.loop.proxies import Proxy
from ppocr_ext.loop.step_values import main_head, named_outputs, trained_outputs
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.necks import narrow_necks
from ppocr_ext.run.run import Run

LEAST_EVERY = 10  # steps between two measurements, at least
_BEST = "best accuracy"  # of the training, in the state
SHORTEST = 300  # steps of a run that gets a notice; a shorter one may be at a constant guess at its third
_COMPARED = 10  # batches: the last ones before a third and before the end
_FIXED = 16  # images that NRTR reads at each evaluation


class CollapseWatch(Hook):
    """Measure the outputs in every so many steps and at each evaluation; warn of a collapse, or stop (rank 0).

    At a third of a run a notice says if the loss is still that of a constant guess; a run that finishes with an
    accuracy of 0 gets a verdict.

    Args:
        every: steps between two measurements; at least :data:`LEAST_EVERY`.
        add: writes an entry into ``run.json``.

    Attributes:
        every: steps between two measurements.
    """

    def __init__(self, every: int, add: Callable[[str, Any], None]) -> None:
        self.every = max(every, LEAST_EVERY)
        self._add = add

    def on_start(self, run: Run, position: Position) -> None:
        self._run, self._steps = run, position.global_step
        self._stops = global_value(run.config, "on_collapse") == "stop"
        self._ranges = healthy_ranges()
        self._layout = layout_of(run.config)
        kept: Mapping[str, Any] = run.hook_states.get(type(self).__name__, {})
        self._trained = trained_outputs(run.network, run.loss)
        self._rules = {
            model: StepRules(self._ranges, kept.get(model or ""))
            for model, outputs in self._trained.items()
            if not outputs.isdisjoint(("ctc", "gtc"))
        }
        self._said: set[tuple[str, str | None]] = set()
        self._measured: dict[str | None, dict[str, float]] = {}
        self._nrtr = NrtrReader(run)
        self._images: list[np.ndarray] = []
        best = {} if is_start(run.best) else run.best
        self._best = float(kept.get(_BEST, best.get("acc", best.get(run.metric.main_indicator, 0.0))))
        self._total = position.total_steps
        self._third = self._total // 3 if self._total >= SHORTEST else 0
        self._evaluated = run.metric.key if isinstance(run.network, DistillationModel) else None
        self._head = main_head(self._evaluated, self._trained.get(self._evaluated, ()))
        self._losses: deque[HeadLosses] = deque(maxlen=_COMPARED)
        self._values: dict[str, float] = {}

    def state(self) -> Mapping[str, Any]:
        states = {model or "": rules.state() for model, rules in self._rules.items()} | {_BEST: self._best}
        return {name: state for name, state in states.items() if state}

    def wrap_metric(self, metric: Any) -> Any:
        return _FirstImages(metric, self._images) if self._nrtr.exists else metric

    def measure_outputs(
        self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]
    ) -> Mapping[str, float]:
        self._measured = {}
        step, first = self._steps + 1, self._steps == 0
        is_due = first or step % self.every == 0
        if not is_due and not any(end - _COMPARED < step <= end for end in (self._third, self._total)):
            return {}
        outputs = named_outputs(predictions, self._run.network, self._trained)
        labels, lengths = (
            None if place is None else batch[place] for place in (self._layout.label, self._layout.length)
        )
        needed = (outputs.get(self._head), labels, lengths)
        if self._evaluated in self._rules and not any(each is None for each in needed):
            found = head_losses(*needed, is_ctc=self._head.endswith("ctc"))
            self._losses += [found] if found is not None and np.isfinite(found.losses).all() else []
        for model in self._rules if is_due else ():
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
        self._values |= {
            name.removesuffix(f"_{self._evaluated}"): value for name, value in step.values.items()
        }
        for model, values in self._measured.items() if step.applied else ():
            blanks = step.values.get(f"blank_share_{model}" if model else "blank_share")
            values |= {} if blanks is None else {"blank_share": blanks}
            self._say(self._rules[model].see(self._steps, values, self._best >= LEARNT), self._steps, model)
        self._measured = {}
        found = self._judge_learning() if self._steps == self._third else None
        if found is not None and found.code in ("constant_guess", "nrtr_ends"):
            LOG.warning(
                "step %d of %d: %s: %s. %s", self._steps, self._total, found.code, found.text, found.advice
            )

    def on_end(self, outcome: Outcome) -> None:
        if outcome.status != "finished" or outcome.best.get("acc") != 0:
            return
        found = self._judge_learning()
        command = command_line(
            "sanity", "-c", self._run.folder / "config.yml", host=self._run.options.host_path
        )
        text = f"the best accuracy is 0: {found.code}: {found.text}. {found.advice}\nNext: {command}"
        LOG.warning("%s", text)
        self._add("verdict", {"code": found.code, "text": text, "causes": found.causes, "next": command})

    def _judge_learning(self) -> Finding:
        """Compare the losses that were kept with the best constant guess for their labels."""
        loss = guess = math.nan
        if self._losses:
            found = HeadLosses.of_batches(self._losses)
            loss, guess = (
                found.losses.mean(),
                (ctc_guess if self._head.endswith("ctc") else decoder_guess)(found),
            )
        necks = narrow_necks(self._run.network, self._run.charset.ctc_classes)
        return judge_learning(loss, guess, self._values, self._ranges, necks)

    def measure_eval(self) -> Mapping[str, float]:
        if not self._images:
            return {}
        texts = self._nrtr.read(self._images)
        return {"nrtr_empty": texts.count("") / len(texts)}

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
            LOG.log(logging.ERROR if self._stops else logging.WARNING, "%s. %s", reason, finding.advice)
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
