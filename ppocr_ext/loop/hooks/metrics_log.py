"""Write ``metrics.jsonl``: a line per window of steps and per evaluation; the source of all curves and writers."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import paddle.distributed as dist

from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position, StepDone
from ppocr_ext.loop.hooks.metric_writers import LineScalars, Writer
from ppocr_ext.loop.hooks.window import Window
from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")


class MetricsLog(Hook):
    """Write ``metrics.jsonl`` into the run folder (rank 0 only).

    A train line: ``{"kind": "train", "epoch", "step", "time", "lr", "loss", "losses": {…}, "ips"}``;
    losses are means over the window. An eval line: ``{"kind": "eval", "epoch", "step", "time",
    "acc", "norm_edit_dis", …}``. ``time`` is seconds of training so far. A number that is not
    finite is written as ``null``. Writers receive every line, so that numbers are computed in one place.

    Args:
        every: steps in a window (``Global.print_batch_step``).
        writers: they are opened, receive the lines, and are closed.
    """

    def __init__(self, every: int, writers: Sequence[Writer] = ()) -> None:
        self._every = max(1, every)
        self._writers = tuple(writers)
        self._open_writers: list[Writer] = []
        self._scalars = LineScalars("acc")
        self._window = Window()
        self._file: TextIO | None = None
        self._before = 0.0  # seconds of training before this process
        self._began = 0.0

    def on_start(self, run: Run, position: Position) -> None:
        if dist.get_rank() != 0:
            return
        path = run.folder / "metrics.jsonl"
        kept = _lines_until(path, position.global_step)
        self._before = kept[-1]["time"] if kept else 0.0
        self._open_all(run, kept)  # one that cannot be opened leaves the record of an earlier run as it is
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", encoding="utf-8")
        self._began = time.perf_counter()
        self._window = Window()

    def _open_all(self, run: Run, kept: Sequence[Mapping[str, Any]]) -> None:
        self._scalars = LineScalars(run.metric.main_indicator)
        now = time.time()
        for writer in self._writers:
            writer.open(run.folder, run.config)
            self._open_writers.append(writer)
        for line in kept:
            self._hand_on(line, now - self._before + line["time"])
        before = run.best.get(run.metric.main_indicator)
        if before is not None and not math.isnan(float(before)):
            self._scalars.best = max(float(before), self._scalars.best or 0.0)

    def on_step(self, step: StepDone) -> None:
        self._window.add(step)
        if self._window.steps >= self._every:
            self._write_window(step.position)

    def _write_window(self, position: Position) -> None:
        means = self._window.close()
        self._write(
            {
                "kind": "train",
                **self._where(position),
                "lr": means.lr,
                "loss": means.losses.get("loss"),
                "losses": {k: v for k, v in means.losses.items() if k != "loss"},
                "ips": round(means.images_per_second, 2),
            }
        )

    def on_eval(self, result: EvalDone) -> None:
        self._window.leave_out_pause()
        self._write({"kind": "eval", **self._where(result.position), **result.metrics})

    def on_end(self, outcome: Outcome) -> None:
        with ExitStack() as ends:  # all of them, whatever one raises
            for writer in self._open_writers:
                ends.callback(writer.close, outcome)
            if self._file is not None:
                ends.callback(self._file.close)
            # the mean of a few steps would be a spike in the curves
            if 2 * self._window.steps >= self._every:
                self._write_window(outcome.position)
        self._file, self._open_writers = None, []

    def _where(self, position: Position) -> dict[str, Any]:
        elapsed = self._before + time.perf_counter() - self._began
        return {"epoch": position.current_epoch, "step": position.global_step, "time": round(elapsed, 2)}

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            finite = _finite(line)
            self._file.write(json.dumps(finite) + "\n")
            self._file.flush()
            self._hand_on(finite, time.time())

    def _hand_on(self, line: Mapping[str, Any], when: float) -> None:
        if self._open_writers:
            scalars = self._scalars.of(line)
            for writer in self._open_writers:
                writer.write(scalars, line["step"], when)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _lines_until(path: Path, step: int) -> list[dict[str, Any]]:
    """Return the lines of an earlier process up to ``step``; the steps after it are done again."""
    if not path.is_file() or step == 0:
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:  # cut off when the process was killed
            _LOG.warning("%s: a line that was cut off is left out", path)
    return [line for line in lines if line["step"] <= step]
