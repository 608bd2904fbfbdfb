"""Say in one line which weights a checkpoint holds: their step, and how well they read; imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.averages import EMA
from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.errors import WeightsError

BEST = "best_accuracy"
EVALUATED = "Evaluations"  # the last evaluation and its step, in `TrainState.hooks`
START = "the start weights: no evaluation of the training was better"


def is_start(best: Mapping[str, Any]) -> bool:
    """Return True if the best evaluation is that of the weights that its run started from."""
    return best.get("best_epoch") == 0


def own_metrics(name: str, state: TrainState) -> Mapping[str, Any]:
    """Return the evaluation of the very weights of a checkpoint; empty if there was none.

    Args:
        name: of the checkpoint, such as ``latest``.
        state: its training state.
    """
    if name == BEST or state.is_empty:  # extracted weights have no step
        return state.best
    kept = state.hooks or {}
    found: Mapping[str, Any] = kept.get(EVALUATED, {})
    # with Global.ema, other weights than these were evaluated
    return found if found.get("step") == state.position.global_step and EMA not in kept else {}


def checkpoint_line(path: str | Path, shown_as: str = "") -> str:
    """Return a line such as ``run/best_accuracy: step 1302, acc 0.8880``.

    Args:
        path: the checkpoint.
        shown_as: in place of its path.
    """
    checkpoint = Checkpoint(path)
    shown_as = shown_as or str(checkpoint.prefix)
    try:
        state = checkpoint.train_state()
    except WeightsError as error:  # who resumes is told so; for all others the weights suffice
        return f"{shown_as}: step and accuracy are not known: {str(error).splitlines()[0]}"
    metrics = own_metrics(checkpoint.prefix.name, state)
    said = [] if state.is_empty else [f"step {state.position.global_step}"]
    said += [f"{name} {metrics[name]:.4f}" for name in _shown(metrics)]
    if not _shown(metrics):
        said.append("accuracy not known" if said else "step and accuracy are not known")
        said += [f"best of its run: {name} {state.best[name]:.4f}" for name in _shown(state.best)]
    elif is_start(state.best) and checkpoint.prefix.name == BEST:
        said[0] += f" ({START})"
    return f"{shown_as}: {', '.join(said)}"


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    """Return the name of the accuracy, or of the first number of a metric without one, in a list; or an empty list."""
    # a file may hold anything
    names = [
        str(name)
        for name, value in metrics.items()
        if isinstance(value, Real) and name not in ("step", "fps") and "_epoch" not in str(name)
    ]
    return ["acc"] if "acc" in names else names[:1]
