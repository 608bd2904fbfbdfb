"""Show progress: a bar on a terminal, else plain lines."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position, StepDone
from ppocr_ext.loop.hooks.metrics_log import Window
from ppocr_ext.messages import LOG, metric_text
from ppocr_ext.metrics import space_note
from ppocr_ext.report.run_folder import short_loss_name
from ppocr_ext.run.run import Run


class ProgressBar(Hook):
    """Show epoch, step, parts of the loss, learning rate, images per second and time left (a hook of rank 0).

    Args:
        every: steps between two lines (``Global.print_batch_step``).
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._seconds = 0.0  # of one step, smoothed, for the time left

    def on_start(self, run: Run, position: Position) -> None:
        self._indicator = run.metric.main_indicator
        self._best = float(run.best.get(self._indicator, 0.0))
        self._window = Window()
        total = position.total_steps
        done = position.global_step
        if note := space_note(run.metric):
            LOG.info("acc of the evaluations: %s", note)
        if done:
            LOG.info("resuming after step %d of %d", done, total)
        # disable=None: no bar unless standard error is a terminal
        self._bar = tqdm(total=total, initial=done, unit="step", dynamic_ncols=True, disable=None)

    def on_step(self, step: StepDone) -> None:
        self._window.add(step)
        self._bar.update(1)
        if self._window.steps < self._every:
            return
        means, seconds = self._window.close()
        position = step.position
        self._seconds = 0.7 * self._seconds + 0.3 * seconds if self._seconds else seconds
        epoch = f"epoch {position.current_epoch}/{position.epochs}"
        text = f"{_format_losses(means)}  lr {means['lr']:.3g}  {means['ips']:.1f} images/s"
        self._bar.set_description(epoch)
        self._bar.set_postfix_str(text)
        done = position.global_step
        total = position.total_steps
        left = datetime.timedelta(seconds=round((total - done) * self._seconds))
        line = f"{epoch}  step {done}/{total}  {text}  eta {left}"
        # with a bar on the terminal the line goes only to the log file
        LOG.info(line, extra={"file_only": not self._bar.disable})

    def on_eval(self, result: EvalDone) -> None:
        # what the monitors measured is in metrics.jsonl
        names = [name for name in result.metrics if name != "fps" and not name.startswith("nrtr_")]
        numbers = ", ".join(metric_text(name, result.metrics[name]) for name in names if "_epoch" not in name)
        value = float(result.metrics.get(self._indicator, 0.0))
        # better than all before; the host replaces `best_accuracy` also by an equal one
        mark = "  (best so far)" if value > self._best else ""
        self._best = max(self._best, value)
        when = f"step {result.position.global_step}{' (the start weights)' if result.is_start else ''}"
        LOG.info("eval at %s: %s%s", when, numbers, mark)
        self._window.leave_out_pause()

    def on_end(self, outcome: Outcome) -> None:
        self._bar.close()


def _format_losses(means: Mapping[str, Any]) -> str:
    """Return a text such as ``loss 1.23 (ctc 0.90, nrtr 0.33)``."""
    parts = [f"{short_loss_name(n)} {v:.3g}" for n, v in means["losses"].items()]
    total = f"loss {math.nan if means['loss'] is None else means['loss']:.4g}"
    return f"{total} ({', '.join(parts)})" if len(parts) > 1 else total
