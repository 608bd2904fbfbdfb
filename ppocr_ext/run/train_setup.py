"""What a run needs to train, beside model and data: loss, weights, optimizer, precision, other processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.model_state import state_digest, trained_state
from ppocr_ext.losses import build_loss, required_outputs
from ppocr_ext.optim import build_optimizer
from ppocr_ext.run.amp import build_amp, decorate, untrained
from ppocr_ext.run.compiled import compile_model
from ppocr_ext.run.loss_setup import compare_center_weights, loss_context, return_features
from ppocr_ext.run.model_setup import load_model_weights, narrow
from ppocr_ext.run.parallel import (
    data_parallel,
    freeze_untouched,
    says_what_it_reads,
    share_batch_norm,
)
from ppocr_ext.run.prepare import clamp_eval_step
from ppocr_ext.run.profiling import check_profiler
from ppocr_ext.run.resume import resume
from ppocr_ext.run.team import Team

if TYPE_CHECKING:
    from ppocr_ext.run.run import Run


def prepare_training(
    run: Run,
    checkpoint: Path | None,
    old_charset: Charset | None,
    rebuild: Callable[[int], Any] | None,
    processes: Team,
) -> None:
    """Complete ``run``, which has model and loaders, for training.

    Args:
        run: changed in place.
        checkpoint: prefix of the checkpoint to go on from, if any.
        old_charset: dictionary of the weights, where it differs.
        rebuild: makes the training loader of another seed.
        processes: those of the run.

    Raises:
        PPOCRExtError: something cannot be built; the message says what to change.
    """
    config = run.config
    run.loss = build_loss(config.at("Loss").thaw(), loss_context(run.model, run.charset))
    reads = required_outputs(run.loss)
    narrow(run.model, reads, config)
    load_model_weights(
        run.model,
        config,
        run.charset,
        checkpoint=checkpoint,
        needed=None if reads is None else _models_read(run, reads),
        old_charset=old_charset,
    )
    return_features(run.model, reads or ())
    if checkpoint is None:  # after a resume the weights have moved on from those of the centers
        compare_center_weights(run.loss, run.model)
    run.frozen_digests = {name: state_digest(run.sub_model(name)) for name in sorted(run.frozen)}
    run.model = share_batch_norm(run.model, config)
    if processes.size > 1 and not says_what_it_reads(run.model, reads):
        freeze_untouched(run.model, run.loss, next(iter(run.train_loader)))
    _add_optimizer(run)
    if checkpoint is not None:
        resume(run, checkpoint)
    run.model = compile_model(run.model, config)
    if processes.size > 1:
        run.model = data_parallel(run.model, config)
    if getattr(run.train_loader.dataset, "need_reset", False):
        run.rebuild_train_loader = rebuild
    clamp_eval_step(run.host_config["Global"], len(run.train_loader))
    check_profiler(config, run.total_steps)


def _add_optimizer(run: Run) -> None:
    run.amp = build_amp(run.config)
    run.optimizer, run.schedule = build_optimizer(
        run.config.at("Optimizer").thaw(),
        epochs=int(run.config.at("Global.epoch_num")),
        step_each_epoch=len(run.train_loader),
        model=run.model,
    )
    if run.amp.scaler is not None and run.amp.level == "O2":
        run.kept = untrained(trained_state(run.model, run.left_out))
    run.model, run.optimizer = decorate(run.amp, run.model, run.optimizer)


def _models_read(run: Run, reads: Any) -> tuple[str, ...]:
    trained = [n for n in getattr(run.model, "model_name_list", ()) if n not in run.frozen]
    return tuple(dict.fromkeys([*(name for name, _ in reads if name), *trained]))
