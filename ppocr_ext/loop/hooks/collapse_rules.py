"""Rules that tell when a training has collapsed. Each rule has a range that recorded healthy runs never leave.

``healthy_runs.json`` beside this file has the ranges and the recorded runs; ``tools/experiments/healthy_runs.py``
writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HEALTHY_RUNS = Path(__file__).with_name("healthy_runs.json")
IN_A_ROW = 3  # measurements; a single one may come from an odd batch
LEARNT = 0.5  # accuracy above which a run can read; labels of one digit give 0.1 by chance
AT_GUESS = (
    0.95  # share of the loss of the best constant guess; above it, a run has learnt nothing from its images
)
ALL_BLANK = 0.9995  # share of frames that counts as all: a batch of short text lines has about 2,000 frames
# A run whose last training samples are read, at least FITTED of LEAST_LINES or more, and of the evaluation BELOW less.
FITTED, BELOW, LEAST_LINES = 0.9, 0.3, 40


Ranges = Mapping[str, float]


def healthy_ranges() -> Ranges:
    """Return the limits of healthy values, from the recorded runs.

    Returns:
        ``first_loss``: loss of the first step divided by that of chance. ``blank_probability``: mean over all frames.
        ``blank_steps``, ``same_text_steps``: number of steps in which a run may read only blanks, or the same text in
        all images, before it has learnt. ``nrtr_steps``: the same for the next two limits. ``nrtr_end_share``: share of
        text lines whose first NRTR token is ``</s>``. ``nrtr_empty``: share of a fixed batch in which greedy NRTR
        decoding reads nothing. ``accuracy_drop``: difference of an evaluation to the best one.
    """
    content = json.loads(HEALTHY_RUNS.read_text(encoding="utf-8"))
    return {name: entry["limit"] for name, entry in content["ranges"].items()}


@dataclass(frozen=True)
class Finding:
    """What is wrong with a training.

    Attributes:
        code: a key of :data:`CAUSES`.
        text: what is wrong, with the value and its range.
        seen: what was found before the training: necks that are too narrow, labels in another order.
    """

    code: str
    text: str
    seen: Sequence[str] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Probable causes with their fixes, the most probable first."""
        return (*self.seen, *CAUSES[self.code])

    @property
    def advice(self) -> str:
        """The causes as lines for the log."""
        return "\n  ".join(
            ["Probable causes, in order:", *(f"{n}. {c}" for n, c in enumerate(self.causes, start=1))]
        )


_RATE = "the learning rate is too high or has no warm-up: lower Optimizer.lr.learning_rate, set warmup_epoch"
_CLIP = "one step was too large: set Optimizer.clip_norm_global, and look at grad_norm in metrics.jsonl"
_WEIGHTS = "the weights were damaged, or are of another dictionary: go back to best_accuracy"
_LABELS = "labels do not belong to their images, or images are empty: look at samples.json"
_BATCH_NORM = "BatchNorm has learnt from absurd images: keep Global.absurd_input and absurd_variance"
_LONGER = "too few steps: train longer (Global.epoch_num), with short text lines first"
_DIFFERENT = "Eval prepares images or labels differently from Train: look at samples.json"
_NRTR = "label_gtc is empty or has another encoder than NRTRLabelEncode: look at the transforms of Train"

CAUSES: dict[str, tuple[str, ...]] = {
    "first_loss": (
        "the weights to start from are of another dictionary: see the start of train.log",
        "images are not scaled, or a plugin's layer has too large initial weights",
        "a loss weight is far above 1",
    ),
    "only_blanks": (
        _RATE,
        _CLIP,
        _LABELS,
        "labels are far shorter than the frames: train longer",
    ),
    "certain_blanks": (
        "the bias or the weights of the CTC classifier were damaged: go back to best_accuracy",
        _RATE,
        _CLIP,
    ),
    "same_text": (
        _LABELS,
        _BATCH_NORM,
        _RATE,
        "the backbone does not get a gradient: see the parts in run.json",
    ),
    "nrtr_ends": (_NRTR, "the weight of NRTRLoss is 0 or its rate too high", _RATE),
    "nrtr_empty": (_NRTR, "the weight of NRTRLoss is 0 or its rate too high", _RATE),
    "accuracy_fell": (_BATCH_NORM, _RATE, _CLIP, _WEIGHTS),
    "constant_guess": (
        "the learning rate is too low or too high: try a third and three times of Optimizer.lr.learning_rate",
        _LONGER,
        _LABELS,
    ),
    "nothing_right": (
        _LONGER,
        _DIFFERENT,
        _LABELS,
    ),
    "by_heart": (
        "few samples were learned by heart: label more, draw lines (ppocr-ext make-dataset lines), add RecAug to the "
        "transforms of Train, or begin with weights (ppocr-ext init --base)",
        _DIFFERENT,
        "Eval has images of another kind than Train: compare both in samples.json",
    ),
}


# For each state, the range that limits in how many steps a run that has not learnt yet may be in it.
_STEPS = {"only_blanks": "blank_steps", "same_text": "same_text_steps", "nrtr_ends": "nrtr_steps"}


def _states(values: Mapping[str, float], ranges: Ranges) -> Iterator[tuple[str, bool, str]]:
    """Yield (code, whether it holds, description) of each state that can be judged by the values."""
    if "blank_probability" in values:
        value = values["blank_probability"]
        limit = ranges["blank_probability"]
        text = f"CTC gives the blank {value:.6f} of all probability (healthy: up to {limit:.6f})"
        yield "certain_blanks", value > limit, text
        if "blank_share" in values:
            yield "only_blanks", values["blank_share"] >= ALL_BLANK, "CTC reads nothing but blanks"
    if "distinct_texts" in values:
        is_same = values["distinct_texts"] == 1 and values["text_length"] > 0
        text = "CTC reads the same text in all images of a batch with different labels"
        yield "same_text", is_same, text
    if "nrtr_end_share" in values:
        value = values["nrtr_end_share"]
        limit = ranges["nrtr_end_share"]
        text = f"the first NRTR token is </s> in {value:.0%} of the text lines (healthy: up to {limit:.0%})"
        yield "nrtr_ends", value > limit, text


class StepRules:
    """All rules for the measurements of one sub-model's training steps.

    A healthy run leaves each state again, so a state counts after :data:`IN_A_ROW` measurements.

    Args:
        ranges: result of :func:`healthy_ranges`.
        state: the state of a resumed run, from :meth:`state`.
    """

    def __init__(self, ranges: Ranges, state: Mapping[str, Sequence[int]] | None = None) -> None:
        self._ranges = ranges
        self._lasting = dict(state or {})

    def state(self) -> dict[str, Sequence[int]]:
        """Return (number of measurements in a row, step of the first) of each current state, by code."""
        return self._lasting

    def see(self, step: int, values: Mapping[str, float], learnt: bool) -> list[Finding]:
        """Return what is wrong.

        Args:
            step: number of the step, from 1.
            values: the measurements.
            learnt: True if an evaluation has reached :data:`LEARNT`.
        """
        findings = []
        for code, holds, text in _states(values, self._ranges):
            count, since = self._lasting.pop(code, (0, step))
            if not holds:
                continue
            self._lasting[code] = [count + 1, since]
            is_due = learnt or step - since >= self._ranges.get(_STEPS.get(code, ""), 0)
            if count + 1 >= IN_A_ROW and is_due:
                findings.append(Finding(code, f"{text}, since step {since}"))
        first = values.get("first_loss", 0.0)
        limit = self._ranges["first_loss"]
        if first > limit:
            text = f"the first loss is {first:.3g} times that of chance (healthy: up to {limit:.3g})"
            findings.append(Finding("first_loss", text))
        return findings


def check_evaluation(
    step: int, values: Mapping[str, float], accuracy: float, best: float, ranges: Ranges
) -> list[Finding]:
    """Return what is wrong with an evaluation.

    Args:
        step: the step of the evaluation.
        values: ``nrtr_empty``, if it was measured.
        accuracy: the accuracy in this evaluation.
        best: the best accuracy so far.
        ranges: what is healthy.
    """
    findings = []
    is_due = best >= LEARNT or step > ranges["nrtr_steps"]
    if is_due and values.get("nrtr_empty", 0.0) > ranges["nrtr_empty"]:
        share = values["nrtr_empty"]
        most = ranges["nrtr_empty"]
        text = f"NRTR reads {share:.0%} of a fixed batch as empty (healthy: up to {most:.0%})"
        findings.append(Finding("nrtr_empty", text))
    drop = ranges["accuracy_drop"]
    if best - accuracy > drop:
        text = f"the accuracy fell from {best:.4f} to {accuracy:.4f} (healthy: by up to {drop:.2f})"
        findings.append(Finding("accuracy_fell", text))
    return findings


def check_learning(
    loss: float, guess: float, values: Mapping[str, float], ranges: Ranges, seen: Sequence[str]
) -> Finding:
    """Return what a run that reads no text line correctly has not learnt, by the evaluated head.

    Args:
        loss: the loss of the evaluated head; NaN if it was not measured.
        guess: loss of the best constant guess.
        values: the last ``blank_share`` and ``nrtr_end_share``.
        ranges: result of :func:`healthy_ranges`.
        seen: see :class:`Finding`.
    """
    conditions = {
        ("nrtr_ends", "the first NRTR token is </s> in most text lines"): "blank_share" not in values
        and values.get("nrtr_end_share", 0.0) > ranges["nrtr_end_share"],
        ("constant_guess", "nothing was learnt from the images"): loss > AT_GUESS * guess,
        ("only_blanks", "CTC reads nothing but blanks"): values.get("blank_share", 0.0) >= ALL_BLANK,
        ("nothing_right", "no text line is right as a whole"): True,
    }
    code, text = next(names for names, holds in conditions.items() if holds)
    measured = f" (loss {loss:.4g}; best constant guess, without the images: {guess:.4g})"
    return Finding(code, text if math.isnan(loss) else text + measured, seen)


def check_gap(losses: Sequence[float], accuracy: float) -> Finding | None:
    """Return what is wrong with a run that reads its training samples, and far fewer others; None if it is not one.

    Args:
        losses: CTC losses of the last training samples, -ln p(label): below ln 2, no other text is as probable.
        accuracy: the best one of the evaluations.
    """
    read = sum(loss < math.log(2) for loss in losses) / max(1, len(losses))
    if len(losses) < LEAST_LINES or read < FITTED or read - accuracy < BELOW:
        return None
    return Finding(
        "by_heart", f"{read:.0%} of the last training samples are read, and {accuracy:.0%} of Eval"
    )
