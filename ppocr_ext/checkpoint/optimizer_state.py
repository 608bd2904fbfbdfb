"""Load the optimizer state of a checkpoint into the optimizer of another process.

Paddle stores optimizer state under generated names of the parameters (``linear_3.w_0``), which depend on all that the
process has built. Here the names are translated. If weights have 16 bits (mixed precision at level O2), the optimizer
has master weights in float32, and its moments are named after these. A state with names of the other kind would fail at
the first step, so they are converted.
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
        optimizer: the optimizer of the run.
        checkpoint: where the state is.
        names: generated name in this process, by the name in the model.
        saved: generated name when it was saved, by the name in the model. It is empty for a checkpoint of PaddleOCR,
            whose ``.pdparams`` has this table.

    Raises:
        WeightsError: the state belongs to another optimizer or to other parameters, or a trained parameter was frozen
            when it was saved.
    """
    state = checkpoint.optimizer_state()
    file = checkpoint.file(".pdopt")
    if state is None:
        LOG.warning("%s is missing: the optimizer starts with an empty state.", file)
        return
    before = saved or checkpoint.generated_names() or names
    new = [name for name in names if saved and name not in saved]
    if new:  # their moments would begin in the middle of a run
        raise WeightsError(
            f"{checkpoint.prefix} was trained without {len(new):,} of the tensors that are trained now "
            f"({shortened(new, 2)}), so its optimizer has no state for them. Fix: freeze them again "
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
            # LinearWarmup stores an entry for the schedule inside it, which Paddle reports as unused.
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
    """Create the moments that Paddle would create from the loaded state at the next step.

    Until that is done, Paddle fails on a parameter that gets its first gradient later.
    """
    longest_first = sorted((parameter.name for parameter in trained), key=len, reverse=True)
    owners = {_owner(key, longest_first) for key in optimizer._accumulators_holder}
    optimizer.helper = LayerHelper(type(optimizer).__name__)  # Paddle 2.6 has none before a step
    block = paddle.static.default_main_program().global_block()
    optimizer._create_accumulators(block, [parameter for parameter in trained if parameter.name in owners])
    optimizer._accumulators_holder = {}


def _require_own(file: Path, state: Mapping[str, Any], trained: Sequence[Any], known: Iterable[str]) -> None:
    """Check that the state belongs to these parameters, since Paddle ignores entries of other names.

    Args:
        file: for the message.
        state: by the parameters' names in this process.
        trained: the parameters.
        known: the names of the parameters when the state was saved, which parameters that are no longer trained keep.

    Raises:
        WeightsError: there are both entries without a parameter and parameters without an entry.
    """
    ours = sorted((parameter.name for parameter in trained), key=len, reverse=True)
    before = sorted(known, key=len, reverse=True)
    entries = [key for key, value in state.items() if isinstance(value, np.ndarray)]
    lacking = len(set(ours) - {_owner(key, ours) for key in entries})
    foreign = sum(_owner(key, ours) is None and _owner(key, before) is None for key in entries)
    if foreign and lacking:
        raise WeightsError(
            f"{file} is the optimizer state of another run or network: {foreign:,} entries have no parameter, and "
            f"{lacking:,} parameters have no entry.\nFix: put back the file that was saved with these weights, or "
            f"start a new run from them: -o Global.pretrained_model={file.with_suffix('')}.",
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
    """Return the parameter that a key belongs to. Long names go first, since linear_1.w_0 begins linear_1.w_01."""
    return next((name for name in longest_first if key.startswith(f"{name}_")), None)


def _translate(
    state: Mapping[str, Any],
    before: Mapping[str, str],
    names: Mapping[str, str],
    half: Container[str],
    checkpoint: Checkpoint,
) -> dict[str, Any]:
    """Return ``state`` by the names in this process, with master weights for exactly the 16-bit parameters.

    Args:
        state: the state of an optimizer.
        before: generated name when it was saved, by the name in the model.
        names: generated name in this process, by the name in the model.
        half: names in this process of the trained 16-bit parameters.
        checkpoint: the checkpoint whose float32 weights become the master weights that ``state`` lacks.
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
        # The weights of a checkpoint may be averages. Then the raw ones are in its training state.
        weights = {**checkpoint.weights(), **(checkpoint.train_state().raw_weights or {})}
        own |= {
            own_name: (f"{own_name}{_SUFFIX}_0", weights[name])
            for name, own_name in lacking.items()
            if name in weights and weights[name].dtype == np.float32
        }
    result = {renamed(key): value for key, value in state.items() if key != MASTERS}
    own = {name: value for name, value in own.items() if name in half}
    return {**result, MASTERS: own} if own else result
