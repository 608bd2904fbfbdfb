"""Checkpoints under PaddleOCR's names: ``NAME.pdparams``, ``NAME.pdopt``, ``NAME.states``.

The three files of a checkpoint appear together. They are written under temporary names, a
journal then lists the renames, and only after that are they renamed; whoever opens a checkpoint
first finishes what a journal left open. Killed at any moment, the last checkpoint loads.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.data.atomic import write_text
from ppocr_ext.errors import WeightsError
from ppocr_ext.training.serialize import (
    read_plain_pickle,
    tensors_to_bytes,
    write_temporary,
)

_LOG = logging.getLogger("ppocr_ext")
_ENDINGS = (".pdparams", ".pdopt", ".states")
_JOURNAL = ".journal"


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
    for ending in _ENDINGS:
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
    write_text(Path(f"{prefix}{_JOURNAL}"), json.dumps(renames))
    finish_journal(prefix)


def finish_journal(prefix: Path) -> None:
    """Carry out the renames that a killed process had decided on but not finished."""
    journal = Path(f"{prefix}{_JOURNAL}")
    if not journal.is_file():
        return
    for temporary, final in json.loads(journal.read_text(encoding="utf-8")).items():
        written = journal.parent / temporary
        if written.exists():
            written.replace(journal.parent / final)
    journal.unlink(missing_ok=True)


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


def restore_optimizer(
    optimizer: Any, prefix: Path, names: Mapping[str, str], saved: Mapping[str, str]
) -> bool:
    """Load ``prefix.pdopt`` into ``optimizer``; False where there is none.

    Paddle keys optimizer state by the parameter's generated name (``linear_3.w_0``), which
    depends on what else the process had built. ``saved`` and ``names`` give, by the name in the
    model, the generated one at the time of saving and now; the keys are translated.
    """
    file = Path(f"{prefix}.pdopt")
    if not file.is_file():
        _LOG.warning("%s is not there: the optimizer starts afresh.", file)
        return False
    state = read_plain_pickle(file)
    state.pop("StructuredToParameterName@@", None)
    translated = _translate(state, {saved[n]: names[n] for n in saved if n in names})
    import paddle

    optimizer.set_state_dict(
        {k: paddle.to_tensor(v) if hasattr(v, "dtype") else v for k, v in translated.items()}
    )
    return True


def _translate(state: Mapping[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    if all(old == new for old, new in new_names.items()):
        return dict(state)
    longest_first = sorted(new_names, key=len, reverse=True)  # linear_1.w_0 is a prefix of linear_1.w_01…
    translated: dict[str, Any] = {}
    for key, value in state.items():
        if key == "master_weights":
            translated[key] = {new_names.get(k, k): v for k, v in value.items()}
            continue
        owner = next((old for old in longest_first if key.startswith(old + "_")), None)
        translated[key if owner is None else new_names[owner] + key[len(owner) :]] = value
    return translated


def parameter_names(named: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Generated name by the name in the model, of each parameter that is trained."""
    return {name: p.name for name, p in named if not p.stop_gradient}
