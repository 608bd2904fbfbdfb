#!/usr/bin/env python3
"""Kill a training again and again, and check what each kill leaves.

A small network trains on drawn CAPTCHAs and saves `latest` after each step. Each process is killed (SIGKILL) after a
few saves: every second process during a save, the others at any moment. The next process resumes from `latest`. After
each kill this is checked: the three files load and belong together, no saved step is lost, the folder is not locked,
and the temporary files of the previous kill are gone. At the end, weights and optimizer state must be equal, bit by
bit, to those of a run without a kill.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import RunFailedError  # noqa: E402
from ppocr_ext.checkpoint.checkpoints import Checkpoint  # noqa: E402
from ppocr_ext.config import Config, load  # noqa: E402
from ppocr_ext.errors import PPOCRExtError  # noqa: E402
from ppocr_ext.host import open_host  # noqa: E402
from ppocr_ext.io.resources import config_path  # noqa: E402
from ppocr_ext.loop.events import Hook, StepDone  # noqa: E402
from ppocr_ext.loop.session import train  # noqa: E402

_MOST_SAVES = 4  # of a process before its kill
_STEP, _SAVE = 0.1, 0.01  # seconds; a kill comes at a random moment of them
_PATIENCE = 120.0  # seconds to wait for a save
_SMALL = {
    "Global.use_gpu": False,
    "Global.report": False,
    "Global.dry_step": False,
    "Global.epoch_num": 2000,
    "Global.save_minutes": 1e-9,
    "Train.dataset.size": 64,
    "Train.loader.batch_size_per_card": 4,
    "Train.loader.num_workers": 0,
    "Eval": None,
    "Architecture.Backbone.dims": [8, 16, 16],
    "Architecture.Backbone.num_heads": [1, 1, 1],
}


class StopAt(Hook):
    """Stop the run after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, step: StepDone) -> None:
        """Ask for the stop."""
        if step.position.global_step == self._step:
            signal.raise_signal(signal.SIGTERM)


def kill_often(folder: Path, kills: int, seed: int) -> str:
    """Train in ``folder``, with so many kills at moments drawn from ``seed``; return the result in words."""
    (folder / "dict.txt").write_text("\n".join("0123456789") + "\n", encoding="utf-8")
    values = {**_SMALL, "Global.character_dict_path": str(folder / "dict.txt")}
    config = load([config_path("quickstart/student.yml")]).with_values(values)
    open_host()  # imported once for all processes
    run, moments = folder / "run", random.Random(seed)
    sizes: list[int] = []
    leftovers: set[Path] = set()
    for number in range(kills + 1):
        before = _step(run)
        child = _start(config, run, folder / "log.txt")
        for _ in range(moments.randint(2, _MOST_SAVES)):
            _wait_for_save(child, run)
        if leftovers & set(run.glob(".*.tmp")):
            raise RunFailedError(
                f"{run} still has {sorted(leftovers)} of the previous kill.", code="run_failed"
            )
        if number == kills:
            break
        if number % 2 == 0:
            _wait(child, lambda: any(run.glob(".latest.*.tmp")))
        time.sleep(moments.uniform(0, _STEP if number % 2 else _SAVE))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        leftovers = set(run.glob(".*.tmp"))
        sizes.append(sum(file.stat().st_size for file in leftovers))
        if _step(run) < before:
            raise RunFailedError(f"{run}: step {before} was saved, and is lost.", code="run_failed")
    os.kill(child, signal.SIGTERM)
    _expect_stop(child, folder)
    steps = _step(run)
    _expect_stop(_start(config, folder / "whole", folder / "log.txt", StopAt(steps)), folder)
    _require_equal(Checkpoint(run / "latest"), Checkpoint(folder / "whole" / "latest"))
    return (
        f"{kills} of {kills} kills survived; {sum(map(bool, sizes))} hit a save and left up to "
        f"{max(sizes, default=0) / 1e6:.1f} MB, {len(list(run.glob('.*.tmp')))} temporary files at the end; "
        f"after {steps} steps all bits are those of a run without a kill"
    )


def _step(run: Path) -> int:
    """Read the three files of `latest`, and return its step; 0 if there is no file."""
    checkpoint = Checkpoint(run / "latest")
    if not checkpoint.file(".pdparams").is_file():
        return 0
    checkpoint.weights()
    checkpoint.optimizer_state()
    return checkpoint.train_state().position.global_step


def _start(config: Config, run: Path, log: Path, *hooks: Hook) -> int:
    """Train in a forked process, from `latest` if it exists; return the process id."""
    values: dict[str, object] = {"Global.save_model_dir": str(run)}
    if (run / "latest.pdparams").is_file():
        values["Global.checkpoints"] = str(run / "latest")
    if hooks:
        values["Global.save_minutes"] = 0
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with log.open("a", encoding="utf-8") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            code = 128 + (train(config.with_values(values), hooks=hooks).signal or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait_for_save(child: int, run: Path) -> None:
    file = run / "latest.states"
    before = file.stat().st_mtime_ns if file.is_file() else 0
    _wait(child, lambda: file.is_file() and file.stat().st_mtime_ns != before)


def _wait(child: int, ready: Callable[[], bool]) -> None:
    """Wait until ``ready`` is true; fail if the process ends before, or after two minutes."""
    begin = time.monotonic()
    while not ready():
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or time.monotonic() - begin > _PATIENCE:
            raise RunFailedError(f"no save (status {status}).", code="run_failed")
        time.sleep(0.001)


def _expect_stop(child: int, folder: Path) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 128 + signal.SIGTERM:
        raise RunFailedError(f"{folder}: exit code {code} after SIGTERM; see log.txt.", code="run_failed")


def _require_equal(one: Checkpoint, other: Checkpoint) -> None:
    arrays = [_arrays(checkpoint.weights()) for checkpoint in (one, other)]
    states = [_arrays(checkpoint.optimizer_state() or {}) for checkpoint in (one, other)]
    if arrays[0] != arrays[1] or states[0] != states[1]:
        raise RunFailedError(
            f"{one.prefix} differs from {other.prefix}, a run without a kill.", code="run_failed"
        )


def _arrays(state: Mapping[str, object]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in state.items() if isinstance(value, np.ndarray)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="(50)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the moments (1)")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        try:
            print(kill_often(Path(name), args.kills, args.seed))
        except PPOCRExtError as error:
            log = Path(name) / "log.txt"
            end = log.read_text(encoding="utf-8")[-3000:] if log.is_file() else ""
            print(f"error: {error}\n{end}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
