"""Put the optimizer state of a checkpoint into an optimizer of another process.

Paddle keys optimizer state by the parameter's generated name (``linear_3.w_0``), which depends on
what else the process had built; the keys are translated. Where weights have 16 bits (mixed precision
at level O2) the optimizer keeps master weights in float32, and keys its moments by the master's name.
Paddle refuses, in the first step, a state with names of the other kind; these are converted.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.base.layer_helper import LayerHelper

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import WeightsError
from ppocr_ext.messages import LOG, shortened

MASTERS = "master_weights"
HALF = (paddle.float16, paddle.bfloat16)
_SUFFIX = "_fp32_master"
_MASTER_SUFFIX = re.compile(rf"{_SUFFIX}_\d+(?=_)")


def restore_optimizer(
    optimizer: Any, checkpoint: Checkpoint, names: Mapping[str, str], saved: Mapping[str, str] | None
) -> None:
    """Load the optimizer state of ``checkpoint`` into ``optimizer``, if it has one.

    Args:
        optimizer: of the run.
        checkpoint: where the state is.
        names: generated name now, by the name in the model.
        saved: generated name at the time of saving, by the name in the model; empty for a checkpoint of
            PaddleOCR, for which Paddle keeps the same table in ``.pdparams``.

    Raises:
        WeightsError: the state is of another optimizer or of other parameters, or parameters are trained that were
            frozen then.
    """
    state = checkpoint.optimizer_state()
    file = checkpoint.file(".pdopt")
    if state is None:
        LOG.warning("%s is missing: the optimizer starts with an empty state.", file)
        return
    before = saved or checkpoint.generated_names() or names
    new = [name for name in names if saved and name not in saved]
    if new:  # they would begin anew in the middle of a run
        raise WeightsError(
            f"{checkpoint.prefix} was trained without {len(new):,} of the tensors that are trained now "
            f"({shortened(new, 2)}), so that its optimizer has no state of them. Fix: freeze them again "
            f"(Global.freeze), or start a new run from its weights: -o Global.pretrained_model={checkpoint.prefix}.",
            code="optimizer_mismatch",
        )
    groups = (each["params"] if isinstance(each, dict) else [each] for each in optimizer._parameter_list)
    trained = [parameter for group in groups for parameter in group]
    half = {parameter.name for parameter in trained if parameter.dtype in HALF}
    own_state = _translate(state, before, names, half, checkpoint)
    _require_own(file, own_state, trained, before.values())
    try:
        with warnings.catch_warnings():
            # LinearWarmup keeps an entry for the schedule inside it, which Paddle then reports as unused
            warnings.filterwarnings("ignore", message=".*unused values in state_dict.*")
            optimizer.set_state_dict(_to_tensors(own_state))
        _create_moments(optimizer, trained)
    except (AssertionError, KeyError, ValueError) as error:
        raise WeightsError(
            f"{file} does not fit {type(optimizer).__name__} and its parameters ({error}). A resumed run keeps its "
            f"optimizer. Fix: to start with a new one, give the weights as Global.pretrained_model.",
            code="optimizer_mismatch",
        ) from error


@paddle.no_grad()
def _create_moments(optimizer: Any, trained: Sequence[Any]) -> None:
    """Create the moments that ``optimizer`` holds for its next step, and hold nothing more.

    While it holds any, Paddle refuses a parameter whose first gradient comes after that state.
    """
    longest_first = sorted((parameter.name for parameter in trained), key=len, reverse=True)
    owners = {_owner(key, longest_first) for key in optimizer._accumulators_holder}
    optimizer.helper = LayerHelper(type(optimizer).__name__)  # Paddle 2.6 has none before a step
    block = paddle.static.default_main_program().global_block()
    optimizer._create_accumulators(block, [parameter for parameter in trained if parameter.name in owners])
    optimizer._accumulators_holder = {}


def _require_own(file: Path, state: Mapping[str, Any], trained: Sequence[Any], known: Iterable[str]) -> None:
    """Refuse the state of another run, before Paddle fails on it.

    Args:
        file: for the message.
        state: by the parameters' names now.
        trained: the parameters.
        known: the parameters' names at the time of saving; those that are trained no longer keep them.

    Raises:
        WeightsError: an entry has another shape than its parameter, or entries are of no parameter and parameters have
            no entry.
    """
    shapes = {parameter.name: tuple(parameter.shape) for parameter in trained}
    ours = sorted(shapes, key=len, reverse=True)
    before = sorted(known, key=len, reverse=True)
    problem = ""
    owners = set()
    foreign = 0
    for key, value in state.items():
        if not isinstance(value, np.ndarray):  # the schedule, the master weights
            continue
        owner = _owner(key, ours)
        owners.add(owner)
        if owner is None:
            foreign += _owner(key, before) is None
        elif value.size > 1 and value.shape != shapes[owner] and not problem:  # one number: a power of beta
            problem = f"{key} has the shape {list(value.shape)}, but its parameter {list(shapes[owner])}"
    lacking = len(shapes.keys() - owners)
    if foreign and lacking and not problem:
        problem = f"{foreign:,} entries are of no parameter, and {lacking:,} parameters have no entry"
    if problem:
        raise WeightsError(
            f"{file} is the optimizer state of another run or network: {problem}.\nFix: put back the file that was "
            f"saved with these weights, or start a new run from them: -o Global.pretrained_model="
            f"{file.with_suffix('')}.",
            code="optimizer_mismatch",
        )


def _to_tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return paddle.to_tensor(value)
    if _is_named(value):
        tensor = paddle.to_tensor(value[1])
        tensor.name = value[0]  # Paddle finds a master weight's moments by its name
        return tensor
    if isinstance(value, dict) and "last_epoch" not in value:  # the schedule's state stays plain
        return {key: _to_tensors(item) for key, item in value.items()}
    return value


def _is_named(value: Any) -> bool:
    """Return True for a ``(name, array)`` pair, Paddle's form of tensors in a nested state."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray)


def _owner(key: str, longest_first: Iterable[str]) -> str | None:
    """Return the parameter that a key of the state belongs to; linear_1.w_0 is a prefix of linear_1.w_01 too."""
    return next((name for name in longest_first if key.startswith(f"{name}_")), None)


def _translate(
    state: Mapping[str, Any],
    before: Mapping[str, str],
    names: Mapping[str, str],
    half: Container[str],
    checkpoint: Checkpoint,
) -> dict[str, Any]:
    """Return ``state`` by the names of now, with master weights for the 16-bit parameters, and for no others.

    Args:
        state: of an optimizer.
        before: generated name at the time of saving, by the name in the model.
        names: generated name now, by the name in the model.
        half: names now of the trained parameters that have 16 bits.
        checkpoint: has the float32 weights of masters that ``state`` lacks.
    """
    new_names = {before[name]: names[name] for name in before if name in names}
    longest_first = sorted(new_names, key=len, reverse=True)
    masters: Mapping[str, Any] = state.get(MASTERS, {})

    def renamed(key: str) -> str:
        owner = _owner(key, longest_first)
        if owner is None:
            return key
        name = new_names[owner]
        rest = key[len(owner) :]
        if (name in half) == (owner in masters):
            return name + rest
        return f"{name}{_SUFFIX}_0{rest}" if name in half else name + _MASTER_SUFFIX.sub("", rest, count=1)

    own = {
        new_names.get(owner, owner): (renamed(value[0]), value[1]) if _is_named(value) else value
        for owner, value in masters.items()
    }
    lacking = {name: own_name for name, own_name in names.items() if own_name in half and own_name not in own}
    if lacking and checkpoint.file(".pdparams").is_file():
        # those of a checkpoint may be averages, with the raw ones beside them
        weights = {**checkpoint.weights(), **(checkpoint.train_state().raw_weights or {})}
        own |= {
            own_name: (f"{own_name}{_SUFFIX}_0", weights[name])
            for name, own_name in lacking.items()
            if name in weights and weights[name].dtype == np.float32
        }
    result = {renamed(key): value for key, value in state.items() if key != MASTERS}
    own = {name: value for name, value in own.items() if name in half}
    return {**result, MASTERS: own} if own else result
