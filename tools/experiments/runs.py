"""Training runs and readings of an experiment, each a process of its own; what is finished is kept."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.messages import command_line
from ppocr_ext.run.logs import set_up_console

T = TypeVar("T")
_LOG = logging.getLogger("ppocr_ext")
_STOPPING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_STOPPED = (*(-number for number in _STOPPING), *(128 + number for number in _STOPPING))  # exit codes
_TAIL = 12  # lines of a process's output that an error shows


class RunFailedError(PPOCRExtError):
    """A run of an experiment ended with an error; the message has the end of what it said."""


class RunStopped(Exception):  # noqa: N818 - a decision of the user's, not an error
    """A signal stopped a run, which was saved."""


@dataclass(frozen=True)
class Training:
    """A training run.

    Attributes:
        folder: of the run.
        configs: files, laid over one another.
        values: path of a key to its value, over the configs.
    """

    folder: Path
    configs: tuple[Path, ...]
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def latest(self) -> Path:
        """The checkpoint after the last step."""
        return self.folder / "latest"

    def options(self) -> list[str]:
        """``-c`` and ``-o`` of a command about this run."""
        values = {**self.values, "Global.save_model_dir": str(self.folder)}
        files = [str(path) for path in self.configs]
        return ["-c", *files, "-o", *(f"{key}={json.dumps(value)}" for key, value in values.items())]

    def finished(self) -> bool:
        """Whether the run came to its end."""
        record = self.folder / "run.json"
        return record.is_file() and json.loads(record.read_text(encoding="utf-8"))["status"] == "finished"


def train(run: Training, threads: int = 1) -> Training:
    """Train, or go on; a finished run is left as it is.

    Args:
        run: what to train.
        threads: of Paddle's operators.

    Raises:
        RunFailedError: it ended with an error.
        RunStopped: by a signal.
    """
    if run.finished():
        return run
    before = Checkpoint(run.latest).file(".pdparams").is_file()
    more = [f"Global.checkpoints={run.latest}"] if before else ["--overwrite"]
    command("train", [*run.options(), *more], run.folder.with_name(f"{run.folder.name}.log"), threads)
    return run


def read_lines(run: Training, data: Path, output: Path) -> Path:
    """Read the lines of ``data`` with the last checkpoint of a run; the file of predictions.

    Raises:
        RunFailedError: it ended with an error.
    """
    if not output.is_file():
        values = {
            "Global.checkpoints": str(run.latest),
            "Eval.dataset.data_dir": str(data),
            "Eval.dataset.label_file_list": [str(data / "val_list.txt")],
        }
        chosen = Training(run.folder, run.configs, {**run.values, **values})
        output.parent.mkdir(parents=True, exist_ok=True)
        command("eval", [*chosen.options(), "--save-predictions", str(output)], output.with_suffix(".log"))
    return output


def draw_data_and_test(
    kind: str, folder: Path, counts: tuple[int, int, int], options: Sequence[str] = ()
) -> None:
    """Draw the images to train and to validate on into ``data`` of a folder, those to test on into ``test``.

    Args:
        kind: of ``ppocr-ext make-dataset``, which keeps what exists.
        folder: of the experiment.
        counts: of images to train, validate and test on.
        options: more of that command.

    Raises:
        RunFailedError: it ended with an error.
        RunStopped: by a signal.
    """
    train, validation, test = map(str, counts)
    for name, wanted in (
        ("data", ["--train", train, "--val", validation, "--seed", "1"]),
        ("test", ["--train", "0", "--val", test, "--seed", "2"]),
    ):
        arguments = [kind, "--out", str(folder / name), *wanted, *options]
        command("make-dataset", arguments, folder / f"{name}.log")


def command(name: str, arguments: Sequence[str], log: Path, threads: int = 1) -> None:
    """Run ``ppocr-ext NAME …``; what it prints goes into ``log``.

    Args:
        name: of the command.
        arguments: after it.
        log: a file; what is there stays.
        threads: of Paddle's operators.

    Raises:
        RunFailedError: it ended with an error.
        RunStopped: by a signal.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    call = [sys.executable, "-m", "ppocr_ext.cli.main", name, *arguments]
    here = str(Path(__file__).resolve().parents[2])  # this package, whichever is installed
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
    """Run a process to its end, also where Ctrl-C ends this one: it has had the signal too, and is saving."""
    process = subprocess.Popen(call, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()  # `subprocess.run` would kill it after a quarter of a second
        raise


def side_by_side(jobs: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """Results of ``jobs`` in their order, ``at_once`` running at a time.

    After the first error, or Ctrl-C, no further one begins. An error is logged when it happens and raised when those
    that run have ended; that a run was stopped gives way to an error of another.
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
                _LOG.error("%s\nWhat else runs comes to its end first.", fault)
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
    """Return a parser with the options of every experiment: ``--out``, ``--seeds`` and ``--at-once``.

    Args:
        doc: of the script, its help.
        folder: default of ``--out``.
        seeds: what the seeds are of.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, default=Path(folder), metavar="DIR", help=f"folder of all files ({folder})")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="N", help=f"{seeds} (1 2 3)")
    add("--at-once", type=int, default=2, metavar="N", help="runs at a time (2)")
    return parser


def from_command_line(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], object]) -> int:
    """Run an experiment with the options of the command line, and print its results; return the exit code.

    It is 0, 2 after an error, or 130 if a signal stopped a run.
    """
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
