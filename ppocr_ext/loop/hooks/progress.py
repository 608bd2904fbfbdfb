"""Show progress: a bar on a terminal, else plain lines."""

from __future__ import annotations

import datetime
import logging
import sys
import time

import paddle.distributed as dist
from tqdm import tqdm

from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position, StepDone
from ppocr_ext.loop.hooks.window import Window, format_losses
from ppocr_ext.metrics import space_note
from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")


class ProgressBar(Hook):
    """Show epoch, step, parts of the loss, learning rate, images per second and time left (rank 0 only).

    Args:
        every: steps between two lines (``Global.print_batch_step``).
        terminal: draw a bar; by default if standard error is a terminal.
    """

    def __init__(self, every: int, terminal: bool | None = None) -> None:
        self._every = max(1, every)
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._bar: tqdm | None = None
        self._window = Window()
        self._rate = 0.0  # seconds a step, smoothed, for the time left
        self._last = 0.0
        self._best = 0.0
        self._note = ""

    def on_start(self, run: Run, position: Position) -> None:
        self._active = dist.get_rank() == 0
        self._indicator = run.metric.main_indicator
        note = space_note(run.metric)
        self._note = f"acc: {note}" if note else ""
        self._best = float(run.best.get(self._indicator, 0.0))
        self._window = Window()
        self._last = time.perf_counter()
        if not self._active:
            return
        if position.global_step:
            _LOG.info("going on after step %d of %d", position.global_step, position.total_steps)
        if self._terminal:
            self._bar = tqdm(
                total=position.total_steps, initial=position.global_step, unit="step", dynamic_ncols=True
            )

    def on_step(self, step: StepDone) -> None:
        if not self._active:
            return
        self._window.add(step)
        if self._bar is not None:
            self._bar.update(1)
        if self._window.steps < self._every:
            return
        steps = self._window.steps
        means = self._window.close()
        now = time.perf_counter()
        seconds = (now - self._last) / steps
        self._last = now
        self._rate = seconds if not self._rate else 0.7 * self._rate + 0.3 * seconds
        position = step.position
        text = f"{format_losses(means.losses)}  lr {means.lr:.3g}  {means.images_per_second:.1f} images/s"
        if self._bar is not None:
            self._bar.set_description(f"epoch {position.current_epoch}/{position.epochs}")
            self._bar.set_postfix_str(text)
        left = datetime.timedelta(seconds=round((position.total_steps - position.global_step) * self._rate))
        line = (
            f"epoch {position.current_epoch}/{position.epochs}  step {position.global_step}/"
            f"{position.total_steps}  {text}  eta {left}"
        )
        # with a bar on the terminal the line goes to the log file alone
        _LOG.info(line, extra={"file_only": self._bar is not None})

    def on_eval(self, result: EvalDone) -> None:
        shown = ", ".join(
            f"{name} {value:.4f}"
            for name, value in result.metrics.items()
            if name != "fps" and "_epoch" not in name
        )
        shown = "; ".join(part for part in (shown, self._note) if part)
        mark = "  (best so far)" if self._is_better(result) else ""
        _LOG.info("eval at step %d: %s%s", result.position.global_step, shown, mark)
        self._last = time.perf_counter()
        self._window.leave_out_pause()

    def _is_better(self, result: EvalDone) -> bool:
        """Return True if it is better than all before; the host replaces `best_accuracy` also by an equal one."""
        now = float(result.metrics.get(self._indicator, 0.0))
        better = now > self._best
        self._best = max(self._best, now)
        return better

    def on_end(self, outcome: Outcome) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
