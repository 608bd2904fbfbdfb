"""Commands of an experiment, each in its own process, and the table of its models. What is finished is kept."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from benchmarks.table import markdown, mean

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.evaluation.uncertainty import Changes
from ppocr_ext.messages import command_line
from ppocr_ext.run.logs import set_up_console

T = TypeVar("T")
_LOG = logging.getLogger("ppocr_ext")
_STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_STOPPED = (*(-number for number in _STOPPING), *(128 + number for number in _STOPPING))  # exit codes
_TAIL = 12  # lines of a process's output that an error shows


class RunFailedError(PPOCRExtError):
    """A command of an experiment ended with an error; the message has the end of its log."""


class RunStopped(Exception):  # noqa: N818 - the user decided it
    """A signal stopped a run; its state is saved."""


@dataclass(frozen=True)
class Training:
    """A training run: its folder, its config files, and values laid over them (by the path of the key)."""

    folder: Path
    configs: tuple[Path, ...]
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def latest(self) -> Path:
        """The checkpoint after the last step."""
        return self.folder / "latest"

    def options(self) -> list[str]:
        """Return ``-c`` and ``-o`` for a command about this run."""
        values = {**self.values, "Global.save_model_dir": str(self.folder)}
        files = [str(path) for path in self.configs]
        return ["-c", *files, "-o", *(f"{key}={json.dumps(value)}" for key, value in values.items())]

    def finished(self) -> bool:
        """Return whether the run reached its end."""
        record = self.folder / "run.json"
        return record.is_file() and json.loads(record.read_text(encoding="utf-8"))["status"] == "finished"


def train(run: Training, threads: int = 1) -> Training:
    """Train with so many threads, or continue; a finished run is left as it is."""
    if not run.finished():
        saved = Checkpoint(run.latest).file(".pdparams").is_file()
        more = [f"Global.checkpoints={run.latest}"] if saved else ["--overwrite"]
        command("train", [*run.options(), *more], run.folder.with_name(f"{run.folder.name}.log"), threads)
    return run


def read_lines(run: Training, data: Path, output: Path) -> Path:
    """Read the lines of ``data`` with the last checkpoint of a run; return the file of predictions."""
    if not output.is_file():
        values = {
            "Global.checkpoints": str(run.latest),
            "Eval.dataset.data_dir": str(data),
            "Eval.dataset.label_file_list": [str(data / "val_list.txt")],
        }
        reading = Training(run.folder, run.configs, {**run.values, **values})
        output.parent.mkdir(parents=True, exist_ok=True)
        command("eval", [*reading.options(), "--save-predictions", str(output)], output.with_suffix(".log"))
    return output


def compare(runs: Mapping[str, Sequence[Training]], test: Path, base: str) -> str:
    """Read test lines with all runs; return a table of the lines that they read without error.

    Args:
        runs: of each model, one for each seed.
        test: folder of the lines.
        base: the model that the others are compared with, seed by seed.
    """
    right = {
        name: [
            [line.correct for line in read_predictions(read_lines(run, test, run.folder / "test.tsv"))]
            for run in seeds
        ]
        for name, seeds in runs.items()
    }
    rows = []
    for name, seeds in runs.items():
        record = json.loads((seeds[0].folder / "run.json").read_text(encoding="utf-8"))
        shares = [100 * sum(each) / len(each) for each in right[name]]
        row = [name, f"{record['parameters']['trained'] / 1e6:.2f} M", str(record["global_step"])]
        row += [f"{mean(shares, 1)} %", ", ".join(f"{share:.1f}" for share in shares)]
        pairs = list(zip(right[base], right[name], strict=False)) if name != base else []
        row.append(", ".join(f"{100 * (sum(b) / len(b) - sum(a) / len(a)):+.1f}" for a, b in pairs))
        rows.append([*row, ", ".join(f"{Changes.of(a, b).p_value:.2g}" for a, b in pairs)])
    head = ["model", "trained parameters", "steps", "test lines right", "each seed"]
    return markdown([*head, f"against {base}, by seed", "McNemar's p, by seed"], rows)


def choose_images(data: Path, folder: Path, count: int, seed: int) -> Path:
    """Copy ``count`` images of ``data``, chosen by the seed, with the files of their text to ``folder``; return it."""
    files: dict[str, list[Path]] = {}
    for file in sorted(each for each in data.iterdir() if each.is_file()):
        files.setdefault(file.name.partition(".")[0], []).append(file)
    folder.mkdir(parents=True, exist_ok=True)
    names = list(files)
    for number in np.random.default_rng(seed).permutation(len(names))[:count]:
        for file in files[names[number]]:
            shutil.copyfile(file, folder / file.name)
    return folder


def draw_data_and_test(
    kind: str, folder: Path, counts: tuple[int, int, int], options: Sequence[str] = ()
) -> None:
    """Draw ``counts`` images to train and validate (in ``data`` of the folder) and to test on (in ``test``).

    ``kind`` is ``captcha`` or ``lines``; ``options`` are further options of ``make-dataset``. Existing images stay.
    """
    train, validation, test = map(str, counts)
    for name, words in (
        ("data", ["--train", train, "--val", validation, "--seed", "1"]),
        ("test", ["--train", "0", "--val", test, "--seed", "2"]),
    ):
        arguments = [kind, "--out", str(folder / name), *words, *options]
        command("make-dataset", arguments, folder / f"{name}.log")


def command(name: str, arguments: Sequence[str], log: Path, threads: int = 1) -> None:
    """Run ``ppocr-ext NAME …`` with so many threads, and append its output to ``log``.

    Raises:
        RunFailedError: it ended with an error.
        RunStopped: a signal stopped it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    call = [sys.executable, "-m", "ppocr_ext.cli.main", name, *arguments]
    here = str(Path(__file__).resolve().parents[2])  # the package of this clone
    paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": paths}
    with log.open("a", encoding="utf-8") as stream:
        code = exit_code(call, stream, environment)
    if code in _STOPPED:
        raise RunStopped
    if code:
        end = "\n".join(log.read_text(encoding="utf-8").splitlines()[-_TAIL:])
        failed = command_line(name, *arguments)
        raise RunFailedError(f"exit code {code} of: {failed}\nThe end of {log}:\n{end}", code="run_failed")


def exit_code(call: Sequence[str], output: IO[str], environment: Mapping[str, str]) -> int:
    """Run a process to its end, also after Ctrl-C: the terminal sends the signal to both, and the child saves."""
    process = subprocess.Popen(call, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()  # `subprocess.run` would kill it after a quarter of a second
        raise


def side_by_side(jobs: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """Do ``jobs``, ``at_once`` at a time, and return their results in the order of the jobs.

    After the first error, or Ctrl-C, no further job begins. An error is logged when it happens, and raised when all
    running jobs have ended. Errors come before :class:`RunStopped`.
    """
    ended = threading.Event()
    faults: list[BaseException] = []

    def begin(job: Callable[[], T]) -> T:
        if ended.is_set():
            raise CancelledError
        try:
            return job()
        except BaseException as fault:
            ended.set()  # before this thread takes the next job
            faults.append(fault)
            if not isinstance(fault, RunStopped):
                _LOG.error("%s\nThe other running jobs continue to their end first.", fault)
            raise

    with ThreadPoolExecutor(at_once) as pool:
        try:
            futures = [pool.submit(begin, job) for job in jobs]
            wait(futures)
        finally:
            ended.set()
    if faults:
        raise next((fault for fault in faults if not isinstance(fault, RunStopped)), faults[0])
    return [future.result() for future in futures]


def experiment_parser(doc: str | None, folder: str, seeds: str) -> argparse.ArgumentParser:
    """Return a parser with ``--out`` (default: ``folder``), ``--seeds`` (of what ``seeds`` says) and ``--at-once``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=Path(folder), metavar="DIR", help=f"folder of all files ({folder})")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help=f"{seeds} (1 2 3)")
    add("--at-once", type=int, default=2, metavar="N", help="runs at a time (2)")
    return parser


def from_command_line(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], object]) -> int:
    """Run an experiment and print its table; return 0, 2 after an error, or 130 if a signal stopped a run."""
    args = parser.parse_args()
    if args.at_once < 1:
        parser.error("--at-once must be at least 1")
    set_up_console()
    try:
        print(f"\n{run(args)}")
    except PPOCRExtError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, RunStopped):
        again = shlex.join([sys.executable, *sys.argv])
        print(f"\nstopped and saved; continue with: {again}", file=sys.stderr)
        return 130
    return 0
