"""Write ``metrics.jsonl``: a line per window of steps and per evaluation; the source of all curves and writers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position, StepDone
from ppocr_ext.loop.hooks.metric_writers import LineScalars, Writer
from ppocr_ext.messages import LOG
from ppocr_ext.report.run_folder import METRICS_FILE, metrics_line
from ppocr_ext.run.run import Run


class Window:
    """Add up steps until :meth:`close` returns their means, without a device sync at every step.

    Args:
        state: of a window that a resumed run goes on with; images and time count anew.
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
        """Add one step; the losses stay on the device. One without effect counts only for the speed."""
        self._applied += step.applied
        for name, value in step.losses.items() if step.applied else ():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        for name, number in step.values.items() if step.applied else ():
            if math.isfinite(number):  # an overflow that the scaler of mixed precision handles is not
                self._values.setdefault(name, []).append(number)
        self.steps += 1
        self._images += step.images
        self._lr = step.lr
        self._last_step = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """Return what a resumed run goes on with; empty if the window has no step."""
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

    def close(self) -> tuple[dict[str, Any], float]:
        """Return the means of the window as ``metrics.jsonl`` has them, and the seconds of a step; begin a new window.

        A step without effect counts only for the speed. Evaluations do not.
        """
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
        seconds = elapsed / max(self.steps, 1)
        self.__init__()  # type: ignore[misc]
        return means, seconds


class MetricsLog(Hook):
    """Write ``metrics.jsonl`` into the run folder (a hook of rank 0).

    A train line: ``{"kind": "train", "epoch", "step", "time", "lr", "loss", "losses": {…}, "ips", "grad_norm",
    "blank_share"}``; losses, ``grad_norm`` and ``blank_share`` are means over the window. An eval line:
    ``{"kind": "eval", "epoch", "step", "time", "acc", "norm_edit_dis", …}``. ``time`` is seconds of training so far. A
    number that is not finite is written as ``null``. Writers receive every line, so that numbers are computed in one
    place.

    Args:
        every: steps in a window (``Global.print_batch_step``).
        writers: they are opened, receive the lines, and are closed.
    """

    def __init__(self, every: int, writers: Sequence[Writer] = ()) -> None:
        self._every = every
        self._writers = writers

    def on_start(self, run: Run, position: Position) -> None:
        path = run.folder / METRICS_FILE
        window = run.hook_states.get(type(self).__name__)
        resumed = run.config.settings.checkpoints
        earlier = (
            _lines_until(path, position.global_step, window["steps"] if window else 0) if resumed else []
        )
        self._before = earlier[-1]["time"] if earlier else 0.0  # seconds of training before this process
        indicator = run.metric.main_indicator
        self._scalars = LineScalars(indicator)
        for writer in self._writers:  # one that cannot be opened leaves the record of an earlier run as it is
            writer.open(run.folder, run.config)
        now = time.time()
        for line in earlier:
            self._pass_on(line, now - self._before + line["time"])
        best = run.best.get(indicator)
        if best is not None and not math.isnan(float(best)):
            self._scalars.best = max(float(best), self._scalars.best or 0.0)
        write_text(path, "".join(json.dumps(line) + "\n" for line in earlier))
        self._file = path.open("a", encoding="utf-8")
        self._began = time.perf_counter()
        self._window = Window(window)

    def state(self) -> Mapping[str, Any]:
        return self._window.state()

    def on_step(self, step: StepDone) -> None:
        self._window.add(step)
        if self._window.steps >= self._every:
            self._write("train", step.position, self._window.close()[0])

    def on_eval(self, result: EvalDone) -> None:
        self._window.leave_out_pause()
        self._write("eval", result.position, result.metrics)

    def on_end(self, outcome: Outcome) -> None:
        with ExitStack() as ends:  # all of them, even if one raises
            for writer in self._writers:
                ends.callback(writer.close, outcome)
            ends.callback(self._file.close)
            # the mean of a few steps would be a spike in the curves
            if 2 * self._window.steps >= self._every:
                self._write("train", outcome.position, self._window.close()[0])

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
    """Return the lines of an earlier process up to ``step``; the steps after it are done again.

    The last ``unwritten`` steps before it belong to a window that will be written: a line of a part of it goes.
    """
    if not path.is_file():
        return []
    lines = []
    for text in read_text(path).splitlines():
        if line := metrics_line(text):
            lines.append(line)
        else:  # cut off when the process was killed
            LOG.warning("%s: skipped a line that was cut off", path)
    last = {"train": step - unwritten}
    return [line for line in lines if line["step"] <= last.get(line["kind"], step)]
