"""Watch for a collapse of the training (``Global.on_collapse``), and for one that learns nothing from its images.

A training that learns nothing from its images stays at the loss of the best constant guess: the same distribution for
every image. It has only learnt the lengths of labels and the frequencies of characters. The losses of this comparison
have no weight, no smoothing and no gradient.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.contents import is_start
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, StepDone
from ppocr_ext.loop.hooks.collapse_rules import (
    LEARNT,
    Finding,
    StepRules,
    check_evaluation,
    check_gap,
    check_learning,
    healthy_ranges,
)
from ppocr_ext.loop.hooks.report_hook import NrtrReader
from ppocr_ext.loop.incidents import layout_of
from ppocr_ext.loop.step import MetricProxy
from ppocr_ext.loop.step_values import ctc_logits, main_head, named_outputs, trained_outputs
from ppocr_ext.losses import CTCLoss, TaughtLoss
from ppocr_ext.losses.base_loss import PAD
from ppocr_ext.losses.label_losses import frames_needed
from ppocr_ext.messages import LOG, command_line
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.heads.nrtr_head import END_ID
from ppocr_ext.modeling.necks import narrow_necks
from ppocr_ext.report.run_folder import short_loss_name
from ppocr_ext.run.run import Run, Training

LEAST_EVERY = 10  # smallest number of steps between two measurements
_BEST = "best accuracy"  # key of the state
SHORTEST = 300  # steps of the shortest run with a notice; shorter ones may be at a constant guess at a third
_COMPARED = 10  # number of batches before a third and before the end
_FIXED = 16  # images that NRTR reads at each evaluation
FEW_LABELS = 4  # different labels that a batch needs to judge equal predictions
_ROWS = 12  # text lines of a batch that are compared; for ten batches this takes less than a second


class CollapseWatch(Hook):
    """Measure the outputs regularly and at each evaluation; warn of a collapse, or stop (a hook of process 0).

    At a third of the run, a warning tells if the loss is still that of a constant guess. If the run ends with an
    accuracy of 0, or one far below that on its training samples, ``run.json`` gets a verdict.

    Args:
        every: steps between two measurements; raised to :data:`LEAST_EVERY`.
        add: writes an entry into ``run.json``.

    Attributes:
        every: steps between two measurements.
    """

    def __init__(self, every: int, add: Callable[[str, Any], None]) -> None:
        self.every = max(every, LEAST_EVERY)
        self._add = add

    def on_start(self, run: Run, training: Training) -> None:
        self._run = run
        self._loss = training.loss
        self._steps = training.start.global_step
        self._stops = run.context.config.settings.on_collapse == "stop"
        self._ranges = healthy_ranges()
        self._layout = layout_of(run.context.config)
        state: Mapping[str, Any] = training.hook_states.get(type(self).__name__, {})
        self._trained = trained_outputs(run.network, training.loss)
        self._rules = {
            model: StepRules(self._ranges, state.get(model or ""))
            for model, outputs in self._trained.items()
            if not outputs.isdisjoint(("ctc", "gtc"))
        }
        self._said: set[tuple[str, str | None]] = set()
        self._measured: dict[str | None, dict[str, float]] = {}
        self._nrtr = NrtrReader(run, training)
        self._images: list[np.ndarray] = []
        best = {} if is_start(training.best) else training.best
        self._best = float(state.get(_BEST, best.get("acc", best.get(run.metric.main_indicator, 0.0))))
        self._total = training.start.total_steps
        self._third = self._total // 3 if self._total >= SHORTEST else 0
        self._evaluated = run.metric.key if isinstance(run.network, DistillationModel) else None
        self._head = main_head(self._evaluated, self._trained.get(self._evaluated, ()))
        self._losses: deque[HeadLosses] = deque(maxlen=_COMPARED)
        self._values: dict[str, float] = {}

    def state(self) -> Mapping[str, Any]:
        states = {model or "": rules.state() for model, rules in self._rules.items()} | {_BEST: self._best}
        return {name: state for name, state in states.items() if state}

    def wrap_metric(self, metric: Any) -> Any:
        return MetricProxy(metric, self._keep_images) if self._nrtr.exists else metric

    def _keep_images(self, decoded: Any, images: np.ndarray) -> None:
        if not self._images:
            self._images = [image.copy() for image in images[:_FIXED]]

    def measure_outputs(
        self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]
    ) -> Mapping[str, float]:
        self._measured = {}
        step = self._steps + 1
        first = self._steps == 0
        is_due = first or step % self.every == 0
        if not is_due and not any(end - _COMPARED < step <= end for end in (self._third, self._total)):
            return {}
        if isinstance(self._loss, TaughtLoss):  # the other samples have no labels
            predictions, batch = self._loss.labelled(predictions, batch)
        outputs = named_outputs(predictions, self._run.network, self._trained)
        labels, lengths = (
            None if place is None else batch[place] for place in (self._layout.label, self._layout.length)
        )
        needed = (outputs.get(self._head), labels, lengths)
        if self._evaluated in self._rules and not any(each is None for each in needed):
            compared = head_losses(*needed, is_ctc=self._head.endswith("ctc"))
            self._losses += [compared] if compared is not None and np.isfinite(compared.losses).all() else []
        for model in self._rules if is_due else ():
            self._measured[model] = measure_model(outputs, model, labels)
            if first and model in (None, "Student"):
                self._measured[model] |= first_loss(losses, outputs, self._run.context.charset)
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
        finding = self._check_learning() if self._steps == self._third else None
        if finding is not None and finding.code in ("constant_guess", "nrtr_ends"):
            where = f"step {self._steps} of {self._total}"
            LOG.warning("%s", f"{where}: {finding.code}: {finding.text}. {finding.advice}")

    def on_end(self, outcome: Outcome) -> None:
        best = outcome.best.get("acc")
        if outcome.status != "finished" or best is None:
            return
        is_ctc = self._head.endswith("ctc")
        losses = [float(loss) for batch in self._losses if is_ctc for loss in batch.losses]
        finding = check_gap(losses, best) or (self._check_learning() if best == 0 else None)
        if finding is None:
            return
        context = self._run.context
        command = command_line("sanity", "-c", context.folder / "config.yml", host=context.options.host_path)
        text = f"the best accuracy is {best:.4g}: {finding.code}: {finding.text}. {finding.advice}\nNext: {command}"
        LOG.warning("%s", text)
        self._add("verdict", {"code": finding.code, "text": text, "causes": finding.causes, "next": command})

    def _check_learning(self) -> Finding:
        """Compare the losses that were kept with the best constant guess for their labels."""
        loss = guess = math.nan
        if self._losses:
            batches = HeadLosses.of_batches(self._losses)
            loss = batches.losses.mean()
            guess = (ctc_guess if self._head.endswith("ctc") else decoder_guess)(batches)
        found = (issue for report in self._run.data.preflight.values() for issue in report.warnings)
        seen = [str(issue.message) for issue in found if issue.code == "label_order"]
        seen += narrow_necks(self._run.network, self._run.context.charset.ctc_classes)
        return check_learning(loss, guess, self._values, self._ranges, seen)

    def measure_eval(self) -> Mapping[str, float]:
        if not self._images:
            return {}
        texts = self._nrtr.read(self._images)
        return {"nrtr_empty": texts.count("") / len(texts)}

    def on_eval(self, result: EvalDone) -> None:
        if result.is_start:
            return
        indicator = "acc" if "acc" in result.metrics else self._run.metric.main_indicator
        accuracy = float(result.metrics[indicator])
        step = result.position.global_step
        self._best = max(self._best, accuracy)
        self._say(check_evaluation(step, result.metrics, accuracy, self._best, self._ranges), step, None)

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


@paddle.no_grad()
def measure_model(outputs: Mapping[str, Any], model: str | None, labels: Any) -> dict[str, float]:
    """Return the measurements of one sub-model in one training step.

    Args:
        outputs: the outputs of the heads, with the names of :func:`ppocr_ext.loop.step_values.head_outputs`.
        model: name of the sub-model; None for a model without sub-models.
        labels: CTC labels [B, L]; None if unknown.

    Returns:
        ``blank_probability``: mean over the frames. ``text_length``: mean length of CTC's texts. ``distinct_texts``:
        number of different texts (only for a batch with :data:`FEW_LABELS` different labels). ``nrtr_end_share``: share
        of the text lines whose first NRTR token is ``</s>``. Heads without output have no measurements.
    """
    parts: dict[str, Any] = {}
    logits = ctc_logits(outputs, model)
    if logits is not None and logits.ndim == 3:
        logits = logits.astype("float32")
        parts["classes"] = logits.argmax(axis=-1)
        parts["blank"] = (logits[:, :, 0] - logits.logsumexp(axis=-1)).exp().mean()
    tokens = outputs.get(f"{model}.gtc" if model else "gtc")
    if tokens is not None and tokens.ndim == 3 and tokens.shape[1] > 0:
        parts["end"] = (tokens[:, 0].argmax(axis=-1) == END_ID).astype("float32").mean()
    if not parts:
        return {}
    # One copy from the device, instead of one for each value.
    host = paddle.concat([part.astype("float32").flatten() for part in parts.values()]).numpy()
    values: dict[str, float] = {}
    if "end" in parts:
        values["nrtr_end_share"] = float(host[-1])
    if "classes" in parts:
        count = math.prod(parts["classes"].shape)
        values["blank_probability"] = float(host[count])
        texts = _texts(host[:count].reshape(parts["classes"].shape))
        values["text_length"] = float(np.mean([len(text) for text in texts]))
        if labels is not None and len({row.tobytes() for row in np.asarray(labels)}) >= FEW_LABELS:
            values["distinct_texts"] = float(len(set(texts)))
    return values


def _texts(classes: np.ndarray) -> list[tuple[float, ...]]:
    """Return CTC's text of each row of ``classes`` [B, T], as class ids."""
    is_read = classes != 0
    is_read[:, 1:] &= classes[:, 1:] != classes[:, :-1]
    return [tuple(row[keep].tolist()) for row, keep in zip(classes, is_read, strict=True)]


def first_loss(losses: Mapping[str, Any], outputs: Mapping[str, Any], charset: Charset) -> dict[str, float]:
    """Return ``first_loss``, the loss of the first step divided by that of chance; the greater one of CTC and NRTR.

    By chance, all classes are equally probable: the loss is ln(classes) for each frame of CTC, and for each character
    of NRTR. In a distillation, this is for the Student. Losses have their weights in the total.
    """
    named_ctc = [output for name, output in outputs.items() if name.split(".")[-1] in ("ctc", "")]
    frames = [output.shape[1] for output in named_ctc if output.ndim == 3]
    chance = {"nrtr": math.log(charset.nrtr_classes)}
    if frames:
        chance["ctc"] = max(frames) * math.log(charset.ctc_classes)
    by_name = {short_loss_name(name): float(np.mean(np.asarray(value))) for name, value in losses.items()}
    if set(by_name) == {"loss"} and ("ctc" in chance) != ("gtc" in outputs):  # a single head
        by_name["ctc" if "ctc" in chance else "nrtr"] = by_name["loss"]
    ratios = [by_name[name] / chance[name] for name in chance if name in by_name]
    return {"first_loss": max(ratios)} if ratios else {}


class HeadLosses(NamedTuple):
    """The losses of a head for n text lines.

    Attributes:
        losses: the loss of each text line (CTC), or of each character and ``</s>`` (NRTR).
        label: class ids of these lines, [n, L], padded.
        lengths: number of characters of each line, [n].
        frames: T of each line, [n].
        counts: frequency of each class in the labels of whole batches, [C].
    """

    losses: np.ndarray
    label: np.ndarray
    lengths: np.ndarray
    frames: np.ndarray
    counts: np.ndarray

    @classmethod
    def of_batches(cls, batches: Sequence[HeadLosses]) -> HeadLosses:
        """Return the losses of all text lines of the batches."""
        *lines, counts = zip(*batches, strict=True)
        return cls._make([*map(np.concatenate, lines), np.sum(counts, axis=0)])


@paddle.no_grad()
def head_losses(logits: Any, label: Any, lengths: Any, is_ctc: bool) -> HeadLosses | None:
    """Return the losses of a head; None if none of these labels can be learnt.

    Args:
        logits: [B, T, C].
        label: class ids [B, L]; those of NRTR have ``<s>`` and ``</s>``.
        lengths: characters of each label.
        is_ctc: True for a CTC head, False for a decoder.
    """
    counts = np.bincount(label.numpy().ravel(), minlength=logits.shape[-1])
    counts[: 1 if is_ctc else END_ID + 1] = 0
    lengths = lengths.reshape([-1]).astype("int64")
    # A decoder whose output is as long as its label does not predict the next character.
    is_next = paddle.full([len(label)], logits.shape[1] < label.shape[1])
    rows = (
        (frames_needed(label, lengths) <= logits.shape[1] if is_ctc else is_next).nonzero().flatten()[:_ROWS]
    )
    if not rows.size:
        return None
    label = label[rows]
    lengths = lengths[rows]
    logits = logits[rows].astype("float32")
    if is_ctc:
        losses = CTCLoss().line_losses(logits, [None, label, lengths])
    else:
        targets = label[:, 1 : 1 + logits.shape[1]]
        losses = F.cross_entropy(logits, targets, reduction="none").reshape(targets.shape)[targets != PAD]
    frames = np.full(len(rows), logits.shape[1])
    return HeadLosses(losses.numpy(), label.numpy(), lengths.numpy(), frames, counts)


def ctc_guess(lines: HeadLosses) -> float:
    """Return the lowest mean CTC loss of the lines with the same probabilities in all frames of all images.

    The best probability of the blank is searched; the characters share the rest in proportion to their counts.
    """

    @cache
    def mean(odds: float) -> float:
        """Return the loss for the log-odds of the blank."""
        probabilities = lines.counts / lines.counts.sum() / (1 + np.exp(odds))
        probabilities[0] = 1 / (1 + np.exp(-odds))
        return float(constant_losses(lines, probabilities).mean())

    best = 1.0
    for width in (4.0, 2.0, 1.0, 0.5, 0.25, 0.12, 0.06):
        best = min((best - width, best, best + width), key=mean)
    return mean(best)


def constant_losses(found: HeadLosses, probabilities: np.ndarray) -> np.ndarray:
    """Return the CTC loss of each line, [n], if every frame has the ``probabilities`` [C], with the blank first.

    To be fast with thousands of classes, only the characters of a line are used: they are numbered, with the same
    number for equal neighbours. The kernel's softmax divides each frame by the sum of their probabilities, which is
    undone.
    """
    label = found.label
    numbers = 1 + np.cumsum(np.diff(label, axis=1, prepend=label[:, :1]) != 0, axis=1)
    lines = np.full((len(label), label.shape[1] + 1), probabilities[0])
    np.put_along_axis(lines, numbers, probabilities[label], axis=1)
    scores = np.broadcast_to(np.log(lines).astype("float32"), (found.frames.max(), *lines.shape))
    arrays = (scores, numbers.astype("int32"), found.frames, found.lengths)
    losses = F.ctc_loss(*[paddle.to_tensor(each, place="cpu") for each in arrays], reduction="none")
    return losses.numpy() - found.frames * np.log(lines.sum(axis=1))


def decoder_guess(lines: HeadLosses) -> float:
    """Return the lowest mean cross entropy of a decoder that only knows the position of a character.

    At each position, the probability of ``</s>`` is the share of the labels that end there. The characters share the
    rest in proportion to their counts in all positions, since single positions have too few labels.
    """
    targets = lines.label[:, 1:]
    reached = (targets != PAD).sum(axis=0)
    ends = (targets == END_ID).sum(axis=0)
    of_ends = (_weighted(reached) - _weighted(ends) - _weighted(reached - ends)).sum()
    entropy = np.log(lines.counts.sum()) - _weighted(lines.counts).sum() / lines.counts.sum()
    return float((of_ends + (reached - ends).sum() * entropy) / reached.sum())


def _weighted(counts: np.ndarray) -> np.ndarray:
    """Return ``n · ln n``, 0 for 0."""
    return counts * np.log(np.maximum(counts, 1))
