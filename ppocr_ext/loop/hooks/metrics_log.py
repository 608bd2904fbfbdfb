"""Write ``metrics.jsonl``, the source of all curves and writers, and show progress on the terminal.

Both have a line for each window of steps (``Global.print_batch_step``) and for each evaluation.
"""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paddle
from tqdm import tqdm

from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position, StepDone
from ppocr_ext.loop.hooks.metric_writers import LineScalars, Writer
from ppocr_ext.messages import LOG, metric_text
from ppocr_ext.metrics import space_note
from ppocr_ext.report.run_folder import METRICS_FILE, metrics_line, short_loss_name
from ppocr_ext.run.run import Run, Training


class Window:
    """Add up the values of steps; the losses stay on the device until :meth:`means` returns their means.

    Args:
        state: the state of a window that a resumed run continues. Its images and time are counted anew.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        before = state or {"steps": 0, "applied": 0, "lr": 0.0, "sums": {}, "values": {}}
        self.steps: int = before["steps"]
        self._applied: int = before["applied"]
        self._lr: float = before["lr"]
        self._images = 0
        self._sums: dict[str, Any] = {name: paddle.to_tensor(total) for name, total in before["sums"].items()}
        self._values: dict[str, list[float]] = {
            name: [*numbers] for name, numbers in before["values"].items()
        }
        self._began = self._last_step = time.perf_counter()

    def add(self, step: StepDone) -> None:
        """Add one step. A step that changed no weights counts only for the speed."""
        self._applied += step.applied
        for name, value in step.losses.items() if step.applied else ():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        for name, number in step.values.items() if step.applied else ():
            if math.isfinite(number):  # mixed precision skips a step whose norm is infinite
                self._values.setdefault(name, []).append(number)
        self.steps += 1
        self._images += step.images
        self._lr = step.lr
        self._last_step = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """Return the state for a resumed run; empty if the window has no step."""
        if not self.steps:
            return {}
        sums = {name: total.astype("float32").numpy() for name, total in self._sums.items()}
        counts = {"steps": self.steps, "applied": self._applied, "lr": self._lr}
        return {**counts, "sums": sums, "values": self._values}

    def leave_out_pause(self) -> None:
        """Exclude the time since the last step (an evaluation) from the speed."""
        now = time.perf_counter()
        self._began += now - self._last_step
        self._last_step = now

    def means(self) -> tuple[dict[str, Any], float]:
        """Return the means for ``metrics.jsonl``, and the seconds of a step."""
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        losses = {name: float(total.mean()) / self._applied for name, total in self._sums.items()}
        means = {
            "lr": self._lr,
            "loss": losses.pop("loss", None),
            "losses": losses,
            "ips": round(self._images / elapsed, 2),
            **{name: math.fsum(numbers) / len(numbers) for name, numbers in self._values.items()},
        }
        if self._applied < self.steps:
            means["skipped"] = self.steps - self._applied
        return means, elapsed / self.steps


class MetricsLog(Hook):
    """Write ``metrics.jsonl`` into the run folder (a hook of process 0).

    A train line: ``{"kind": "train", "epoch", "step", "time", "lr", "loss", "losses": {…}, "ips", "grad_norm",
    "blank_share"}``; losses, ``grad_norm`` and ``blank_share`` are means over the window. An eval line:
    ``{"kind": "eval", "epoch", "step", "time", "acc", "norm_edit_dis", …}``. ``time``: seconds of training so far.
    A number that is not finite is written as ``null``. The writers receive every line, so they show the same numbers.

    Args:
        every: steps in a window.
        writers: the writers, which this hook opens, gives all lines, and closes.
        show: called with the position, the means and the seconds of a step at the end of each window.
    """

    def __init__(self, every: int, writers: Sequence[Writer], show: Callable[..., None]) -> None:
        self._every = every
        self._writers = writers
        self._show = show

    def on_start(self, run: Run, training: Training) -> None:
        path = run.context.folder / METRICS_FILE
        window = training.hook_states.get(type(self).__name__)
        earlier = []
        if run.context.config.settings.checkpoints:
            earlier = _lines_until(path, training.start.global_step, window["steps"] if window else 0)
        self._before = earlier[-1]["time"] if earlier else 0.0  # seconds of training before this process
        indicator = run.metric.main_indicator
        self._scalars = LineScalars(indicator)
        for writer in self._writers:  # before the file changes: a writer may fail
            writer.open(run.context.folder, run.context.config)
        now = time.time()
        for line in earlier:
            self._pass_on(line, now - self._before + line["time"])
        best = training.best.get(indicator)
        if best is not None and not math.isnan(float(best)):
            self._scalars.best = max(float(best), self._scalars.best or 0.0)
        write_text(path, "".join(json.dumps(line) + "\n" for line in earlier))
        self._file = path.open("a", encoding="utf-8")
        self._began = time.perf_counter()
        self._window = Window(window)
        LOG.info("training begins; a line follows after every %d steps", self._every)

    def state(self) -> Mapping[str, Any]:
        return self._window.state()

    def on_step(self, step: StepDone) -> None:
        self._window.add(step)
        if self._window.steps >= self._every:
            means, seconds = self._window.means()
            self._window = Window()
            self._write("train", step.position, means)
            self._show(step.position, means, seconds)

    def on_eval(self, result: EvalDone) -> None:
        self._window.leave_out_pause()
        self._write("eval", result.position, {**result.metrics, "is_best": result.is_best})

    def on_end(self, outcome: Outcome) -> None:
        with ExitStack() as ends:  # close all, even if one raises
            for writer in self._writers:
                ends.callback(writer.close, outcome)
            ends.callback(self._file.close)
            # The mean of a few steps would be a spike in the curves.
            if 2 * self._window.steps >= self._every:
                self._write("train", outcome.position, self._window.means()[0])

    def _write(self, kind: str, position: Position, values: Mapping[str, Any]) -> None:
        elapsed = round(self._before + time.perf_counter() - self._began, 2)
        where = {"epoch": position.current_epoch, "step": position.global_step, "time": elapsed}
        text = json.dumps({"kind": kind, **where, **values})
        line = json.loads(text, parse_constant=lambda constant: None)  # NaN and Infinity are not JSON
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._pass_on(line, time.time())

    def _pass_on(self, line: Mapping[str, Any], when: float) -> None:
        scalars = self._scalars.of(line)
        for writer in self._writers:
            writer.write(scalars, line["step"], when)


def _lines_until(path: Path, step: int, unwritten: int) -> list[dict[str, Any]]:
    """Return the lines of an earlier process up to ``step``; later steps are done again.

    The last ``unwritten`` steps belong to a window that is still open; lines within it are left out too.
    """
    if not path.is_file():
        return []
    lines = []
    for text in read_text(path).splitlines():
        if line := metrics_line(text):
            lines.append(line)
        else:  # the process was killed while it wrote
            LOG.warning("%s: skipped a line that was cut off", path)
    last = {"train": step - unwritten}
    return [line for line in lines if line["step"] <= last.get(line["kind"], step)]


class ProgressBar(Hook):
    """Show epoch, step, parts of the loss, learning rate, images per second and time left (a hook of process 0).

    On a terminal there is a bar too. :class:`MetricsLog` calls :meth:`show` at the end of each window.
    """

    _seconds = 0.0  # seconds of one step, smoothed; the time left is computed from it

    def on_start(self, run: Run, training: Training) -> None:
        if note := space_note(run.metric):
            LOG.info("acc of the evaluations: %s", note)
        # disable=None shows the bar only if standard error is a terminal.
        self._bar = tqdm(
            total=training.start.total_steps,
            initial=training.start.global_step,
            # Without steps per second, since the text has images per second.
            bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
            dynamic_ncols=True,
            disable=None,
        )

    def on_step(self, step: StepDone) -> None:
        self._bar.update(1)

    def show(self, position: Position, means: Mapping[str, Any], seconds: float) -> None:
        """Show the means of a window that ends at ``position``; a step takes so many ``seconds``."""
        self._seconds = 0.7 * self._seconds + 0.3 * seconds if self._seconds else seconds
        epoch = f"epoch {position.current_epoch}/{position.epochs}"
        loss, parts = _format_losses(means)
        speed = f"lr {means['lr']:.3g}  {means['ips']:.1f} images/s"
        self._bar.set_description(epoch)
        self._bar.set_postfix_str(f"{loss}  {speed}{parts}")  # a narrow terminal cuts the end off
        done = position.global_step
        total = position.total_steps
        left = datetime.timedelta(seconds=round((total - done) * self._seconds))
        line = f"{epoch}  step {done}/{total}  {loss}{parts}  {speed}  eta {left}"
        # A terminal with a bar does not need the line, so only the log file gets it.
        LOG.info(line, extra={"file_only": not self._bar.disable})

    def on_eval(self, result: EvalDone) -> None:
        # Measurements of hooks are in metrics.jsonl only.
        names = [name for name in result.metrics if name != "fps" and not name.startswith("nrtr_")]
        numbers = ", ".join(metric_text(name, result.metrics[name]) for name in names if "_epoch" not in name)
        mark = "  (best so far)" if result.is_best else ""
        when = f"step {result.position.global_step}{' (the start weights)' if result.is_start else ''}"
        LOG.info("eval at %s: %s%s", when, numbers, mark)

    def on_end(self, outcome: Outcome) -> None:
        self._bar.close()


def _format_losses(means: Mapping[str, Any]) -> tuple[str, str]:
    """Return texts such as ``loss 1.23`` and `` (ctc 0.90, nrtr 0.33)``; the second is empty for a single loss."""
    parts = [f"{short_loss_name(n)} {v:.3g}" for n, v in means["losses"].items()]
    total = f"loss {math.nan if means['loss'] is None else means['loss']:.4g}"
    return total, f" ({', '.join(parts)})" if len(parts) > 1 else ""
