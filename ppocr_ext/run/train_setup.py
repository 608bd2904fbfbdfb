"""Set up what a run trains with, besides data: model, loss, weights, optimizer, precision, position to resume."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn
from paddle.optimizer.lr import LRScheduler

from ppocr_ext.checkpoint.checkpoints import Checkpoint, Position
from ppocr_ext.checkpoint.optimizer_state import restore_optimizer
from ppocr_ext.checkpoint.weights import full_precision, parameter_names, put_back, trained_state
from ppocr_ext.config import Config
from ppocr_ext.data.mixing import mixed_lists
from ppocr_ext.data.sample_seeds import warn_of_other_seeds
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.losses import (
    CenterLoss,
    DistillationCenterLoss,
    Loss,
    LossContext,
    TaughtLoss,
    build_loss,
    required_outputs,
)
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.modeling.features import feature_sizes
from ppocr_ext.optim import build_optimizer
from ppocr_ext.optim.optimizers import parts_table, trained_parts
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.freezing import (
    choose_trained,
    freeze_untouched,
    frozen_models,
    says_what_it_reads,
    unsaved_models,
)
from ppocr_ext.run.general import is_left_to_choose, teacher_before
from ppocr_ext.run.host_config import check_profiler
from ppocr_ext.run.loader_setup import RunData
from ppocr_ext.run.model_setup import Records, load_model_weights, official_records, require_reading
from ppocr_ext.run.model_wrappers import (
    Amp,
    build_amp,
    compile_model,
    data_parallel,
    decorate,
    share_batch_norm,
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a run trains with, besides its model.

    Attributes:
        loss: the loss, with its state.
        optimizer: the optimizer of the trained parameters.
        schedule: the schedule of the learning rate.
        amp: scaler and settings of mixed precision.
        start: the position where the run begins or resumes.
        best: the best evaluation before that position.
        hook_states: states of hooks in the checkpoint, by their names.
        unreached: trained parameters that had no gradient before that position; None for all.
        frozen_digests: digest of each frozen sub-model.
        full_precision: returns tensors of the network in float32, by their names in it; see ``checkpoint/weights.py``.
        official_weights: digest and source of the official weights of the first start, by name.
        starts_from_weights: True if a trained (sub-)model was loaded and the run is not resumed.
    """

    loss: Loss
    optimizer: Any
    schedule: Any
    amp: Amp
    start: Position
    best: Mapping[str, float] = field(default_factory=dict)
    hook_states: Mapping[str, Any] = field(default_factory=dict)
    unreached: Sequence[str] | None = None
    frozen_digests: Mapping[str, str]
    full_precision: Callable[[Mapping[str, Any]], dict[str, Any]]
    official_weights: Records
    starts_from_weights: bool


def set_up_training(context: RunContext, model: nn.Layer, data: RunData) -> tuple[nn.Layer, Training]:
    """Load the weights of ``model``, and build what it is trained with.

    Returns:
        The model, wrapped for mixed precision, compilation and several processes; and the rest.

    Raises:
        PPOCRExtError: something cannot be built; the message says what to change.
    """
    config = context.config
    settings = config.settings
    checkpoint = context.checkpoint
    loss, loaded = _loss_and_weights(context, model)
    outputs = required_outputs(loss)
    frozen = frozen_models(model)
    digests = {name: state_digest(getattr(model, name)) for name in sorted(frozen)}
    if settings.use_sync_bn:
        model = share_batch_norm(model)
    model = choose_trained(model, config, outputs)
    if context.team.size > 1 and not says_what_it_reads(model, outputs):
        freeze_untouched(model, loss, next(iter(data.train_loader)))
    epochs = settings.epoch_num
    steps_per_epoch = len(data.train_loader)
    groups = math.ceil(steps_per_epoch / settings.accumulate)
    options = context.components.at("Optimizer").thaw()
    optimizer, schedule = build_optimizer(options, epochs=epochs, step_each_epoch=groups, model=model)
    LOG.info("%s", parts_table(trained_parts(model)))
    amp = build_amp(settings)
    casts = amp.scaler is not None and amp.level == "O2"
    copies = {
        name: value.numpy().copy()
        for name, value in trained_state(model, unsaved_models(model, settings.save_teacher)).items()
        if casts
    }
    model, optimizer = decorate(amp, model, optimizer)
    training = Training(
        loss=loss,
        optimizer=optimizer,
        schedule=schedule,
        amp=amp,
        start=Position(epochs=epochs, steps_per_epoch=steps_per_epoch),
        frozen_digests=digests,
        full_precision=partial(full_precision, optimizer=optimizer, copies=copies),
        official_weights=official_records(config, loaded.values(), checkpoint),
        starts_from_weights=checkpoint is None and bool(loaded.keys() - frozen),
    )
    if checkpoint is not None:
        training = _resume(training, model, config, checkpoint)
    if settings.to_static:
        model = compile_model(model)
        if config.at("Train.dataset.ds_width", default=False):
            LOG.warning(
                "Global.to_static: with Train.dataset.ds_width images have many widths, and each shape of a batch is "
                "compiled, which may take longer than it saves."
            )
    check_profiler(config, training.start.total_steps)
    if context.team.size > 1:
        model = data_parallel(model, settings.find_unused_parameters)
    return model, training


def _loss_and_weights(context: RunContext, model: nn.Layer) -> tuple[Loss, dict[str | None, str]]:
    """Return the loss, and what :func:`load_model_weights` returns for the weights of ``model``.

    Raises:
        WeightsError: weights are missing, or a teacher cannot read.
    """
    loss = loss_for(model, context)
    frozen = frozen_models(model)
    needed = None
    if (outputs := required_outputs(loss)) is not None:
        # only these sub-models run: those that the loss reads, and the trained ones
        trained = [name for name in getattr(model, "model_name_list", ()) if name not in frozen]
        needed = tuple(dict.fromkeys([*(name for name, _ in outputs if name), *trained]))
    loaded = load_model_weights(model, context, needed=needed)
    if not all(each.labelled for each in mixed_lists(context.config)):
        distils = isinstance(model, DistillationModel)
        if context.checkpoint is None and not loaded and not distils:
            raise WeightsError(
                "Train.mix: samples with `labelled: false` need weights that teach them. Fix: Global.pretrained_model.",
                code="missing_weights",
            )
        loss = TaughtLoss(loss, None if distils else teacher_before(context, model))
    require_reading(
        context, model, [name for name in loaded if name is None] or sorted(frozen & loaded.keys())
    )
    if context.checkpoint is None:  # the weights of a resumed run differ from those of the centers anyway
        compare_center_weights(loss, model)
    return loss, loaded


def _resume(training: Training, network: nn.Layer, config: Config, checkpoint: Checkpoint) -> Training:
    """Restore optimizer, schedule, scaler and loss; return the training at the position of the checkpoint.

    Raises:
        ConfigError: the run has finished all its epochs.
        WeightsError: the run had another teacher or optimizer, or a state does not fit.
    """
    prefix = checkpoint.prefix
    if not checkpoint.file(".states").is_file():
        LOG.warning("%s.states is missing: epochs and steps are counted from 0.", prefix)
    _require_resumable(training, config, checkpoint)
    state = checkpoint.train_state()
    length = training.start
    start = replace(state.position, epochs=length.epochs, steps_per_epoch=length.steps_per_epoch).completed()
    restore_optimizer(training.optimizer, checkpoint, parameter_names(network), state.parameter_names)
    if state.total_steps not in (None, length.total_steps):
        rate = training.optimizer.get_lr()
        _recompute_rate(training.schedule)
        LOG.info(
            "steps of the whole run: %d before, %d now; the learning rate changes from %.3g to %.3g",
            state.total_steps,
            length.total_steps,
            rate,
            training.optimizer.get_lr(),
        )
    for weights in (state.raw_weights, state.before_group):
        put_back(weights or {}, network.state_dict())
    training.amp.load(state.scaler)
    restore_loss(training.loss, state.loss, prefix)
    LOG.info(
        "resuming from %s: epoch %d, after step %d of %d",
        prefix,
        start.epoch + 1,
        start.global_step,
        length.total_steps,
    )
    if start.global_step:
        warn_of_other_seeds(state.sample_seeds, prefix)
    return replace(
        training,
        start=start,
        best=dict(state.best),
        hook_states=state.hooks or {},
        unreached=state.unreached,
    )


def _require_resumable(training: Training, config: Config, checkpoint: Checkpoint) -> None:
    """Check that epochs are left, and that the run of the checkpoint had the same teachers and optimizer.

    Raises:
        ConfigError: all epochs are done.
        WeightsError: the run had another teacher or optimizer.
    """
    prefix = checkpoint.prefix
    state = checkpoint.train_state()
    if state.position.epoch >= training.start.epochs and not is_left_to_choose(checkpoint):
        raise ConfigError(
            f"{prefix} has already finished epoch {state.position.epoch} of {training.start.epochs}. Fix: increase "
            f"Global.epoch_num to continue.",
            code="nothing_left",
        )
    now = training.frozen_digests
    changed = [each for each, digest in state.frozen.items() if now.get(each, digest) != digest]
    if changed:
        raise WeightsError(
            f"{prefix} was taught by another {', '.join(changed)} than the one loaded now. Fix: give the "
            f"weights of its first start as Architecture.Models.{changed[0]}.pretrained (or Global.pretrained_model).",
            code="other_teacher",
        )
    name = config.at("Optimizer.name")
    accumulate = config.settings.accumulate
    before = state.accumulate or 1
    if state.optimizer is not None and (state.optimizer, before) != (name, accumulate):
        raise WeightsError(
            f"{prefix} was trained with {state.optimizer} and Global.accumulate: {before} (found {name} and "
            f"{accumulate}). Fix: the same ones, or start from its weights: -o Global.pretrained_model={prefix}.",
            code="optimizer_mismatch",
        )


def _recompute_rate(schedule: Any) -> None:
    """Compute the rate of this step anew, so that a run with more epochs than before follows its longer schedule.

    Paddle's cosine computes each rate from the previous one, so it would stay at 0 after the end of a run.
    """
    if not isinstance(schedule, LRScheduler):
        return
    inner = getattr(schedule, "learning_rate", None)  # the schedule inside a LinearWarmup
    if hasattr(inner if isinstance(inner, LRScheduler) else schedule, "_get_closed_form_lr"):
        schedule.step(schedule.last_epoch)


def loss_for(model: nn.Layer, context: RunContext) -> Loss:
    """Build the loss of the config for its networks."""
    options = context.components.at("Loss").thaw()
    return build_loss(options, LossContext(context.charset, feature_sizes(model)))


def compare_center_weights(loss: Loss, model: nn.Layer) -> None:
    """Warn if centers were exported from other weights than those of the model."""
    for name, center in _center_losses(loss):
        meta = {} if center.table is None else center.table.meta
        if name is not None and meta.get("model") not in (None, name):
            continue  # centers of another sub-model have their own warning
        made_of = meta.get("model_digest")
        if made_of is not None and made_of != state_digest(model if name is None else getattr(model, name)):
            LOG.warning(
                "%s was exported from other weights than those of %s, so its features may differ. Fix: export the "
                "centers from the weights that are given as Global.pretrained_model.",
                center.center_file_path,
                "the model" if name is None else name,
            )


def _center_losses(loss: Loss) -> Iterator[tuple[str | None, CenterLoss]]:
    """Yield each CenterLoss within ``loss``, with its sub-model."""
    if isinstance(loss, CenterLoss):
        yield None, loss
    elif isinstance(loss, DistillationCenterLoss):
        yield from loss.losses.items()
    elif isinstance(loss, nn.Layer):
        for child in loss.children():
            yield from _center_losses(child)


def loss_state(loss: Loss) -> dict[str, np.ndarray]:
    """Return the state of a loss (such as centers) by name; empty if it has none."""
    if not isinstance(loss, nn.Layer):
        return {}
    return {name: value.numpy() for name, value in loss.state_dict().items()}


def restore_loss(loss: Loss, state: Mapping[str, np.ndarray], prefix: Path) -> None:
    """Restore the state of the loss from a checkpoint; losses that it does not have keep their initial state.

    Raises:
        WeightsError: an entry has another shape.
    """
    now = loss_state(loss)
    wrong = [name for name in now if name in state and now[name].shape != np.shape(state[name])]
    if wrong:
        raise WeightsError(
            f"{prefix}: {wrong[0]} of the loss has the shape {list(np.shape(state[wrong[0]]))}, but "
            f"{list(now[wrong[0]].shape)} in this run. Fix: keep loss and dictionary of the first start, or start a "
            f"new run from its weights: -o Global.pretrained_model={prefix}.",
            code="shape_mismatch",
        )
    if lacking := sorted(now.keys() - state.keys()):
        LOG.info("%s has no state for %s of the loss, which begins anew", prefix, ", ".join(lacking))
    if now.keys() & state.keys():
        loss.set_state_dict({name: state[name] for name in now if name in state})
