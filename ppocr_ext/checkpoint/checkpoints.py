"""Checkpoints under PaddleOCR's names: ``NAME.pdparams``, ``NAME.pdopt``, ``NAME.states``; imports no Paddle.

The three files of a checkpoint appear together, even if the process is killed. They are written under temporary names,
a journal lists the renames, and then the files are renamed. Opening a checkpoint finishes the renames of a killed save.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.files import (
    ENDINGS,
    NAME_TABLE,
    apply_journal,
    finish_journal,
    is_train_state,
    read_plain_pickle,
    read_state,
    tensors_to_bytes,
    write_all_temporary,
    write_journal,
)
from ppocr_ext.checkpoint.official_weights import other_format, similar_name
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.errors import WeightsError
from ppocr_ext.io.resources import file_digest
from ppocr_ext.messages import did_you_mean, path_hint, shortened

SHOWN = 8  # names in a message before "and N more"
WRAPPERS = ("module.", "_layers.")  # prefixes that data-parallel wrappers add to every name


@dataclass(frozen=True)
class Position:
    """Position of a run, and its length. A checkpoint stores the position only.

    Attributes:
        epoch: completed epochs.
        step_in_epoch: steps (batches) done in the current epoch.
        global_step: all steps done.
        epochs: epochs of the whole run; 0 if unknown.
        steps_per_epoch: batches of one epoch in this process; 0 if unknown.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    global_step: int = 0
    epochs: int = 0
    steps_per_epoch: int = 0

    @property
    def current_epoch(self) -> int:
        """The epoch in progress, counted from 1."""
        return min(self.epoch + 1, self.epochs)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    def next_step(self) -> Position:
        """Return the position after one more step."""
        return replace(self, step_in_epoch=self.step_in_epoch + 1, global_step=self.global_step + 1)

    def next_epoch(self) -> Position:
        """Return the position at the beginning of the next epoch."""
        return replace(self, epoch=self.epoch + 1, step_in_epoch=0)

    def completed(self) -> Position:
        """Return the same position with a full epoch counted as completed."""
        return self.next_epoch() if self.step_in_epoch >= self.steps_per_epoch else self


@dataclass(frozen=True)
class TrainState:
    """Content of ``NAME.states``: what a resumed run needs besides weights and optimizer state.

    Attributes:
        position: epochs and steps done.
        best: the best evaluation so far; empty before the first.
        parameter_names: the name that Paddle generated, by the name in the model.
        frozen: digest of each frozen sub-model.
        total_steps: steps of the whole run; None in PaddleOCR's checkpoints.
        optimizer: ``Optimizer.name``; None in PaddleOCR's checkpoints.
        scaler: state of the AMP scaler.
        loss: state of the loss, such as centers.
        charset_digest: digest of the dictionary; None in PaddleOCR's checkpoints.
        hooks: state of the hooks by their names; None if no hook has one.
        raw_weights: in a checkpoint with averaged weights, the weights that a resumed run continues with, by name.
        before_group: in a checkpoint inside a group of ``Global.accumulate``, BatchNorm's statistics and other buffers
            before it, with which a resumed run continues, by name.
        sample_seeds: ``data.sample_seeds.SCHEME``; None in PaddleOCR's checkpoints.
        views: seed and count of the views of a teacher cache; None without one.
        accumulate: ``Global.accumulate``; None for 1.
        engines: the engine of each compiled frozen sub-model; None if none is compiled.
        unreached: trained parameters that had no gradient yet; None in PaddleOCR's and older checkpoints.
        processes: the number of processes of the run; None in PaddleOCR's and older checkpoints.
        settings: labels, losses and indicator (:func:`ppocr_ext.run.host_config.settings_of`); empty in older
            checkpoints.
        files: SHA-256 of the other two files by their endings; None in PaddleOCR's checkpoints.
    """

    position: Position = field(default_factory=Position)
    best: Mapping[str, float] = field(default_factory=dict)
    parameter_names: Mapping[str, str] = field(default_factory=dict)
    frozen: Mapping[str, str] = field(default_factory=dict)
    total_steps: int | None = None
    optimizer: str | None = None
    scaler: dict[str, Any] = field(default_factory=dict)
    loss: Mapping[str, Any] = field(default_factory=dict)
    charset_digest: str | None = None
    hooks: Mapping[str, Any] | None = None
    raw_weights: Mapping[str, Any] | None = None
    before_group: Mapping[str, Any] | None = None
    sample_seeds: int | None = None
    views: Mapping[str, int] | None = None
    accumulate: int | None = None
    engines: Mapping[str, str] | None = None
    unreached: Sequence[str] | None = None
    processes: int | None = None
    settings: Sequence[str] = ()
    files: Mapping[str, str] | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        """True for extracted weights, which belong to no run."""
        return self.position.global_step == self.position.epoch == 0 and not self.parameter_names

    def to_dict(self) -> dict[str, Any]:
        """Return the dict to write: PaddleOCR's keys (``epoch``, ``global_step``, ``best_model_dict``) and ours."""
        ours = {item.name: getattr(self, item.name) for item in fields(self)[2:]}
        return {
            "epoch": self.position.epoch,
            "global_step": self.position.global_step,
            "step_in_epoch": self.position.step_in_epoch,
            "best_model_dict": dict(self.best),
            **{key: value for key, value in ours.items() if value is not None},
        }

    @classmethod
    def from_dict(cls, states: Mapping[str, Any]) -> TrainState:
        """Return the state that a checkpoint of ours or of PaddleOCR stores."""
        best = states.get("best_model_dict", {})
        best = {key: value for key, value in best.items() if key not in ("start_epoch", "global_step")}
        counts = {key: int(states.get(key, 0)) for key in ("epoch", "step_in_epoch", "global_step")}
        ours = {item.name: states[item.name] for item in fields(cls)[2:] if item.name in states}
        return cls(Position(**counts), best, **ours)


def checkpoint_prefix(path: str | Path) -> Path:
    """Return the path of a checkpoint without one of the three endings; no file is read or renamed."""
    text = str(path)
    ending = next((ending for ending in ENDINGS if text.endswith(ending)), "")
    return Path(text.removesuffix(ending))


class Checkpoint:
    """The files of one checkpoint. Opening it finishes the renames of a killed save.

    Args:
        path: the checkpoint, with or without one of the three endings.

    Attributes:
        prefix: path without an ending.

    Raises:
        WeightsError: the journal is not valid, and there are no weights.
    """

    def __init__(self, path: str | Path) -> None:
        self.prefix = checkpoint_prefix(path)
        apply_journal(self.prefix)

    def file(self, ending: str) -> Path:
        """Return the file with ``ending``, such as ``".pdparams"``."""
        return Path(f"{self.prefix}{ending}")

    def weights_file(self) -> Path:
        """Return ``NAME.pdparams``; for a name or a released model the file in the cache, which is made if needed.

        Raises:
            WeightsError: the file is missing; the message names the checkpoints in its folder.
        """
        source = find_source(str(self.prefix))
        if source is not None:
            return source.fetch()
        if not self.file(".pdparams").is_file():
            raise WeightsError(why_missing(self.prefix), code="missing_file")
        return self.file(".pdparams")

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights by name.

        Raises:
            WeightsError: the file is missing or damaged, or holds something else.
        """
        return read_state(self.weights_file())

    def models(self) -> set[str]:
        """Return the first part of each weight's name: the sub-models, in a checkpoint of a distillation."""
        return {unwrapped(name).split(".", 1)[0] for name in self.weights()}

    def optimizer_state(self) -> dict[str, Any] | None:
        """Return the state of the optimizer by Paddle's generated names; None without ``NAME.pdopt``.

        Raises:
            WeightsError: the file is damaged, or belongs to another save than ``NAME.states``.
        """
        file = self.file(".pdopt")
        if not file.is_file():
            return None
        self._require_same_save(".pdopt", self._states())
        state: dict[str, Any] = read_plain_pickle(file)
        state.pop(NAME_TABLE, None)
        return state

    def generated_names(self) -> dict[str, str]:
        """Return Paddle's own table of generated names in ``NAME.pdparams``; empty if it has none."""
        content = read_plain_pickle(self.file(".pdparams"))
        return dict(content.get(NAME_TABLE, {})) if isinstance(content, dict) else {}

    def train_state(self) -> TrainState:
        """Return the content of ``NAME.states``, or without that file the state of a run that has not begun.

        Raises:
            WeightsError: the file is damaged or holds something else, or the weights belong to another save.
        """
        file = self.file(".states")
        states = self._states()
        for key in ("epoch", "step_in_epoch", "global_step"):
            count = states.get(key, 0)
            if not isinstance(count, Integral) or count < 0:
                raise WeightsError(
                    f"{file}: {key} is {count!r:.60}, but must be a whole number of at least 0. Fix: resume from "
                    f"another checkpoint, or start from its weights: -o Global.pretrained_model={self.prefix}.",
                    code="bad_content",
                )
        self._require_same_save(".pdparams", states)
        return TrainState.from_dict(states)

    def _states(self) -> dict[str, Any]:
        file = self.file(".states")
        states = read_plain_pickle(file) if file.is_file() else {}
        if not is_train_state(states):
            raise WeightsError(f"{file} does not hold the state of a run.", code="bad_content")
        return states

    def _require_same_save(self, ending: str, states: Mapping[str, Any]) -> None:
        """Compare the digest of the file with ``ending`` with the one in ``states``.

        Raises:
            WeightsError: the two files belong to different saves.
        """
        file = self.file(ending)
        digests = states.get("files")
        if not isinstance(digests, dict) or ending not in digests or not file.is_file():
            return  # PaddleOCR writes no digests; a missing file is reported where it is read
        if file_digest(file) != digests[ending]:
            read_plain_pickle(file)  # raises an error if it is damaged
            raise WeightsError(
                f"{file} and {self.file('.states').name} are of different saves.\nFix: put all three files of one save "
                f"there, or start a new run from the weights alone: -o Global.pretrained_model={self.prefix}.",
                code="mixed_checkpoint",
            )


def unwrapped(name: str) -> str:
    """Return the name of an entry without the prefix of a data-parallel wrapper."""
    for wrapper in WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def write_checkpoint(prefix: Path, weights: Mapping[str, Any], optimizer: Any, state: TrainState) -> None:
    """Write the checkpoint ``prefix``: weights, optimizer state and training state."""
    parts = {".pdparams": dict(weights), ".pdopt": optimizer.state_dict()}
    contents = {ending: tensors_to_bytes(part) for ending, part in parts.items()}
    digests = {ending: hashlib.sha256(content).hexdigest() for ending, content in contents.items()}
    contents[".states"] = pickle.dumps(replace(state, files=digests).to_dict(), protocol=2)
    temporary = write_all_temporary({Path(f"{prefix}{ending}"): each for ending, each in contents.items()})
    write_journal(prefix, {file.name: path.name for path, file in temporary.items()})
    finish_journal(prefix)


def why_missing(path: str | Path) -> str:
    """Return the error message for a ``path`` without weights; it names the checkpoints in the folder."""
    folder = Path(path)
    if (refusal := other_format(path)) is not None:
        return refusal
    if folder.is_dir():
        remedy = _checkpoints_in(folder) or " It holds none. Fix: give the path of a checkpoint."
        return f"{folder} is a folder, not a checkpoint in it.{remedy}"
    file = Path(f"{str(path).removesuffix('.pdparams')}.pdparams")
    remedy = _checkpoints_in(file.parent) or " Fix: give the path of weights, with or without .pdparams."
    hint = path_hint(str(path)) or did_you_mean(similar_name(str(path)))
    return f"there is no file {file}.{hint or remedy}"


def _checkpoints_in(folder: Path) -> str:
    """Return a hint that names the checkpoints in ``folder``, `latest` first; empty if it has none."""
    files = sorted(folder.glob("*.pdparams"), key=lambda file: (file.stem != "latest", file))
    names = [str(file.with_suffix("")) for file in files]
    return f" Fix: give {shortened(names, SHOWN, ' or ')}." if names else ""
