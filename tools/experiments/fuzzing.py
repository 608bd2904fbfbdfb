#!/usr/bin/env python3
"""Damage files of every kind that the commands read, and check how the commands end.

Each input is one damaged file (`damage.py`) and one command that reads it, in a copy of a small project. Checked: the
exit code is one that the command documents; no internal error, no traceback; peak memory and CPU time; no control
character in the output; nothing outside of the copy changes. The commands run in child processes, many inputs in each,
so a crash or a hang only costs one child, and is counted.

`python tools/experiments/fuzzing.py --minutes 60` continues for an hour. Each input follows from `--seed`, its kind and
its number: `--only run.json --first 17 --inputs 1 --debug` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from benchmarks.memory import PeakGrowth  # noqa: E402
from benchmarks.table import markdown  # noqa: E402

from experiments.damage import damage  # noqa: E402
from experiments.fuzzing_project import make_project  # noqa: E402
from ppocr_ext.characters.center_table import read_centers  # noqa: E402
from ppocr_ext.cli.main import _report_error  # noqa: E402
from ppocr_ext.cli.main import main as run_command  # noqa: E402
from ppocr_ext.host import open_host  # noqa: E402
from ppocr_ext.recognition.images import read_image  # noqa: E402
from ppocr_ext.teacher_cache.store import read_facts  # noqa: E402

MEMORY = 1536  # MiB that an input may add to the process
SECONDS = 30.0  # of CPU time, for one input
WHOLE = -1  # number of the undamaged input, which must not be an error
HANG = 120.0  # seconds without an answer
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BATCH = (50, 3)  # inputs of a child, and of a slow one: Paddle keeps memory after its check of values
_IN_CI = (24, 3)  # inputs of a kind, of a slow one


@dataclass(frozen=True)
class Subject:
    """A kind of file, and what reads it."""

    file: str  # in the project
    reader: str | Callable[[Path], object]  # words of a command, or a function
    codes: tuple[int, ...] = (0, 2)  # exit codes that the command documents; an error has 2
    slow: bool = False  # it builds a network

    @property
    def kind(self) -> str:
        """The name in the table."""
        verb = self.reader.split()[0] if isinstance(self.reader, str) else "read"
        return f"{verb} {self.file}"


_CHECK = "config -c {} --check --data none"
_CONFUSIONS = (
    "confusions predictions.tsv --before before.tsv --groups groups.txt --dict data/dict.txt --data-dir ."
)
_LMDB = (
    "make-lmdb --label-files data/train_list.txt --data-dir data --out out --check decode --max-unusable 1"
)
_PREDICT = "predict run {} images/good.png"
_RUN = "run.json metrics.jsonl preflight.json samples.json config.yml predictions.tsv best_accuracy.states"
_INCIDENT = "incident.json batch.npz weights.pdparams loss.pdparams config.yml"
_READERS = {
    _CHECK.format("run/config.yml"): ["run/config.yml", "data/dict.txt"],
    _CHECK.format("child.yml"): ["base.yml"],
    _CONFUSIONS: ["predictions.tsv", "groups.txt", "data/dict.txt"],
    "report run -o page.html": [f"run/{name}" for name in _RUN.split()],
    "checkpoint inspect run/best_accuracy --names": [
        f"run/best_accuracy.{ending}" for ending in ("pdparams", "states", "journal")
    ],
    _LMDB: ["data/train_list.txt", "data/one.jpg"],
    "make-dataset captcha --out drawn --train 0 --val 1 --processes 1": ["drawn/dataset.json"],
}
_SLOW_READERS = {
    _PREDICT.format("images/a.png"): ["images/a.png", "run/config.yml", "run/best_accuracy.pdparams"],
    _PREDICT.format("images/list.txt"): ["images/list.txt"],
    _PREDICT.format("lmdb"): ["lmdb/data.mdb"],
    "replay incident": [f"incident/{name}" for name in _INCIDENT.split()],
}
_IMAGES = ("png", "jpg", "progressive.jpg", "webp", "bmp", "tiff", "gif", "jp2")
_VERDICTS = ("confusions", "predict", "replay")  # commands that end with 1 if they find something bad


def subjects() -> list[Subject]:
    """Return all kinds of files."""
    kinds = [Subject(file, read_centers) for file in ("centers.npz", "centers.pkl")]
    kinds.append(Subject("cache/cache.json", lambda file: read_facts(file.parent)))
    kinds += [Subject(f"images/a.{ending}", read_image) for ending in _IMAGES]
    for readers, slow in ((_READERS, False), (_SLOW_READERS, True)):
        for words, files in readers.items():
            codes = (0, 1, 2) if words.startswith(_VERDICTS) else (0, 2)
            kinds += [Subject(file, words, codes, slow) for file in files]
    return kinds


@dataclass
class Row:
    """The inputs of one kind."""

    codes: Counter[int] = field(default_factory=Counter)  # exit codes with their counts
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0  # largest CPU time
    memory: float = 0.0  # largest, MiB


class Fuzzing:
    """The inputs of all kinds, and their table; ``folder`` is for the project and its copies."""

    def __init__(self, folder: Path, seed: int, debug: bool = False) -> None:
        self.folder, self.seed, self.debug = folder, seed, debug
        self.project, self.outside = folder / "project", folder / "outside"
        self.rows: dict[str, Row] = {}
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text("keep me\n", encoding="utf-8")
        with _output_in(folder / "project.log"):
            _in_child(lambda: make_project(self.project))
        self._before = self._state()

    def run(self, subject: Subject, numbers: range) -> None:
        """Try the inputs ``numbers`` of a kind."""
        first = [] if subject.kind in self.rows else [WHOLE]
        row, queue = self.rows.setdefault(subject.kind, Row()), [*first, *numbers]
        while queue:
            done, fault = self._child(subject, queue[: _BATCH[subject.slow]], row)
            if fault:
                row.faults.append(f"{subject.kind} {queue[done]}: {fault}")
                done += 1
            del queue[:done]
            if (state := self._state()) != self._before:
                row.faults.append(
                    f"{subject.kind}: something outside has changed: {set(state) ^ set(self._before)}"
                )
                self._before = state

    def _state(self) -> dict[str, str]:
        """Return the digest, by path, of each file that no input may change."""
        files = (
            path for top in (self.project, self.outside) for path in sorted(top.rglob("*")) if path.is_file()
        )
        beside = {str(path): "" for path in self.folder.iterdir() if path.name != "copies"}
        return beside | {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def _child(self, subject: Subject, numbers: Sequence[int], row: Row) -> tuple[int, str]:
        """Try inputs in one child; return how many it finished, and how it ended if it did not finish all."""
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(reader)
                with os.fdopen(writer, "w", buffering=1) as stream:
                    for number in numbers:
                        stream.write(json.dumps(self._input(subject, number)) + "\n")
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writer)
        done, fault = 0, ""
        with os.fdopen(reader, "rb", buffering=0) as stream:
            for line in _lines(stream, HANG):
                if line is None:
                    os.kill(child, signal.SIGKILL)
                    fault = f"it hangs ({HANG:.0f} s)"
                    break
                self._note(subject, row, json.loads(line))
                done += 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not fault and done < len(numbers):
            fault = f"the process ended with {status}"
        shutil.rmtree(self.folder / "copies", ignore_errors=True)
        return done, fault

    def _note(self, subject: Subject, row: Row, answer: dict[str, Any]) -> None:
        code, seconds, memory, text = (answer[key] for key in ("code", "seconds", "memory", "text"))
        row.codes[code] += 1
        row.seconds, row.memory = max(row.seconds, seconds), max(row.memory, memory)
        wrong = []
        if code not in subject.codes or (answer["number"] == WHOLE and code == 2):
            wrong.append(f"exit code {code}")
        if "internal error" in text or "Traceback (most recent call last)" in text:
            wrong.append("an internal error")
        if control := _CONTROL.search(text):
            wrong.append(f"the control character {control[0]!r} is printed")
        if seconds > SECONDS:
            wrong.append(f"it takes {seconds:.0f} s of CPU time")
        if memory > MEMORY:
            wrong.append(f"it takes {memory:.0f} MiB")
        name = f"{subject.kind} {answer['number']}"
        if wrong:
            error = re.search(r"^.*(internal error|Error).*$", text, re.MULTILINE)
            end = (error[0] if error else text.strip()[-200:])[:300]
            row.faults.append(f"{name}: {', '.join(wrong)} ({answer['damage']}) | {end!r}")
        if self.debug:
            print(f"--- {name} ({answer['damage']}): {code}\n{text}")

    def _input(self, subject: Subject, number: int) -> dict[str, Any]:
        """Damage a file of a copy, and run its reader there."""
        place = self.folder / "copies" / str(number)
        shutil.copytree(self.project, place)
        os.chdir(place)
        file = place / subject.file
        draw = random.Random(f"{self.seed} {subject.kind} {number}")
        change = "nothing" if number == WHOLE else damage(file, draw, self.outside / "secret.txt")
        printed = self.folder / "copies" / f"{number}.printed"
        growth, began = PeakGrowth(), time.process_time()
        with _output_in(printed):
            code = self._call(subject, file)
        seconds, memory = time.process_time() - began, growth.bytes / 2**20
        text = printed.read_bytes().decode("utf-8", "replace").replace(str(self.folder), "")
        os.chdir(self.folder)
        shutil.rmtree(place, ignore_errors=True)
        figures = {"code": code, "seconds": seconds, "memory": memory, "text": text}
        return {"number": number, "damage": change, **figures}

    def _call(self, subject: Subject, file: Path) -> int:
        if isinstance(subject.reader, str):
            with contextlib.suppress(SystemExit):  # of argparse, which never comes: the words are right
                return run_command([*subject.reader.split(), *(["--debug"] if self.debug else [])])
            return -1
        try:
            subject.reader(file)
        except Exception as error:
            return _report_error(error, self.debug)
        return 0

    def table(self) -> str:
        """Return the table as Markdown, the faults, and their number."""
        rows = [
            [kind, str(row.codes.total()), *(str(row.codes[code]) for code in (0, 1, 2))]
            + [str(len(row.faults)), f"{row.seconds:.1f}", f"{row.memory:.0f}"]
            for kind, row in self.rows.items()
        ]
        lines = [markdown(["kind", "inputs", "exit 0", "1", "2", "faults", "s", "MiB"], rows)]
        lines += [_CONTROL.sub("?", fault) for fault in self.faults()]
        inputs = sum(row.codes.total() for row in self.rows.values())
        return "\n".join([*lines, f"{inputs:,} inputs, {len(self.faults())} faults"])

    def faults(self) -> list[str]:
        """Return all faults."""
        return [fault for row in self.rows.values() for fault in row.faults]


def _lines(stream: Any, seconds: float) -> Iterator[bytes | None]:
    """Yield the lines of a pipe, and None if none comes for ``seconds``."""
    rest = b""
    while True:
        if not select.select([stream], [], [], seconds)[0]:
            yield None
            return
        block = os.read(stream.fileno(), 1 << 16)
        if not block:
            return
        *whole, rest = (rest + block).split(b"\n")
        yield from whole


@contextlib.contextmanager
def _output_in(file: Path) -> Iterator[None]:
    """Write all output of this process to a file."""
    sys.stdout.flush(), sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    with file.open("wb") as stream:
        os.dup2(stream.fileno(), 1), os.dup2(stream.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def _in_child(work: Callable[[], None]) -> None:
    """Do some work in a child: the process that forks later must not have the threads of its libraries."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the project cannot be made")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 1 if something was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=0, help="continue for so long (default: one round)")
    parser.add_argument(
        "--inputs", type=int, nargs="+", default=_IN_CI, metavar="N", help="of a kind, of a slow kind"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds with this in their names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--debug", action="store_true", help="print the output of the commands")
    args = parser.parse_args(argv)
    counts, first, until = (args.inputs[0], args.inputs[-1]), args.first, time.monotonic() + 60 * args.minutes
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"PPOCR_EXT_CACHE": str(folder / "copies" / "cache"), "OMP_NUM_THREADS": "1"}
        fuzzing = Fuzzing(folder, args.seed, args.debug)
        open_host()  # imported once for all processes
        kinds = [subject for subject in subjects() if args.only in subject.kind]
        while True:
            for subject in kinds:
                fuzzing.run(subject, range(first, first + counts[subject.slow]))
            first += max(counts)
            if time.monotonic() >= until:
                break
        print(fuzzing.table())
    return 1 if fuzzing.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
