"""Checkpoints under PaddleOCR's names: ``NAME.pdparams``, ``NAME.pdopt``, ``NAME.states``.

The three files of a checkpoint appear together. They are written under temporary names, a
journal then lists the renames, and only after that are they renamed; whoever opens a checkpoint
first finishes what a journal left open. Killed at any moment, the last checkpoint loads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import pickle
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.journal import ENDINGS, journal_of, read_journal
from ppocr_ext.checkpoint.serialize import (
    NAME_TABLE,
    read_plain_pickle,
    read_state,
    tensors_to_bytes,
    write_temporary,
)
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import write_text

_LOG = logging.getLogger("ppocr_ext")


@dataclass(frozen=True)
class Progress:
    """Where a run stands, as a checkpoint keeps it.

    Attributes:
        epoch: epochs completed.
        step_in_epoch: steps done in the epoch after those.
        global_step: steps done in all.
        best: the best evaluation so far, ``{}`` before the first.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    global_step: int = 0
    best: Mapping[str, float] | None = None

    def for_host(self) -> dict[str, Any]:
        """The dict that the host's loop takes as ``pre_best_model_dict``."""
        return {**(self.best or {}), "start_epoch": self.epoch + 1, "global_step": self.global_step}


def prefix_of(path: str | Path) -> Path:
    """``path`` without a checkpoint's ending."""
    text = str(path)
    for ending in ENDINGS:
        if text.endswith(ending):
            return Path(text[: -len(ending)])
    return Path(text)


def trained_state(model: Any, frozen: Iterable[str] = ()) -> dict[str, Any]:
    """What a checkpoint holds: the state of ``model`` without the sub-models named in ``frozen``."""
    prefixes = tuple(f"{name}." for name in frozen)
    return {
        name: value
        for name, value in model.state_dict().items()
        if not prefixes or not name.startswith(prefixes)
    }


def write_checkpoint(
    prefix: Path,
    params: Mapping[str, Any],
    optimizer: Any,
    progress: Progress,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write the checkpoint ``prefix``: weights, optimizer state, and progress.

    ``NAME.states`` has PaddleOCR's keys (``epoch``, ``global_step``, ``best_model_dict``) beside ours.
    """
    states = {
        "epoch": progress.epoch,
        "global_step": progress.global_step,
        "step_in_epoch": progress.step_in_epoch,
        "best_model_dict": dict(progress.best or {}),
        **(extra or {}),
    }
    contents = {
        ".pdparams": tensors_to_bytes(dict(params)),
        ".pdopt": tensors_to_bytes(optimizer.state_dict()),
        ".states": pickle.dumps(states, protocol=2),
    }
    temporary = {
        ending: write_temporary(Path(f"{prefix}{ending}"), content) for ending, content in contents.items()
    }
    renames = {path.name: f"{prefix.name}{ending}" for ending, path in temporary.items()}
    _move_folder_away(journal_of(prefix))
    write_text(journal_of(prefix), json.dumps(renames))
    finish_journal(prefix)


def _move_folder_away(path: Path) -> None:
    """Rename a folder that has the name of a journal: a file cannot take its place."""
    if path.is_dir() and not path.is_symlink():
        other = path.rename(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
        _LOG.warning("%s is a folder; it is now called %s.", path, other.name)


def finish_journal(prefix: Path) -> None:
    """Carry out the renames that a killed process had decided on but not finished.

    A journal of another form is ignored if there are weights without it; loading them says so.

    Raises:
        WeightsError: the journal is of another form, and there are no weights.
    """
    try:
        renames = read_journal(prefix)
    except WeightsError:
        if not Path(f"{prefix}.pdparams").is_file():
            raise
        return
    for temporary, final in renames.items():
        with contextlib.suppress(FileNotFoundError):  # another process has just done it
            (prefix.parent / temporary).replace(prefix.parent / final)
    if renames:
        journal_of(prefix).unlink(missing_ok=True)


def read_progress(prefix: Path) -> tuple[Progress, dict[str, Any]]:
    """Progress of the checkpoint ``prefix`` and its other entries; PaddleOCR's own are read too.

    A checkpoint without ``.states`` (weights alone) is a run that has not begun.
    """
    file = Path(f"{prefix}.states")
    if not file.is_file():
        _LOG.warning("%s is not there: the run is counted from its beginning.", file)
        return Progress(), {}
    states = read_plain_pickle(file)
    if not isinstance(states, dict):
        raise WeightsError(f"{file} does not hold the progress of a run.")
    best = {
        k: v for k, v in states.get("best_model_dict", {}).items() if k not in ("start_epoch", "global_step")
    }
    progress = Progress(
        epoch=int(states.get("epoch", 0)),
        step_in_epoch=int(states.get("step_in_epoch", 0)),
        global_step=int(states.get("global_step", 0)),
        best=best,
    )
    return progress, states


def charset_digest(prefix: Path) -> str | None:
    """Digest of the dictionary that the checkpoint ``prefix`` was trained with; None where it does not say."""
    file = Path(f"{prefix}.states")
    states = read_plain_pickle(file) if file.is_file() else {}
    return states.get("charset_digest") if isinstance(states, dict) else None


def count_parameters(layer: Any, trained_only: bool = False) -> int:
    """Numbers that ``layer`` learns; BatchNorm's running statistics, which Paddle counts too, left out."""
    return sum(
        int(np.prod(p.shape))
        for name, p in layer.named_parameters()
        if not name.endswith(("._mean", "._variance")) and not (trained_only and p.stop_gradient)
    )


def state_digest(layer: Any) -> str:
    """SHA-256 over names and bytes of all parameters and buffers of ``layer``."""
    digest = hashlib.sha256()
    for name, tensor in sorted(layer.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def restore_optimizer(
    optimizer: Any, prefix: Path, names: Mapping[str, str], saved: Mapping[str, str] | None
) -> bool:
    """Load ``prefix.pdopt`` into ``optimizer``; False where there is none.

    Paddle keys optimizer state by the parameter's generated name (``linear_3.w_0``), which
    depends on what else the process had built. ``names`` and ``saved`` give, by the name in the
    model, the generated one now and at the time of saving; the keys are translated. A checkpoint
    of PaddleOCR's own does not have ``saved``: Paddle keeps the same table in its ``.pdparams``.

    Raises:
        WeightsError: the state is of another optimizer or of other parameters.
    """
    from ppocr_ext.checkpoint.master_weights import fit_masters  # imports Paddle

    file = Path(f"{prefix}.pdopt")
    if not file.is_file():
        _LOG.warning("%s is not there: the optimizer starts afresh.", file)
        return False
    before = saved or _names_in_parameters(prefix) or names
    state = read_plain_pickle(file)
    state.pop(NAME_TABLE, None)
    translated = _translate(state, {before[n]: names[n] for n in before if n in names})
    translated = fit_masters(translated, _trained_by(optimizer), lambda: _float32(prefix, names))
    try:
        with warnings.catch_warnings():
            # LinearWarmup keeps an entry for the schedule inside it, of which Paddle then complains
            warnings.filterwarnings("ignore", message=".*unused values in state_dict.*")
            optimizer.set_state_dict(_to_tensors(translated))
    except (AssertionError, KeyError, ValueError) as fault:
        raise WeightsError(
            f"{file} does not fit {type(optimizer).__name__} and its parameters ({fault}). A run goes on with the "
            f"optimizer it began with; to start afresh from its weights, give them as Global.pretrained_model."
        ) from fault
    return True


def _names_in_parameters(prefix: Path) -> dict[str, str]:
    """Paddle's table of generated names in ``prefix.pdparams``; empty where there is none."""
    content = read_plain_pickle(Path(f"{prefix}.pdparams"))
    return dict(content.get(NAME_TABLE, {})) if isinstance(content, dict) else {}


def _trained_by(optimizer: Any) -> list[Any]:
    """What ``optimizer`` trains, which may be in groups."""
    groups = (each["params"] if isinstance(each, dict) else [each] for each in optimizer._parameter_list)
    return [parameter for group in groups for parameter in group]


def _float32(prefix: Path, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The weights of ``prefix`` by their generated names now, as far as they are float32."""
    file = Path(f"{prefix}.pdparams")
    weights = read_state(file) if file.is_file() else {}
    return {names[n]: value for n, value in weights.items() if n in names and value.dtype == np.float32}


def _to_tensors(value: Any) -> Any:
    import paddle

    if isinstance(value, np.ndarray):
        return paddle.to_tensor(value)
    if _is_named(value):
        tensor = paddle.to_tensor(value[1])
        tensor.name = value[0]  # by a master weight's name its moments are found
        return tensor
    if isinstance(value, dict) and "last_epoch" not in value:  # the schedule's state stays plain
        return {key: _to_tensors(item) for key, item in value.items()}
    return value


def _is_named(value: Any) -> bool:
    """Whether ``value`` is a tensor of a nested state, such as one with master weights: Paddle keeps its name."""
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray)


def _translate(state: Mapping[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    if all(old == new for old, new in new_names.items()):
        return dict(state)
    longest_first = sorted(new_names, key=len, reverse=True)  # linear_1.w_0 is a prefix of linear_1.w_01…

    def renamed(key: str) -> str:
        owner = next((old for old in longest_first if key.startswith(old + "_")), None)
        return key if owner is None else new_names[owner] + key[len(owner) :]

    translated = {renamed(key): value for key, value in state.items() if key != "master_weights"}
    if "master_weights" in state:
        translated["master_weights"] = {
            new_names.get(owner, owner): (renamed(value[0]), value[1]) if _is_named(value) else value
            for owner, value in state["master_weights"].items()
        }
    return translated


def parameter_names(named: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Generated name by the name in the model, of each parameter that is trained."""
    return {name: p.name for name, p in named if not p.stop_gradient}
