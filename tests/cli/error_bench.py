"""Where bad inputs are tried out: a tiny recogniser, its data and a checkpoint, all in the current folder."""

from __future__ import annotations

import io
import logging
import pickle
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest

from ppocr_ext.cli.main import main

HERE = Path(__file__).parent
TRAIN, VAL = 24, 8


@dataclass(frozen=True)
class Said:
    """What a command said: exit code, standard output and error together, places of this machine left out."""

    code: int
    text: str

    def found(self, pattern: str) -> str:
        """The first match of ``pattern``, which stands at the head of a line."""
        match = re.search(f"^{pattern}", self.text, re.MULTILINE | re.DOTALL)
        assert match is not None, f"no {pattern!r} in:\n{self.text}"
        return match.group(0).rstrip()


class Bench:
    """A folder of its own for each case; the case changes what it wants to be bad."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        patch.chdir(folder)

    def write(self, name: str, text: str | bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    def lines(self, list_name: str = "data/train.txt") -> list[str]:
        return (self.folder / list_name).read_text().splitlines()

    def change_line(self, number: int, line: str, list_name: str = "data/train.txt") -> None:
        lines = self.lines(list_name)
        lines[number - 1] = line
        self.write(list_name, "\n".join(lines) + "\n")

    def change_lines(self, change: Callable[[str], str], list_name: str = "data/train.txt") -> None:
        self.write(list_name, "".join(f"{change(line)}\n" for line in self.lines(list_name)))

    def plugin(self, name: str, code: str) -> str:
        """A module of the user's; the option that names it."""
        self.write(f"{name}.py", code)
        self.patch.syspath_prepend(str(self.folder))
        return f"Global.plugins=[{name}]"

    def run(self, arguments: Iterable[str]) -> Said:
        """Run the command line in this process."""
        out = io.StringIO()
        ours = logging.getLogger("ppocr_ext")
        handlers, propagate, level, ours.handlers = ours.handlers, ours.propagate, ours.level, []
        try:
            with redirect_stdout(out), redirect_stderr(out):
                try:
                    code = main(list(arguments))
                except SystemExit as left:
                    code = int(left.code or 0)
        finally:
            ours.handlers, ours.propagate = handlers, propagate
            ours.setLevel(level)
        return Said(
            code, out.getvalue().replace(f"{self.folder}/", "").replace(str(self.folder), "/your/folder")
        )


def make_template(folder: Path) -> None:
    """The files that every case starts with."""
    rng = np.random.default_rng(0)
    (folder / "data").mkdir(parents=True)
    for name, count in (("train", TRAIN), ("val", VAL)):
        rows = []
        for number in range(count):
            file = f"{name}{number:02d}.png"
            cv2.imwrite(str(folder / "data" / file), rng.integers(0, 255, (32, 64, 3), np.uint8))
            rows.append(f"{file}\t{rng.integers(1000, 9999)}\n")
        (folder / "data" / f"{name}.txt").write_text("".join(rows))
    (folder / "dict.txt").write_text("\n".join("0123456789") + "\n")
    shutil.copy(HERE / "error_config.yml", folder / "config.yml")


class Harmful:
    """What a pickle from elsewhere may do."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return __import__("os").system, ("true",)


def pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=2)
