#!/usr/bin/env python3
"""Damage files of every kind that the commands read, and check how the commands end.

Each input is one damaged file (`damage.py`) and one command that reads it, in a copy of a small project. Checked: the
exit code is one that the command documents, with no internal error and no traceback; the peak of memory and the time of
the processor; no control character in what is printed; nothing outside of the copy changes. The commands run in this
program's children, many inputs in each, so that a crash or a hang costs one child and is counted.

`python tools/experiments/fuzzing.py --minutes 60` goes on for an hour; each input follows from `--seed`, its kind and
its number, so `--only run.json --first 17 --inputs 1 --debug` repeats one.
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

from experiments.damage import damage  # noqa: E402
from experiments.fuzzing_project import make_project  # noqa: E402
from ppocr_ext.characters.center_table import read_centers  # noqa: E402
from ppocr_ext.cli.main import _report_error  # noqa: E402
from ppocr_ext.cli.main import main as run_command  # noqa: E402
from ppocr_ext.host import open_host  # noqa: E402
from ppocr_ext.recognition.images import read_image  # noqa: E402
from ppocr_ext.teacher_cache.store import read_facts  # noqa: E402

MEMORY = 1536  # MiB that an input may add to the process
SECONDS = 30.0  # of the processor, for one input
WHOLE = -1  # number of the input without damage, which must not be an error
HANG = 120.0  # seconds without a sign of life
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BATCH = (50, 3)  # inputs of a child, and of slow ones: Paddle keeps memory after its check of values
_IN_CI = (24, 3)  # inputs of a kind, of a slow one


@dataclass(frozen=True)
class Subject:
    """A kind of file, and what reads it.

    Attributes:
        file: what is damaged, in the project.
        reader: words of a command, or a function that takes the file.
        codes: exit codes that the command documents; an error has 2.
        slow: it builds a network.
    """

    file: str
    reader: str | Callable[[Path], object]
    codes: tuple[int, ...] = (0, 2)
    slow: bool = False

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
    found = [Subject(file, read_centers) for file in ("centers.npz", "centers.pkl")]
    found.append(Subject("cache/cache.json", lambda file: read_facts(file.parent)))
    found += [Subject(f"images/a.{ending}", read_image) for ending in _IMAGES]
    for readers, slow in ((_READERS, False), (_SLOW_READERS, True)):
        for words, files in readers.items():
            codes = (0, 1, 2) if words.startswith(_VERDICTS) else (0, 2)
            found += [Subject(file, words, codes, slow) for file in files]
    return found


@dataclass
class Row:
    """What happened to the inputs of one kind.

    Attributes:
        codes: exit codes with their counts.
        faults: what was wrong, a line each.
        seconds: the most of the processor that one took.
        memory: the most that one took, MiB.
    """

    codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    memory: float = 0.0


class Fuzzing:
    """The inputs of all kinds, and a table of what happened.

    Args:
        folder: for the project and its copies.
        seed: of the damage.
        debug: print what the commands print.
    """

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
        row, left = self.rows.setdefault(subject.kind, Row()), [*first, *numbers]
        while left:
            done, fault = self._child(subject, left[: _BATCH[subject.slow]], row)
            if fault:
                row.faults.append(f"{subject.kind} {left[done]}: {fault}")
                done += 1
            del left[:done]
            if (state := self._state()) != self._before:
                row.faults.append(
                    f"{subject.kind}: something outside has changed: {set(state) ^ set(self._before)}"
                )
                self._before = state

    def _state(self) -> dict[str, str]:
        """Return a digest of each file that no input may change, by its path."""
        files = (
            path for top in (self.project, self.outside) for path in sorted(top.rglob("*")) if path.is_file()
        )
        beside = {str(path): "" for path in self.folder.iterdir() if path.name != "copies"}
        return beside | {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def _child(self, subject: Subject, numbers: Sequence[int], row: Row) -> tuple[int, str]:
        """Try inputs in one child; return how many it finished, and how it ended if that was not by itself."""
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

    def _note(self, subject: Subject, row: Row, found: dict[str, Any]) -> None:
        row.codes[found["code"]] += 1
        row.seconds, row.memory = max(row.seconds, found["seconds"]), max(row.memory, found["memory"])
        text, wrong = found["text"], []
        if found["code"] not in subject.codes or (found["number"] == WHOLE and found["code"] == 2):
            wrong.append(f"exit code {found['code']}")
        if "internal error" in text or "Traceback (most recent call last)" in text:
            wrong.append("an internal error")
        if control := _CONTROL.search(text):
            wrong.append(f"the control character {control[0]!r} is printed")
        if found["seconds"] > SECONDS:
            wrong.append(f"it takes {found['seconds']:.0f} s of the processor")
        if found["memory"] > MEMORY:
            wrong.append(f"it takes {found['memory']:.0f} MiB")
        said = re.search(r"^.*(internal error|Error).*$", text, re.MULTILINE)
        shown = f" | {(said[0] if said else text.strip()[-200:])[:300]!r}" if wrong else ""
        row.faults += [
            f"{subject.kind} {found['number']}: {each} ({found['damage']}){shown}" for each in wrong
        ]
        if self.debug:
            print(f"--- {subject.kind} {found['number']} ({found['damage']}): {found['code']}\n{text}")

    def _input(self, subject: Subject, number: int) -> dict[str, Any]:
        """Damage a file of a copy, and run what reads it there."""
        place = self.folder / "copies" / str(number)
        shutil.copytree(self.project, place)
        os.chdir(place)
        file = place / subject.file
        draw = random.Random(f"{self.seed} {subject.kind} {number}")
        done = "nothing" if number == WHOLE else damage(file, draw, self.outside / "secret.txt")
        printed = self.folder / "copies" / f"{number}.printed"
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins here
        before, began = _memory("VmRSS"), time.process_time()
        with _output_in(printed):
            code = self._call(subject, file)
        seconds, memory = time.process_time() - began, _memory("VmHWM") - before
        text = printed.read_bytes().decode("utf-8", "replace").replace(str(self.folder), "")
        os.chdir(self.folder)
        shutil.rmtree(place, ignore_errors=True)
        return {
            "number": number,
            "damage": done,
            "code": code,
            "seconds": seconds,
            "memory": memory,
            "text": text,
        }

    def _call(self, subject: Subject, file: Path) -> int:
        if isinstance(subject.reader, str):
            with contextlib.suppress(SystemExit):  # of argparse: the words are right, so no input leads there
                return run_command([*subject.reader.split(), *(["--debug"] if self.debug else [])])
            return -1
        try:
            subject.reader(file)
        except Exception as error:
            return _report_error(error, self.debug)
        return 0

    def table(self) -> str:
        """Return the table, as Markdown."""
        lines = ["| kind | inputs | exit 0 | 1 | 2 | faults | s | MiB |", "|---|---|---|---|---|---|---|---|"]
        for kind, row in self.rows.items():
            cells = [kind, row.codes.total(), *(row.codes[code] for code in (0, 1, 2)), len(row.faults)]
            lines.append(
                "| " + " | ".join(map(str, [*cells, f"{row.seconds:.1f}", f"{row.memory:.0f}"])) + " |"
            )
        return "\n".join(lines)

    @property
    def faults(self) -> list[str]:
        """All that was wrong."""
        return [fault for row in self.rows.values() for fault in row.faults]


def _lines(stream: Any, seconds: float) -> Iterator[bytes | None]:
    """Yield the lines of a pipe, and None if none comes for so long."""
    left = b""
    while True:
        if not select.select([stream], [], [], seconds)[0]:
            yield None
            return
        block = os.read(stream.fileno(), 1 << 16)
        if not block:
            return
        *whole, left = (left + block).split(b"\n")
        yield from whole


def _memory(name: str) -> float:
    """Return a value of ``/proc/self/status``, MiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(rf"{name}:\s*(\d+)", status)[1]) / 1024  # type: ignore[index]


@contextlib.contextmanager
def _output_in(file: Path) -> Iterator[None]:
    """Let all that this process prints go to a file."""
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
    """Do some work in a child, so that the threads of its libraries are in no process that forks later.

    Raises:
        RuntimeError: it failed.
    """
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


def fuzz(
    folder: Path,
    seed: int,
    counts: tuple[int, int],
    only: str = "",
    first: int = 0,
    minutes: float = 0,
    debug: bool = False,
) -> Fuzzing:
    """Try inputs of all kinds whose name has ``only`` in it.

    Args:
        folder: empty.
        seed: of the damage.
        counts: inputs of each kind, and of each slow kind, in a round.
        only: part of the names of kinds.
        first: number of the first input.
        minutes: go on with further rounds for so long.
        debug: print what the commands print.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ |= {"PPOCR_EXT_CACHE": str(folder / "copies" / "cache"), "OMP_NUM_THREADS": "1"}
    found, until = Fuzzing(folder, seed, debug), time.monotonic() + 60 * minutes
    open_host()  # imported once for all processes
    chosen = [subject for subject in subjects() if only in subject.kind]
    while True:
        for subject in chosen:
            found.run(subject, range(first, first + counts[subject.slow]))
        first += max(counts)
        if time.monotonic() >= until:
            return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 1 if something was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long (default: one round)")
    parser.add_argument(
        "--inputs", type=int, nargs="+", default=_IN_CI, metavar="N", help="of a kind, of a slow kind"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds with this in their names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first input")
    parser.add_argument("--debug", action="store_true", help="print what the commands print")
    args = parser.parse_args(argv)
    counts = (args.inputs[0], args.inputs[-1])
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(Path(folder), args.seed, counts, args.only, args.first, args.minutes, args.debug)
    print(found.table())
    for fault in found.faults:
        print(_CONTROL.sub("?", fault))
    inputs = sum(row.codes.total() for row in found.rows.values())
    print(f"{inputs:,} inputs, {len(found.faults)} faults")
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
