"""Test the structure of any head by its behaviour. Each test finds one usual fault without knowing the head's class."""

from __future__ import annotations

import math

import numpy as np
import paddle
from tqdm import tqdm

from ppocr_ext.sanity.head_probe import (
    Finding,
    HeadProbe,
    centered,
    class_count,
    classifier,
    fault,
    keep_weights,
    open_probe,
)
from ppocr_ext.sanity.subject import TrainedHead

FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)  # factors of the config's peak learning rate
_WIDER = (1e-4, 1e-3, 1.0, 1e3, 1e4)  # tried if the loss falls at none of FACTORS
_OWN = 2  # index of the factor 1
STEPS = 8
_FALLS = 0.02  # a loss falls if it loses at least this share of its first value
_OF_BEST = 0.04  # and this share of the largest fall; a rate that is 100 times too low is near this limit
_TOO_HIGH = 2.0  # the rate is too high if the loss falls so many times more at a lower rate
_TO_TRY = (
    0.33  # the lowest rate with this share of the largest fall is proposed: it also suits a long training
)


def learning_rate(head: TrainedHead) -> Finding:
    """Train from the first weights with the config's optimizer at its peak rate and at rates around it.

    Args:
        head: its weights, buffers, gradients, modes and generators are restored.
    """
    with keep_weights(head.model):
        for factors in (FACTORS, _WIDER):
            runs = [_train(head, each) for each in tqdm(factors, "learning rates", disable=None, leave=False)]
            rates = [rate for rate, _ in runs]
            falls = [1.0 - _last(losses) / losses[0] for _, losses in runs]
            if max(falls) >= _FALLS:
                break
    own = rates[_OWN]
    fell = falls[_OWN]
    table = ", ".join(f"{rate:.1e}: {losses[0]:.3g} to {_last(losses):.3g}" for rate, losses in runs)
    seen = f"{STEPS} steps at each of {len(runs)} learning rates: the loss goes, at {table}."
    if max(falls) < _FALLS:
        return Finding("learning_rate", "not tested", f"{seen} It falls at none of them.")
    least = max(_FALLS, _OF_BEST * max(falls))
    inside = [rate for rate, fall in zip(rates, falls, strict=True) if fall >= least]
    span = f"It falls {f'from {inside[0]:.1e} to' if len(inside) > 1 else 'at'} {inside[-1]:.1e}"
    too_high = max(falls[:_OWN]) >= max(_FALLS, _TOO_HIGH * fell)
    if fell >= least and not too_high:
        return Finding("learning_rate", "ok", f"{seen} {span}; the config has {own:.1e}.")
    others = falls[:_OWN] if too_high else falls
    best = next(rate for rate, fall in zip(rates, others, strict=False) if fall >= _TO_TRY * max(others))
    beyond = {rates[0]: " or lower", rates[-1]: " or higher"}.get(best, "")
    return fault(
        "learning_rate",
        f"The learning rate {own:.1e} is too {'high' if too_high else 'low'}.",
        f"{seen} {span}.",
        f"try a peak of {best:.1e}{beyond} (Optimizer.lr.learning_rate).",
    )


def _train(head: TrainedHead, factor: float) -> tuple[float, list[float]]:
    """Return the learning rate, and the loss before each step and after the last one."""
    paddle.seed(0)
    optimizer = head.restart(factor)
    losses: list[float] = []
    for step in range(STEPS + 1):
        loss = head.loss(head.output())
        losses.append(float(loss))
        if step == STEPS or not math.isfinite(losses[-1]):
            break
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
    return float(optimizer.get_lr()), losses


def _last(losses: list[float]) -> float:
    """Return the highest of the last losses, since the loss swings at a rate that is too high."""
    return max(losses[-3:]) if all(map(math.isfinite, losses)) else math.inf


_SAME = 1e-3  # in spreads of the output: rounding is below it, the effect of a position is above
_UNCHANGED = 1e-5  # in spreads of the output, for two outputs of the same computation
_NO_LABEL = "The output does not depend on the label that the head is given"
_NO_RULE = "The classes that the loss wants are not the entries of the label in their order"


def positions(probe: HeadProbe) -> Finding:
    """Give the same character at all places, where outputs differ only if the decoder has positions."""
    if not probe.head.takes_labels or probe.ids is None:
        return Finding("positions", "not tested", f"{_NO_LABEL}.")
    out = centered(probe.logits(np.full_like(probe.ids, probe.ids[0, 1])))
    if out.shape[1] < 2:
        return Finding("positions", "not tested", "The output has one place only.")
    difference = float(np.abs(out - out[:, :1]).max()) / probe.spread
    done = "One character was given at all places of the label"
    if difference < _SAME:
        return fault(
            "positions",
            "The decoder has no positions: it cannot tell its places apart.",
            f"{done}, and the outputs of all places are equal (difference {difference:.1e}).",
            "add a position encoding to the embedded label.",
        )
    return Finding("positions", "ok", f"{done}, and the outputs of the places differ ({difference:.1e}).")


def shift(probe: HeadProbe) -> Finding:
    """Compare the class that the loss wants at each place with the entry that the head gets there."""
    if probe.ids is None or probe.shift is None:
        return Finding("shift", "not tested", f"{_NO_RULE}.")
    asked = f"The loss wants entry i{f'{probe.shift:+d}' if probe.shift else ''} of the label at place i"
    if probe.shift == 1 or not probe.head.takes_labels:
        return Finding("shift", "ok", f"{asked}.")
    if probe.shift > 1:
        return fault(
            "shift",
            "The next character is never learned: the targets are shifted too far.",
            f"{asked}.",
            "compare the outputs with label[:, 1:].",
        )
    if probe.counts is None or len(_alphabet(probe)) < 2:
        return Finding(
            "shift", "not tested", f"{asked}, but its characters are equal, or their number is not known."
        )
    before, own = _dependence(probe, -probe.shift)
    if own > _UNCHANGED >= before:
        return fault(
            "shift",
            "The targets are not shifted: the answer is in the input, so the decoder learns to copy.",
            f"{asked}, and the output there changes with that entry ({own:.1e}).",
            "give label[:, :-1] to the decoder and compare its outputs with label[:, 1:].",
        )
    if own > _UNCHANGED:
        return Finding(
            "shift", "not tested", f"{asked}, but outputs depend on all entries: see the causal mask."
        )
    return Finding("shift", "ok", f"{asked}, and the output there does not depend on it: the head shifts it.")


def causal_mask(probe: HeadProbe) -> Finding:
    """Change a character of the label, which must not change the outputs of the places before it."""
    if not probe.head.takes_labels or probe.ids is None:
        return Finding("causal_mask", "not tested", f"{_NO_LABEL}.")
    if probe.counts is None or probe.base.shape[1] < 2 or len(_alphabet(probe)) < 2:
        return Finding("causal_mask", "not tested", "The labels have one character only, or unknown lengths.")
    before, _ = _dependence(probe, 0)
    if before > _UNCHANGED:
        return fault(
            "causal_mask",
            "The decoder sees the characters that it must predict: a causal mask is missing.",
            f"A character of the label was changed, and outputs of places before it changed ({before:.1e}).",
            "mask the later places in its self-attention (above the diagonal); a recurrent layer must read one way.",
        )
    message = "A character of the label was changed, and all outputs of places before it stayed the same."
    return Finding("causal_mask", "ok", message)


def end(probe: HeadProbe) -> Finding:
    """Check that the loss wants a mark behind the last character, the same for all labels."""
    if probe.shift is None or probe.counts is None or probe.ids is None or probe.wanted is None:
        return Finding("end", "not tested", f"{_NO_RULE}, or their lengths are not known.")
    if probe.shift != 1 and probe.begins_with_mark:
        return Finding("end", "not tested", "See the shift of the targets first.")
    offset = int(probe.begins_with_mark)
    characters = set(_alphabet(probe).tolist())
    marks = [_at(row, n + offset - probe.shift) for row, n in zip(probe.wanted, probe.counts, strict=True)]
    lasts = [int(row[row >= 0][-1]) for row in probe.wanted if (row >= 0).any()]
    good = [mark for mark in marks if mark >= 0 and mark not in characters]
    # The lengths of the labels may include the marks.
    if len(set(lasts)) == 1 and not any((row[row >= 0][:-1] == lasts[0]).any() for row in probe.wanted):
        good = lasts
    if len(good) == len(marks) and len(set(good)) == 1:
        return Finding("end", "ok", f"Behind every label the loss wants the mark {good[0]}.")
    lacking = len(marks) - len(good)
    return fault(
        "end",
        "No end is learned, so reading does not stop behind the last character.",
        f"Behind the last character the loss wants no end mark in {lacking} of {len(marks)} labels."
        if lacking
        else f"The marks behind the last characters differ ({', '.join(map(str, sorted(set(good))[:4]))}).",
        "put an end mark such as </s> behind every label, and do not let the loss ignore it.",
    )


def _alphabet(probe: HeadProbe) -> np.ndarray:
    """Return the ids of all characters in the labels, in order."""
    assert probe.ids is not None and probe.counts is not None
    offset = int(probe.begins_with_mark)
    labels = zip(probe.ids, probe.counts, strict=True)
    return np.unique(np.concatenate([row[offset : offset + count] for row, count in labels]))


def _at(row: np.ndarray, place: int) -> int:
    return int(row[place]) if 0 <= place < len(row) else -1


def _dependence(probe: HeadProbe, offset: int) -> tuple[float, float]:
    """Change characters at three places, one place at a time, and return two largest changes of the output.

    The first is the change at the places before the changed one, the second the change ``offset`` places behind it.
    """
    assert probe.ids is not None and probe.counts is not None
    ids = probe.ids
    ends = probe.counts + int(probe.begins_with_mark)
    last = int(ends.max()) - 1
    alphabet = _alphabet(probe)
    before = own = 0.0
    for place in sorted({min(1, last), (1 + last) // 2, last}):  # place 0 has no place before it
        rows = np.nonzero(ends > place)[0]
        other = ids.copy()
        for row in rows:
            other[row, place] = next((i for i in alphabet if i != ids[row, place]), ids[row, place])
        change = probe.change(probe.logits(other))[rows]
        before = max(before, float(change[:, :place].max(initial=0.0)))
        own = max(own, float(change[:, place + offset : place + offset + 1].max(initial=0.0)))
    return before, own


# The most certain cause first: faults that stop learning, then faults that spoil the reading.
ORDER = (
    "class_count",
    "softmax",
    "activation",
    "shift",
    "causal_mask",
    "end",
    "positions",
    "learning_rate",
)
_VERDICTS = ("fault", "ok", "not tested")


def examine_structure(head: TrainedHead) -> list[Finding]:
    """Test a head with its own batch and loss, from its first weights.

    Its weights, buffers, gradients, modes and the generators are restored. Other sub-models get their first weights.

    Args:
        head: a head with at least two samples.

    Returns:
        One finding for each test: faults first, the most likely cause at the front.
    """
    with open_probe(head) as probe:
        findings, obstacle = _findings(probe)
    if not obstacle:
        findings.append(learning_rate(head))
    tested = {each.code for each in findings}
    findings += [Finding(code, "not tested", f"{obstacle}.") for code in ORDER if code not in tested]
    return sorted(findings, key=lambda each: (_VERDICTS.index(each.verdict), ORDER.index(each.code)))


def _findings(probe: HeadProbe) -> tuple[list[Finding], str]:
    """Run the possible tests; return their findings, and why other tests are not possible (empty if all are)."""
    if len(probe.shape) != 3:
        return [], probe.trouble
    count = class_count(probe)
    if count.verdict == "fault":  # with a wrong number of classes, the head or its loss may fail
        return [count], "See the class count first"
    if probe.trouble:
        return [count], probe.trouble
    tests = (shift, causal_mask, end, positions)
    findings = [count, *(test(probe) for test in tests), *classifier(probe)]
    has_fault = any(each.verdict == "fault" for each in findings)
    return findings, "See the faults first" if has_fault else ""
