"""Run the host's ``program.train`` with our objects, and turn its calls into events.

One step, in the order of the calls:

1. The host asks the loader (``run/loader.py``) for a batch. ``HostLoop._boundary`` seeds the step, saves if a save is
   due, and stops if a stop was requested.
2. The host calls the network, then the loss: ``HostLoop._losses`` lets the hooks measure, and ``OptimizerStep.guard``
   makes the loss NaN if a value is bad.
3. The host calls ``backward``, then :class:`OptimizerProxy` or :class:`ScalerProxy`, which ask
   ``OptimizerStep.allows``.
4. The host clears the gradient, which ends the step: ``HostLoop._step_done`` calls the hooks.

An evaluation ends in :class:`EvalListener`, a save of the host in ``HostLoop._host_saves``. A resumed run reads a
checkpoint in ``run/context.py`` (opening it), ``run/train_setup.py`` (weights, optimizer, schedule, scaler, loss) and
the hooks (``training.hook_states``).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import paddle

from ppocr_ext.checkpoint.checkpoints import Position, TrainState, write_checkpoint
from ppocr_ext.checkpoint.contents import BEST, EVALUATED, average_in, not_finite
from ppocr_ext.checkpoint.files import keep_newest
from ppocr_ext.checkpoint.weights import parameter_names, trained_state
from ppocr_ext.data.sample_seeds import SCHEME
from ppocr_ext.errors import DataError, ModelError, ProcessError
from ppocr_ext.evaluation.evaluate import evaluate_now
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, StepDone, StopRun
from ppocr_ext.loop.incidents import step_seed
from ppocr_ext.loop.signals import deferred_signals
from ppocr_ext.loop.step import (
    EvalListener,
    EvalLoader,
    OptimizerProxy,
    OptimizerStep,
    ScalerProxy,
)
from ppocr_ext.messages import LOG, end_text, error_text, shortened
from ppocr_ext.run.compiled_models import engine_names
from ppocr_ext.run.dry_parts import nothing
from ppocr_ext.run.freezing import unsaved_models
from ppocr_ext.run.host_config import settings_of
from ppocr_ext.run.logs import console_may_close
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import Team
from ppocr_ext.run.train_setup import Training, loss_state


class HostLoop:
    """One training run inside the host's loop.

    Args:
        run: built by :meth:`Run.build` with role ``"train"``.
        training: its training.
        hooks: called at every event, in this order.
    """

    def __init__(self, run: Run, training: Training, hooks: Sequence[Hook]) -> None:
        self.run = run
        self.training = training
        self.hooks = list(hooks)
        self.position = self._group_start = training.start
        self._evaluations = Evaluations(run, training, self.hooks)
        self._stop: StopRun | None = None
        self._saved_early = False
        self._last_save = time.monotonic()  # time of the last save of `latest`, or of the start
        folder = run.context.folder
        self._folder = folder.stat() if folder.exists() else None
        self._step = OptimizerStep(run.context, run.network, training)
        self._values: dict[str, float] = {}  # measured by hooks in this step

    def request_stop(
        self, reason: str, signal: int | None = None, *, status: str = "stopped", save_latest: bool = True
    ) -> None:
        """Leave the loop at the next step boundary; see :meth:`ppocr_ext.loop.events.LoopControl.request_stop`."""
        stop = StopRun(reason, signal, status, save_latest)
        if self._stop is None or stop.seriousness > self._stop.seriousness:
            self._stop = stop

    def interruptible(self, loader: Any) -> EvalLoader:
        """See :meth:`ppocr_ext.loop.events.LoopControl.interruptible`."""
        return EvalLoader(loader, nothing, self._evaluating)

    @property
    def best(self) -> Mapping[str, float]:
        """See :attr:`ppocr_ext.loop.events.LoopControl.best`."""
        return self._evaluations.best

    def save_best(self, metrics: Mapping[str, float], is_start: bool) -> None:
        """See :meth:`ppocr_ext.loop.events.LoopControl.save_best`."""
        self._evaluations.take(metrics, 0 if is_start else max(1, self.position.completed().epoch))
        self._tell("on_eval_end")  # a save needs the weights of the training
        for name in (BEST, "latest"):  # a run that goes on from `latest` must know the best
            self.save(name)
        self._tell("on_eval_start")

    def train(self) -> Outcome:
        """Train until the end or a stop, and return how the run ended."""
        for hook in self.hooks:
            hook.loop = self
        # A signal may be sent again while the run saves, so the handlers stay until all is saved.
        with (
            deferred_signals(lambda number: self.request_stop(f"signal {number}", number)),
            console_may_close(
                lambda: self.request_stop("the reader of its output has ended", signal.SIGPIPE)
            ),
        ):
            self._tell("on_start", self.run, self.training)
            try:
                stop = self._run_host()
                if stop is not None and stop.save_latest:
                    self.save("latest")
                    # The save found weights that are not finite.
                    if self._stop is not None and not self._stop.save_latest:
                        stop = self._stop
                if self.run.context.is_first and (stop is None or stop.status == "finished"):
                    self._saved_early = True  # `latest` is saved, and weights to try stand in the network
                    self._tell("on_eval_start")
                    self._tell("on_trained")
                    self._tell("on_eval_end")
                    stop = self._stop if self._stop is not None and self._stop.status == "not_kept" else stop
            except BaseException as error:
                fault = _cause(error, self.run.context.team)
                try:
                    self._tell_end("failed", end_text(fault))
                except Exception as second:  # a hook failed too; the first error stays the reason
                    LOG.warning("at the end of the run: %s", error_text(second))
                if fault is not error:
                    raise fault from error
                raise
            # The caller must know of a signal in the last step or save, so that it begins no other run.
            late = None if self._stop is None else self._stop.signal
            end = stop or StopRun("", status="finished")
            return self._tell_end(end.status, end.reason, late if end.signal is None else end.signal)

    def _run_host(self) -> StopRun | None:
        """Run the host's loop; return why it stopped before its end, or None."""
        try:
            self._call_host()
        except StopRun as stop:
            return stop
        except RuntimeError as error:
            anomaly = self._step.anomaly(error)
            if anomaly is None:
                raise
            reason = f"step {self.position.global_step + 1}: {anomaly}"
            # Only an error ends all processes; after a stop the others would wait.
            if self.run.context.team.size > 1:
                raise ModelError(reason, code="nonfinite_value") from error
            LOG.error("%s", reason)
            return StopRun(reason, None, "nonfinite", save_latest=False)
        except SystemExit as leave:
            if leave.code or not self.run.context.config.at("profiler_options", default=None):
                raise
            return StopRun("the profiler has seen its batches")
        agreed = self._agreed_stop()
        # All epochs are done, so only a collapse or a bad value still matters.
        return None if agreed is None or agreed.status in ("finished", "stopped") else agreed

    def _agreed_stop(self) -> StopRun | None:
        """Wait for all processes, and return the same stop in all of them, or None.

        A signal that comes while this waits counts at the next step boundary, unless the processes stop anyway.
        """
        own = self._stop
        worst = self.run.context.team.highest(0 if own is None else own.seriousness)
        if worst == 0:
            return None
        late = self._stop
        theirs = StopRun.of_seriousness(worst, None if late is None else late.signal)
        return next((stop for stop in (own, late) if stop is not None and stop.seriousness == worst), theirs)

    def _call_host(self) -> None:
        run = self.run
        training = self.training
        metric = run.metric
        for hook in self.hooks:
            metric = hook.wrap_metric(metric)
        eval_loader: EvalLoader | tuple[()] = ()
        if "Eval" in run.data.loaders:
            eval_loader = EvalLoader(
                run.data.eval_loader, partial(self._tell, "on_eval_start"), self._evaluating
            )
        evaluate = partial(evaluate_now, run, eval_loader, metric)
        if self._evaluations.due_at_start:  # the other processes wait for this one at their first step
            self._evaluated(evaluate())
        position = self.position
        amp = training.amp
        loader = run.data.train_loader
        host = run.context.host
        loader.train(
            position.epoch + 1, position.step_in_epoch, self._boundary, partial(self._epoch_done, evaluate)
        )
        first = {"start_epoch": position.epoch + 1, "global_step": position.global_step}
        host.train(
            run.host_config,
            loader,
            eval_loader,
            run.context.device,
            run.model,
            self._losses,
            OptimizerProxy(training.optimizer, self._step_done, self._step.allows, self._step.keeps_gradient),
            training.schedule
            if isinstance(training.schedule, float)
            else SimpleNamespace(step=self._next_rate),
            run.decoder,
            metric,
            {**self._evaluations.best, **first},
            host.logger,
            len(loader),
            EvalListener(self._evaluated),
            None if amp.scaler is None else ScalerProxy(amp.scaler),
            amp.level,
            amp.black_list,
            amp.white_list,
            amp.dtype,
            # the host's `export` fails on our models; `ExportHook` exports later
            replacements={"save_model": self._host_saves, "export": nothing},
        )

    def _losses(self, predictions: Any, batch: Sequence[Any]) -> Mapping[str, Any]:
        """Compute the losses as the host asks for them, and let the hooks measure the forward pass."""
        losses = self.training.loss(predictions, batch)
        self._values = {}
        for hook in self.hooks:
            self._values |= hook.measure_outputs(predictions, batch, losses)
        return self._step.guard(predictions, batch, losses)

    def _next_rate(self) -> None:
        """Step the schedule as the host does after each batch, but once per group."""
        if not self._step.group.is_open:
            self.training.schedule.step()

    def _step_done(self, lr: float) -> None:
        self.position = self.position.next_step()
        step = self._step
        is_whole = not step.group.is_open
        images = step.images * self.run.context.team.size
        values = {**step.reading.to_log(), **self._values}
        if not is_whole:
            del values["grad_norm"]  # it is that of a part of the group only
        self._tell(
            "on_step", StepDone(self.position, step.losses, lr, images, values, step.is_good, is_whole)
        )

    def _boundary(self) -> None:
        """Begin a step, or stop in all processes at the same step, since a process that continued would wait for ever.

        The other processes wait here while process 0 evaluates or saves.
        """
        at = self.position
        # Dropout and stochastic depth depend on the number of the step only, so a resumed run repeats them.
        paddle.seed(step_seed(self.run.context, at.global_step))
        context = self.run.context
        if context.is_first:
            self._require_folder()
        if not self._step.group.is_open:
            self._group_start = at
            wait = 60 * context.config.settings.save_minutes
            if self._stop is None and 0 < wait <= time.monotonic() - self._last_save:
                self.save("latest")
            agreed = self._agreed_stop()
            if agreed is not None:
                raise agreed
        else:
            context.team.barrier()  # an evaluation inside a group may last longer than a collective waits
        self._step.begin(at.global_step, ends_epoch=at.step_in_epoch + 1 >= at.steps_per_epoch)

    def _evaluating(self) -> None:
        """Save during an evaluation if a stop was requested, since Paddle's launcher kills after 30 seconds.

        Nothing is saved before this run's first step and after the last one: a resumed run would not repeat the
        evaluation there.
        """
        done = self.position.completed()
        is_between = done.global_step > self.training.start.global_step and done.epoch < done.epochs
        if is_between and self._stop is not None and self._stop.save_latest and not self._saved_early:
            self._saved_early = True
            self._tell("on_eval_end")
            self.save("latest")
            self._tell("on_eval_start")

    def _epoch_done(self, evaluate: Callable[[], Mapping[str, float]]) -> None:
        if self._evaluations.due_at_end(self.position) and (self._stop is None or self._stop.save_latest):
            self._evaluated(evaluate())
        self.position = self.position.next_epoch()
        self._tell("on_epoch_end")

    def _evaluated(self, metrics: Mapping[str, float]) -> None:
        """Record an evaluation, and save the best, which the host would choose by the metric alone."""
        if self._evaluations.done(metrics, self.position):
            self.save(BEST)

    def _host_saves(self, *args: Any, **kwargs: Any) -> None:
        """Save under the host's names, in place of its ``save_model``, which does not write atomically."""
        name = kwargs.get("prefix", "latest")
        # `latest` stays as it was before a collapse
        if name != BEST and (self._stop is None or self._stop.save_latest):
            self.save(name)

    def save(self, name: str) -> None:
        """Write the checkpoint ``name`` into the run folder (process 0 only), and remove what is not to be kept.

        Inside a group (``Global.accumulate``) its position is that of the group's start, since gradients are not
        stored; a resumed run gets what the forward passes had changed by then. Weights that are not finite are not
        written, and stop the run. An earlier checkpoint of this name stays.

        Raises:
            DataError: see :meth:`_require_folder`.
            OSError: a file cannot be written.
        """
        run = self.run
        training = self.training
        context = run.context
        if not context.is_first:
            return
        self._require_folder()
        settings = context.config.settings
        file = context.folder / name
        position = self._group_start if self._step.group.is_open else self.position
        replaced = {key: value for hook in self.hooks for key, value in hook.saved_weights(name).items()}
        states = {type(hook).__name__: state for hook in self.hooks if (state := hook.state())}
        states |= self._evaluations.state()
        own = trained_state(run.model, unsaved_models(run.network, settings.save_teacher))
        weights = training.full_precision(own)
        if wrong := not_finite(weights) or not_finite(replaced) or not_finite(average_in(states)):
            reason = (
                f"{file} is not written: {shortened(wrong, 2)} has values that are not finite after step "
                f"{position.global_step}. Fix: continue from the last good checkpoint with a lower learning rate."
            )
            LOG.error("%s", reason)
            self.request_stop(reason, status="nonfinite", save_latest=False)
            return
        statistics, of_loss = self._step.before_group()
        train_state = self._train_state(
            position,
            of_loss,
            hooks=states or None,
            raw_weights={name: weights[name].numpy() for name in replaced} or None,
            before_group={name: statistics[name] for name in statistics.keys() & own.keys()} or None,
        )
        write_checkpoint(file, {**weights, **replaced}, training.optimizer, train_state)
        context.team.publish_saved(file, position.global_step)
        if name == "latest":
            self._last_save = time.monotonic()
        if settings.keep_last is not None:
            keep_newest(context.folder, name, settings.keep_last)
        self._tell("on_save", file, position)

    def _train_state(self, position: Position, of_loss: Mapping[str, Any], **others: Any) -> TrainState:
        """Return the training state at ``position``.

        Args:
            position: where a resumed run begins.
            of_loss: the state of the loss before an open group.
            others: what is only known when weights are saved.
        """
        run = self.run
        context = run.context
        training = self.training
        accumulate = context.config.settings.accumulate
        return TrainState(
            position.completed(),
            dict(self._evaluations.best),
            parameter_names=parameter_names(run.network),
            frozen=training.frozen_digests,
            total_steps=training.start.total_steps,
            optimizer=str(context.config.at("Optimizer.name")),
            scaler=training.amp.state(),
            loss={**loss_state(training.loss), **of_loss},
            charset_digest=context.charset.digest,
            sample_seeds=SCHEME,
            views=run.data.train_loader.views_drawn,
            accumulate=None if accumulate == 1 else accumulate,
            engines=engine_names(run.engines),
            unreached=sorted(self._step.group.unreached),
            processes=context.team.size,
            settings=settings_of(context.config, run.data.preflight),
            **others,
        )

    def _require_folder(self) -> None:
        """Check that the run folder is the one that the run began with.

        Raises:
            DataError: it was removed or replaced.
        """
        folder = self.run.context.folder
        if self._folder is not None and not (
            folder.exists() and os.path.samestat(folder.stat(), self._folder)
        ):
            raise DataError(
                f"{folder}: the run folder was removed or replaced while the run trained. Fix: start the run "
                f"again, and leave its folder where it is.",
                code="folder_gone",
            )

    def _tell(self, event: str, *args: Any) -> None:
        for hook in self.hooks:
            getattr(hook, event)(*args)

    def _tell_end(self, status: str, reason: str, signal: int | None = None) -> Outcome:
        """Call ``on_end`` of every hook, in order, even if one raises, since each may have something to close."""
        last = int(self._evaluations.last["step"])
        lines = sum(len(each.dataset) for mode, each in self.run.data.loaders.items() if mode == "Eval")
        outcome = Outcome(status, self.position, dict(self._evaluations.best), reason, signal, last, lines)
        with ExitStack() as ends:
            for hook in reversed(self.hooks):
                ends.callback(hook.on_end, outcome)
        return outcome


def _cause(error: BaseException, team: Team) -> BaseException:
    """Return the error of another process that has caused ``error``, else ``error``."""
    try:
        team.blame(error)
    except ProcessError as theirs:
        return theirs
    return error


class Evaluations:
    """The best and the last evaluation of a run, and whether one is due before the first or after the last step.

    Args:
        run: the run.
        training: its training.
        hooks: the hooks of the run; they are called for each evaluation.

    Attributes:
        best: the metrics of the best one, and its ``best_epoch`` (0 for the start weights).
        last: the metrics of the last one, and its ``step``. From a checkpoint without metrics, it has only the step.
        indicator: name of the metric that decides which is the best.
        due_at_start: True if this process must evaluate the start weights.
    """

    def __init__(self, run: Run, training: Training, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self.best: dict[str, float] = dict(training.best)
        self.last: dict[str, float] = dict(
            training.hook_states.get(EVALUATED, {"step": training.start.global_step})
        )
        self.indicator = run.metric.main_indicator
        self._evaluates = (
            run.context.is_first and "Eval" in run.data.loaders and len(run.data.eval_loader) > 0
        )
        config = run.context.config
        # weights that read fewer new lines than those before must not replace them
        asked = config.settings.eval_at_start or config.at("Eval.general", None) is not None
        self.due_at_start = training.starts_from_weights and asked and self._evaluates

    def done(self, metrics: Mapping[str, float], position: Position) -> bool:
        """Record an evaluation and call the hooks; return True if it is the best, by the rule of the host."""
        numbers = {name: float(value) for name, value in metrics.items()}
        step = position.global_step
        self.last = {**{name: value for name, value in numbers.items() if name != "fps"}, "step": step}
        values = dict(metrics)
        for hook in self._hooks:
            values |= hook.measure_eval()
        is_best = numbers[self.indicator] >= float(self.best.get(self.indicator, 0.0))
        for hook in self._hooks if is_best else ():
            accepted, more = hook.judge_best(numbers, step)
            is_best = is_best and accepted
            numbers |= more
            values |= more
        if is_best:
            self.take(numbers, position.completed().epoch or min(step, 1))
        result = EvalDone(position, values, is_best, dict(self.best), is_start=step == 0)
        for hook in self._hooks:
            hook.on_eval(result)
        for hook in self._hooks:
            hook.on_eval_end()
        return is_best

    def take(self, metrics: Mapping[str, float], epoch: int) -> None:
        """Take an evaluation as the best one; epoch 0 is that of the start weights."""
        self.best = {**metrics, "best_epoch": epoch}

    def state(self) -> Mapping[str, Any]:
        """Return the last evaluation for the training state, in the form of hook states; empty before the first."""
        return {EVALUATED: self.last} if self.indicator in self.last else {}

    def due_at_end(self, position: Position) -> bool:
        """Return True if this process must evaluate now: after the last epoch, if the host has not evaluated there."""
        is_last = position.completed().epoch >= position.epochs
        return is_last and self._evaluates and self.last["step"] != position.global_step
