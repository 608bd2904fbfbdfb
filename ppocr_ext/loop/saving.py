"""Save the checkpoints of a run: what goes into them, when `latest` is due, which older ones go.

``HostLoop.save`` collects what hooks keep. :class:`CheckpointSaver` adds what follows from the run, and
:func:`ppocr_ext.checkpoint.checkpoints.write_checkpoint` writes the files. A resumed run reads them again:
``run/context.py`` opens the checkpoint, ``run/train_setup.py`` loads weights, optimizer, schedule, scaler and loss, and
hooks find in ``run.hook_states`` what they kept.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.checkpoints import Position, TrainState, write_checkpoint
from ppocr_ext.checkpoint.contents import average_in, not_finite
from ppocr_ext.checkpoint.files import keep_newest
from ppocr_ext.checkpoint.weights import parameter_names, trained_state
from ppocr_ext.data.sample_seeds import SCHEME
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.messages import shortened
from ppocr_ext.run.amp import full_precision
from ppocr_ext.run.compiled_models import engine_names
from ppocr_ext.run.host_config import settings_of
from ppocr_ext.run.run import Run
from ppocr_ext.run.train_setup import loss_state


class CheckpointSaver:
    """Writes the checkpoints of ``run``, in process 0."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seconds = 60 * run.config.settings.save_minutes
        self._keep = run.config.settings.keep_last
        self._accumulate = run.config.settings.accumulate
        self._saved = time.monotonic()  # the last `latest`, or the start
        self._folder = _identity(run.folder)

    def is_due(self) -> bool:
        """Return True if ``Global.save_minutes`` have passed since the last ``latest``."""
        return 0 < self._seconds <= time.monotonic() - self._saved

    def require_folder(self) -> None:
        """Check that the run folder is where it was.

        Raises:
            DataError: it was removed or replaced by another one.
        """
        if self._folder is not None and _identity(self._run.folder) != self._folder:
            raise DataError(
                f"{self._run.folder}: the run folder was removed or replaced while the run trained. Fix: start the run "
                f"again, and leave its folder where it is.",
                code="folder_gone",
            )

    def save(
        self,
        name: str,
        position: Position,
        best: Mapping[str, float],
        hook_states: Mapping[str, Any] | None = None,
        replaced: Mapping[str, Any] | None = None,
        unreached: Collection[str] = (),
    ) -> Path:
        """Write the checkpoint ``name`` into the run folder; remove what ``Global.keep_last`` does not keep.

        Args:
            name: of the checkpoint.
            position: of the run.
            best: the best evaluation so far.
            hook_states: what hooks keep, by their names.
            replaced: entries that the weights have in place of the network's, which go into the training state.
            unreached: names of the trained parameters that have had no gradient yet.

        Returns:
            Its path, without an ending.

        Raises:
            DataError: see :meth:`require_folder`.
            OSError: a file cannot be written.
            WeightsError: an entry is not finite; nothing is written, and a good checkpoint of this name stays.
        """
        self.require_folder()
        run = self._run
        prefix = run.folder / name
        state = trained_state(run.model, run.unsaved_models)
        weights = full_precision(state, run.optimizer, run.float32_copies)
        replaced = replaced or {}
        if wrong := not_finite(weights) or not_finite(replaced) or not_finite(average_in(hook_states or {})):
            raise WeightsError(
                f"{prefix} is not written: {shortened(wrong, 2)} has values that are not finite after step "
                f"{position.global_step}. Fix: continue from the last good checkpoint with a lower learning rate.",
                code="nonfinite_weights",
            )
        states = replace(
            self._train_state(position, best),
            hooks=hook_states or None,
            unreached=sorted(unreached),
            raw_weights={name: weights[name].numpy() for name in replaced} or None,
        )
        write_checkpoint(prefix, {**weights, **replaced}, run.optimizer, states)
        if name == "latest":
            self._saved = time.monotonic()
        if self._keep is not None:
            keep_newest(run.folder, name, self._keep)
        return prefix

    def _train_state(self, position: Position, best: Mapping[str, float]) -> TrainState:
        """Return the part of the training state that follows from the run itself."""
        run = self._run
        return TrainState(
            position.completed(),
            dict(best),
            parameter_names=parameter_names(run.network),
            frozen=run.frozen_digests,
            total_steps=run.start.total_steps,
            optimizer=str(run.config.at("Optimizer.name")),
            scaler=run.amp.state(),
            loss=loss_state(run.loss),
            charset_digest=run.charset.digest,
            sample_seeds=SCHEME,
            views=run.train_loader.views_drawn,
            accumulate=None if self._accumulate == 1 else self._accumulate,
            engines=engine_names(run.engines),
            processes=run.team.size,
            settings=settings_of(run.config, run.preflight),
        )


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
