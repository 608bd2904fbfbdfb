"""Say when a training has collapsed: each rule has a range, which the recorded healthy runs never leave.

``healthy_runs.json`` beside this file has the ranges and the recorded runs; ``tools/experiments/healthy_runs.py``
writes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEALTHY_RUNS = Path(__file__).with_name("healthy_runs.json")
IN_A_ROW = 3  # measurements; a single one may be an odd batch
LEARNT = (
    0.5  # accuracy from which a run has learnt to read; of labels of one digit, a tenth is right by chance
)
AT_GUESS = (
    0.95  # of the loss of the best constant guess, above which a run has learnt nothing from its images
)
ALL_BLANK = 0.9995  # share of frames: a batch of short text lines has about so many frames


@dataclass(frozen=True)
class Ranges:
    """The last values that count as healthy.

    Attributes:
        first_loss: loss of the first step over that of chance.
        blank_probability: mean over all frames.
        blank_steps: for so many steps a run that has not learnt yet may read nothing but blanks.
        same_text_steps: likewise, read the same text in all images.
        nrtr_steps: likewise, leave the next two ranges.
        nrtr_end_share: share of text lines whose first NRTR token is ``</s>``.
        nrtr_empty: share of a fixed batch that greedy NRTR decoding reads as empty.
        accuracy_drop: of an evaluation below the best one.
    """

    first_loss: float
    blank_probability: float
    blank_steps: int
    same_text_steps: int
    nrtr_steps: int
    nrtr_end_share: float
    nrtr_empty: float
    accuracy_drop: float


def healthy_ranges() -> Ranges:
    """Return the ranges of the recorded runs."""
    content = json.loads(HEALTHY_RUNS.read_text(encoding="utf-8"))
    return Ranges(**{name: entry["limit"] for name, entry in content["ranges"].items()})


@dataclass(frozen=True)
class Finding:
    """What is wrong with a training.

    Attributes:
        code: a key of :data:`CAUSES`.
        text: what is wrong, with the value found and the range.
        necks: what is wrong with necks that are too narrow: the most probable cause.
    """

    code: str
    text: str
    necks: Sequence[str] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Probable causes with their fixes, the most probable first."""
        return (*self.necks, *CAUSES[self.code])

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
        "Eval prepares images or labels differently from Train: look at samples.json",
        _LABELS,
    ),
}


class Repeated:
    """A state that a healthy run leaves again: found after :data:`IN_A_ROW` measurements.

    Args:
        code: of the finding.
        state: returns what is wrong with the measured values, an empty text if nothing is, None if not measured.
        steps: a run that has not learnt may be in this state for so many steps.
    """

    def __init__(self, code: str, state: Callable[[Mapping[str, float]], str | None], steps: int = 0) -> None:
        self._code, self._state, self._steps = code, state, steps
        self.count = self.since = 0

    def see(self, step: int, values: Mapping[str, float], learnt: bool) -> Finding | None:
        """Check the values of one step."""
        text = self._state(values)
        if text is None:
            return None
        self.count = self.count + 1 if text else 0
        if self.count <= 1:
            self.since = step
        if self.count < IN_A_ROW or not (learnt or step - self.since >= self._steps):
            return None
        return Finding(self._code, f"{text}, since step {self.since}")


class StepRules:
    """All rules for the measurements of one sub-model's training steps.

    Args:
        ranges: what is healthy.
        state: of a resumed run, from :meth:`state`.
    """

    def __init__(self, ranges: Ranges, state: Mapping[str, Any] | None = None) -> None:
        self._ranges = ranges
        self._rules = {
            "certain_blanks": Repeated("certain_blanks", self._certain_blanks),
            "only_blanks": Repeated("only_blanks", self._only_blanks, ranges.blank_steps),
            "same_text": Repeated("same_text", self._same_text, ranges.same_text_steps),
            "nrtr_ends": Repeated("nrtr_ends", self._nrtr_ends, ranges.nrtr_steps),
        }
        for code, (count, since) in (state or {}).items():
            self._rules[code].count, self._rules[code].since = count, since

    def state(self) -> dict[str, list[int]]:
        """Return the measurements in a row and the step of the first, by code; of the states that go on now."""
        return {code: [rule.count, rule.since] for code, rule in self._rules.items() if rule.count}

    def see(self, step: int, values: Mapping[str, float], learnt: bool) -> list[Finding]:
        """Return what is wrong.

        Args:
            step: number of the step, from 1.
            values: measured; without those that could not be.
            learnt: an evaluation has reached :data:`LEARNT`.
        """
        found = [rule.see(step, values, learnt) for rule in self._rules.values()]
        first, most = values.get("first_loss", 0.0), self._ranges.first_loss
        if first > most:
            text = f"the first loss is {first:.3g} times that of chance (healthy: up to {most:.3g})"
            found.append(Finding("first_loss", text))
        return [finding for finding in found if finding is not None]

    def _certain_blanks(self, values: Mapping[str, float]) -> str | None:
        value, most = values.get("blank_probability"), self._ranges.blank_probability
        if value is None:
            return None
        return (
            f"CTC gives the blank {value:.6f} of all probability (healthy: up to {most:.6f})"
            if value > most
            else ""
        )

    def _only_blanks(self, values: Mapping[str, float]) -> str | None:
        if "blank_probability" not in values or "blank_share" not in values:
            return None
        return "CTC reads nothing but blanks" if values["blank_share"] >= ALL_BLANK else ""

    def _same_text(self, values: Mapping[str, float]) -> str | None:
        if "distinct_texts" not in values:
            return None
        same = values["distinct_texts"] == 1 and values["text_length"] > 0
        return "CTC reads the same text in all images of a batch with different labels" if same else ""

    def _nrtr_ends(self, values: Mapping[str, float]) -> str | None:
        value, most = values.get("nrtr_end_share"), self._ranges.nrtr_end_share
        if value is None:
            return None
        share = f"the first NRTR token is </s> in {value:.0%} of the text lines (healthy: up to {most:.0%})"
        return share if value > most else ""


def check_evaluation(
    step: int, values: Mapping[str, float], accuracy: float, best: float, ranges: Ranges
) -> list[Finding]:
    """Return what is wrong with an evaluation.

    Args:
        step: of the evaluation.
        values: ``nrtr_empty``, if it was measured.
        accuracy: of this evaluation.
        best: the best accuracy so far.
        ranges: what is healthy.
    """
    found = []
    checks_nrtr = best >= LEARNT or step > ranges.nrtr_steps
    if checks_nrtr and values.get("nrtr_empty", 0.0) > ranges.nrtr_empty:
        share, most = values["nrtr_empty"], ranges.nrtr_empty
        text = f"NRTR reads {share:.0%} of a fixed batch as empty (healthy: up to {most:.0%})"
        found.append(Finding("nrtr_empty", text))
    if best - accuracy > ranges.accuracy_drop:
        text = f"the accuracy fell from {best:.4f} to {accuracy:.4f} (healthy: by up to {ranges.accuracy_drop:.2f})"
        found.append(Finding("accuracy_fell", text))
    return found


def check_learning(
    loss: float, guess: float, values: Mapping[str, float], ranges: Ranges, necks: Sequence[str] = ()
) -> Finding:
    """Return what a run that reads no text line right has not learnt, by the head that is evaluated.

    Args:
        loss: of the head that is evaluated, against the labels; NaN if it was not measured.
        guess: that of the best constant guess.
        values: ``blank_share`` and ``nrtr_end_share``, as last measured.
        ranges: what is healthy.
        necks: what is wrong with necks that are too narrow.
    """
    found = {
        ("nrtr_ends", "the first NRTR token is </s> in most text lines"): "blank_share" not in values
        and values.get("nrtr_end_share", 0.0) > ranges.nrtr_end_share,
        ("constant_guess", "nothing was learnt from the images"): loss > AT_GUESS * guess,
        ("only_blanks", "CTC reads nothing but blanks"): values.get("blank_share", 0.0) >= ALL_BLANK,
        ("nothing_right", "no text line is right as a whole"): True,
    }
    code, text = next(names for names, holds in found.items() if holds)
    measured = f" (loss {loss:.4g}; best constant guess, without the images: {guess:.4g})"
    return Finding(code, text if math.isnan(loss) else text + measured, necks)
