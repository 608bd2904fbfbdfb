"""Describe the content and the accuracy of a checkpoint, check its numbers, extract a sub-model; imports no Paddle."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState, unwrapped
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.checkpoint.weight_match import class_axis
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import atomic_writer, check_writable
from ppocr_ext.messages import metric_text

_FIX = "Fix: give another checkpoint, one from before it went wrong."
EMA = "Ema"  # the hook that keeps the average, in `TrainState.hooks`
BEST = "best_accuracy"
# Of a run with `Eval.general`: the weights before the training, as a checkpoint, and what weights between these and the
# last ones read, which is written when the best of them is chosen.
BEFORE, POINTS = "before_training", "general.json"
EVALUATED = "Evaluations"  # the last evaluation and its step, in `TrainState.hooks`
START = "the start weights: no later ones were better, or none may be kept"
_PARTS = ("transform", "backbone", "neck", "head")  # the parts of a recogniser, in their order
# Kind of class index -> name of its branch, and number of rows of its parameters that belong to no class.
_BRANCHES = {"ctc": ("CTC", 0), "nrtr": ("NRTR", 1), "sar_input": ("SAR", 0)}


def require_usable_values(file: Path, values: Mapping[str, np.ndarray]) -> None:
    """Check the entries of ``file`` that are loaded into a network.

    Args:
        file: for the message.
        values: the entries by name. The name before the first dot is the part (``Student``, ``backbone``).

    Raises:
        WeightsError: an entry does not hold real numbers, is not finite, or is a negative variance, or all matrices of
            a part are zero.
    """
    filled: dict[str, list[bool]] = {}  # for each matrix of a part, whether it has a number other than 0
    for name, value in values.items():
        problem, code = _problem(name, value)
        if problem:
            raise WeightsError(f"{file}: the entry {name!r} {problem}. {_FIX}", code=code)
        if value.ndim > 1:
            filled.setdefault(name.partition(".")[0], []).append(bool(value.any()))
    for part, matrices in filled.items():
        if len(matrices) > 1 and not any(matrices):  # a network may begin with one matrix of zeros
            raise WeightsError(
                f"{file}: all {len(matrices)} matrices of {part!r} are 0, so it computes nothing. {_FIX}",
                code="zero_weights",
            )


def not_finite(values: Mapping[str, Any]) -> list[str]:
    """Return the names of the entries (arrays or tensors) that hold NaN or infinity."""
    return [name for name, value in values.items() if not np.isfinite(from_bfloat16(np.asarray(value))).all()]


def from_bfloat16(value: np.ndarray) -> np.ndarray:
    """Return ``value``, with bfloat16 as float32. Paddle writes bfloat16 as uint16, the upper half of a float32."""
    return (value.astype(np.uint32) << 16).view(np.float32) if value.dtype == np.uint16 else value


def _problem(name: str, value: np.ndarray) -> tuple[str, str]:
    """Return what is wrong with an entry, and the code of the error; both are empty if it is fine."""
    if value.dtype.kind not in "biuf":
        return f"has the type {value.dtype}, not real numbers", "bad_content"
    if value.dtype.kind != "f":
        return "", ""
    if not np.isfinite(value).all():
        wrong = int(value.size - np.isfinite(value).sum())
        return f"has {wrong:,} of {value.size:,} numbers that are NaN or infinite", "nonfinite_weights"
    if name.endswith("._variance") and (value < 0).any():  # BatchNorm takes its root
        return f"is a variance, but has negative numbers (least {value.min():.3g})", "negative_variance"
    return "", ""


def weights_note(state: TrainState) -> str | None:
    """Return which weights a checkpoint has, if its training state has others too."""
    is_averaged = EMA in (state.hooks or {})
    if state.raw_weights:
        kind = "averaged weights (Global.ema)" if is_averaged else "weights on the way back (Eval.general)"
        return f"{kind}; the raw ones are in its training state"
    if is_averaged:
        return "raw weights; the averaged ones (Global.ema) are in its training state"
    return None


def require_usable_averages(checkpoint: Checkpoint, state: TrainState) -> None:
    """Check the weights and the statistics in the training state by :func:`require_usable_values`.

    Raises:
        WeightsError: they are not usable.
    """
    for values in (average_in(state.hooks or {}), state.raw_weights or {}, state.before_group or {}):
        require_usable_values(checkpoint.file(".states"), values)


def average_in(hook_states: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the averaged weights by name; empty without ``Global.ema``."""
    return hook_states.get(EMA, {}).get("average", {})


def other_weights(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Return the other weights of a checkpoint with raw and averaged ones: those that are not in ``NAME.pdparams``.

    Raises:
        WeightsError: it has only one kind, or the numbers of the others are not usable.
    """
    state = checkpoint.train_state()
    require_usable_averages(checkpoint, state)
    others = state.raw_weights or average_in(state.hooks or {})
    if not others:
        raise WeightsError(
            f"{checkpoint.prefix} holds one kind of weights. Fix: train with Global.ema to have averaged ones too.",
            code="no_average",
        )
    return {**checkpoint.weights(), **others}


def is_start(best: Mapping[str, Any]) -> bool:
    """Return True if the best evaluation is the one of the start weights."""
    return best.get("best_epoch") == 0


def own_metrics(name: str, state: TrainState) -> Mapping[str, Any]:
    """Return the evaluation of exactly the weights of a checkpoint; empty if there was none.

    Args:
        name: such as ``latest``.
        state: its training state.
    """
    if name == BEST or state.is_empty:  # extracted weights have no step
        return state.best
    hooks = state.hooks or {}
    last: Mapping[str, Any] = hooks.get(EVALUATED, {})
    # With Global.ema, other weights than these were evaluated.
    return last if last.get("step") == state.position.global_step and EMA not in hooks else {}


def checkpoint_line(path: str | Path, shown_as: str = "") -> str:
    """Return a line such as ``run/best_accuracy: step 1302, acc 88.80 %``.

    Args:
        path: the checkpoint.
        shown_as: shown instead of the path.
    """
    checkpoint = Checkpoint(path)
    shown_as = shown_as or str(checkpoint.prefix)
    try:
        state = checkpoint.train_state()
    except WeightsError as error:  # only a resume needs the state, and reads it again
        return f"{shown_as}: step and accuracy are not known: {str(error).splitlines()[0]}"
    metrics = own_metrics(checkpoint.prefix.name, state)
    facts = [] if state.is_empty else [f"step {state.position.global_step}"]
    facts += [metric_text(name, metrics[name]) for name in _shown(metrics)]
    if not _shown(metrics):
        facts.append("accuracy not known" if facts else "step and accuracy are not known")
        facts += [f"best of its run: {metric_text(name, state.best[name])}" for name in _shown(state.best)]
    elif is_start(state.best) and checkpoint.prefix.name == BEST:
        facts[0] += f" ({START})"
    return f"{shown_as}: {', '.join(facts)}"


def _shown(metrics: Mapping[str, Any]) -> list[str]:
    """Return a list with the name of the accuracy, or of the first number of the metric; empty without numbers."""
    # The state may come from any file, so these may be anything.
    names = [
        str(name)
        for name, value in metrics.items()
        if isinstance(value, Real) and name not in ("step", "fps") and "_epoch" not in str(name)
    ]
    return ["acc"] if "acc" in names else names[:1]


@dataclass(frozen=True)
class Part:
    """A part of a network.

    Attributes:
        name: such as ``Student.backbone`` or ``head.ctc_head``.
        shapes: the shapes of its entries by their names in the file.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def numbers(self) -> int:
        """How many numbers the entries hold, BatchNorm's statistics included."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())


def parts_of(weights: Mapping[str, np.ndarray]) -> list[Part]:
    """Return the parts of the networks in a file, in its order: backbone, neck, each branch of the head."""
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, value in weights.items():
        parts.setdefault(_part(unwrapped(name)), {})[name] = tuple(value.shape)
    return [Part(name, shapes) for name, shapes in parts.items()]


def _part(name: str) -> str:
    words = name.split(".")
    place = next((index for index, word in enumerate(words[:2]) if word in _PARTS), None)
    if place is None:
        return words[0]
    # A MultiHead has one more level: a layer for each branch.
    branches = words[place] == "head" and len(words) > place + 3
    return ".".join(words[: place + 1 + branches])


def branch_classes(weights: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the number of classes of each branch, such as ``{"Student CTC": 11}``, for NRTR without its unused row."""
    counts = {}
    for name, value in weights.items():
        kind, axis = class_axis(name) or ("", 0)
        if kind in _BRANCHES and axis < value.ndim:
            branch, unused = _BRANCHES[kind]
            first = unwrapped(name).split(".", 1)[0]
            counts[branch if first in _PARTS else f"{first} {branch}"] = value.shape[axis] - unused
    return counts


def extract(checkpoint: Checkpoint, sub_model: str, target: Path) -> int:
    """Write the weights of one sub-model under the names of a single model, and read them back.

    ``TARGET.states`` gets the best evaluation and the digest of the dictionary, so that another dictionary is still
    refused.

    Args:
        checkpoint: the checkpoint of a distillation.
        sub_model: the one to extract.
        target: path of the new checkpoint, without an ending.

    Returns:
        Number of the written entries, which are bit for bit those of the checkpoint.

    Raises:
        WeightsError: there is no such sub-model, or the written file differs.
        DataError: the target exists.
    """
    weights = {unwrapped(name): value for name, value in checkpoint.weights().items()}
    prefix = f"{sub_model}."
    entries = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if not entries:
        names = sorted({name.split(".", 1)[0] for name in weights})
        fix = (
            "use it as it is: it holds a single model"
            if set(names) & set(_PARTS)
            else f"choose one of {', '.join(names)} with --model; a checkpoint has a frozen teacher only with "
            "Global.save_teacher"
        )
        raise WeightsError(
            f"{checkpoint.prefix} holds no sub-model {sub_model}. Fix: {fix}.",
            code="unknown_sub_model",
        )
    write_weights(target, entries, checkpoint.train_state())
    return len(entries)


def write_weights(target: Path, weights: Mapping[str, np.ndarray], state: TrainState) -> None:
    """Write ``weights`` as the checkpoint ``target``, which cannot be resumed, and read them back.

    Args:
        target: path of the checkpoint, without an ending.
        weights: the weights by name.
        state: the best evaluation and the digest of the dictionary are taken from it.

    Raises:
        WeightsError: the written file differs.
        DataError: the target exists.
    """
    files = new_files(target)
    summary = TrainState(best=state.best, charset_digest=state.charset_digest)
    for file, content in zip(files, (dict(weights), summary.to_dict()), strict=True):
        with atomic_writer(file) as stream:
            pickle.dump(content, stream, protocol=4)  # as paddle.save does
    copy = read_state(files[0])
    if copy.keys() != weights.keys() or any(
        value.dtype != copy[name].dtype or value.tobytes() != copy[name].tobytes()
        for name, value in weights.items()
    ):
        raise WeightsError(
            f"{files[0]} does not hold what was written. Fix: check the disk.", code="damaged_file"
        )


def new_files(target: Path, endings: Iterable[str] = (".pdparams", ".states")) -> list[Path]:
    """Return the files with these endings, by default those that :func:`write_weights` writes.

    Raises:
        DataError: one of them exists.
    """
    files = [Path(f"{target}{ending}") for ending in endings]
    for file in files:
        check_writable(file)
    return files
