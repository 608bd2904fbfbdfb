"""Train a head shortly at several learning rates: is the config's own inside the range where the loss falls?"""

from __future__ import annotations

import math
from typing import Any

import paddle
from tqdm import tqdm

from ppocr_ext.sanity.head_probe import Finding, fault, weights_kept

FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)  # of the config's peak learning rate
_WIDER = (1e-4, 1e-3, 1.0, 1e3, 1e4)  # if the loss falls at none of these
_OWN = 2  # where the factor is 1
STEPS = 8
_FALLS = 0.02  # share of its first value by which a loss falls at least
_OF_BEST = 0.04  # and share of the largest fall; a rate that is 100 times too low is near it
_TOO_HIGH = 2.0  # times the own fall: a lower rate that falls so much more, though it moves less
_TO_TRY = 0.33  # of the largest fall: the lowest such rate also bears a long training


def learning_rate(head: Any) -> Finding:
    """Train from the first weights with the config's optimizer at its peak rate and at rates around it.

    Args:
        head: a ``TrainedHead``; its weights, buffers, gradients, modes and generators stay.
    """
    with weights_kept(head.model):
        for factors in (FACTORS, _WIDER):
            runs = [_train(head, each) for each in tqdm(factors, "learning rates", disable=None, leave=False)]
            rates, falls = [rate for rate, _ in runs], [1.0 - _last(losses) / losses[0] for _, losses in runs]
            if max(falls) >= _FALLS:
                break
    own, fell = rates[_OWN], falls[_OWN]
    table = ", ".join(f"{rate:.1e}: {losses[0]:.3g} to {_last(losses):.3g}" for rate, losses in runs)
    seen = f"{STEPS} steps at each of {len(runs)} learning rates: the loss goes, at {table}."
    if max(falls) < _FALLS:
        return Finding("learning_rate", "not tested", f"{seen} It falls at none of them.")
    least = max(_FALLS, _OF_BEST * max(falls))
    inside = [rate for rate, fall in zip(rates, falls, strict=True) if fall >= least]
    span = (
        f"It falls from {inside[0]:.1e} to {inside[-1]:.1e}"
        if len(inside) > 1
        else f"It falls at {inside[0]:.1e}"
    )
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


def _train(head: Any, factor: float) -> tuple[float, list[float]]:
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
    """Return the highest of the last losses: a rate that is too high swings."""
    return max(losses[-3:]) if all(map(math.isfinite, losses)) else math.inf
