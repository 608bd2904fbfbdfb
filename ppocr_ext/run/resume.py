"""Going on from a checkpoint: what must agree, and what is put back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle.optimizer.lr import LRScheduler

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint, Progress
from ppocr_ext.checkpoint.model_state import parameter_names
from ppocr_ext.checkpoint.optimizer_state import restore_optimizer
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.run.loss_setup import restore_loss

if TYPE_CHECKING:
    from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")


def refuse_other_dictionary(
    checkpoint: Checkpoint, role: str, charset: Charset, old_charset: Charset | None
) -> None:
    """Refuse a checkpoint of another dictionary, which would be read garbled.

    Raises:
        WeightsError: the dictionary differs (or ``--old-dict`` is given in training, where a run goes on
            with its own).
    """
    prefix, digest = checkpoint.prefix, checkpoint.train_state().charset_digest
    other = digest not in (None, charset.digest)
    if role == "eval" and other and old_charset is None:
        raise WeightsError(
            f"{prefix} was trained with another dictionary than {charset.name}: what it reads would be garbled. "
            f"Set Global.character_dict_path to its dictionary, or give that with --old-dict."
        )
    if role == "train" and (other or old_charset is not None):
        raise WeightsError(
            f"Global.checkpoints: {prefix} goes on with the dictionary that it was trained with. To start from these "
            f"weights with another, give them as Global.pretrained_model and their dictionary with --old-dict."
        )


def resume(run: Run, prefix: Path) -> None:
    """Put optimizer, schedule, scaler and position of the checkpoint ``prefix`` into ``run``.

    Raises:
        WeightsError: the teacher is another, or the optimizer state does not fit.
    """
    checkpoint = Checkpoint(prefix)
    if not checkpoint.file(".states").is_file():
        _LOG.warning("%s.states is missing: the run is counted from its beginning.", prefix)
    state = checkpoint.train_state()
    run.start = state.position
    epochs = int(run.config.at("Global.epoch_num"))
    if run.start.epoch >= epochs:
        raise ConfigError(
            f"{prefix} has already finished epoch {run.start.epoch} of {epochs}. Increase Global.epoch_num to continue."
        )
    _same_teachers(run, prefix, state.frozen)
    _same_optimizer(run, prefix, state.optimizer)
    restore_optimizer(run.optimizer, checkpoint, parameter_names(run.network), state.parameter_names)
    if state.total_steps not in (None, run.total_steps):
        _follow_longer_schedule(run, state.total_steps)
    run.amp.load(state.scaler)
    restore_loss(run.loss, state.loss, prefix)
    if run.start.step_in_epoch >= len(run.train_loader):
        run.start = Progress(run.start.epoch + 1, 0, run.start.global_step, run.start.best)
    _LOG.info("going on from %s: epoch %d, step %d", prefix, run.start.epoch + 1, run.start.global_step)


def _same_teachers(run: Run, prefix: Path, before: Mapping[str, str]) -> None:
    changed = [name for name, digest in before.items() if run.frozen_digests.get(name, digest) != digest]
    if changed:
        raise WeightsError(
            f"{prefix} was taught by another {', '.join(changed)} than the one loaded now. Give the weights that the "
            f"run began with as Architecture.Models.{changed[0]}.pretrained (or Global.pretrained_model)."
        )


def _same_optimizer(run: Run, prefix: Path, before: str | None) -> None:
    now = run.config.at("Optimizer.name")
    if before not in (None, now):
        raise WeightsError(
            f"{prefix} was trained with {before}, Optimizer.name is {now}. A run goes on with the optimizer it began "
            f"with; to start afresh from its weights, give them as Global.pretrained_model."
        )


def _follow_longer_schedule(run: Run, before: int) -> None:
    """Take the learning rate of a run of another length, and log where it goes; ``before``: steps as it was."""
    rate = run.optimizer.get_lr()
    _recompute_rate(run.schedule)
    _LOG.info(
        "steps of the whole run: %d before, %d now; the learning rate goes from %.3g to %.3g",
        before,
        run.total_steps,
        rate,
        run.optimizer.get_lr(),
    )


def _recompute_rate(schedule: Any) -> None:
    """Compute the rate at this step anew, so that a run given more epochs follows its longer schedule.

    Paddle's cosine goes from one rate to the next; at the end of a finished run it would stay at 0.
    """
    if isinstance(schedule, LRScheduler) and _has_closed_form(schedule):
        schedule.step(schedule.last_epoch)


def _has_closed_form(schedule: Any) -> bool:
    inner = getattr(schedule, "learning_rate", None)  # of a LinearWarmup
    return hasattr(inner if isinstance(inner, LRScheduler) else schedule, "_get_closed_form_lr")
