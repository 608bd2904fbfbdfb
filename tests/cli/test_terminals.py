"""What a terminal shows: no broken words, no odd characters, no noise. A file or a pipe gets UTF-8."""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import captchas, tiny  # noqa: F401
from waiting import HANG

from ppocr_ext.cli.main import COMMANDS, build_parser, import_command, main
from ppocr_ext.messages import fit

ENCODINGS = ("ascii", "latin-1", "gbk")
FOREIGN = "é한"  # none of the encodings has the second


class Screen(io.TextIOWrapper):
    """Standard output of this encoding, on a terminal or in a pipe."""

    def __init__(self, encoding: str, is_terminal: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def shown(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Callable[[Screen, list[str]], tuple[int, bytes]]:
    """Run a command with another standard output; return its exit code, and what was written there."""
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")

    def start(screen: Screen, words: list[str]) -> tuple[int, bytes]:
        with monkeypatch.context() as changed:
            changed.setattr(sys, "stdout", screen)
            return main(words), screen.shown()

    return start


def test_a_training_and_its_readings_survive_every_terminal(
    tiny: Any,  # noqa: F811
    captchas: Path,  # noqa: F811
    tmp_path: Path,
    started: Any,
) -> None:
    folder, image, config = (tmp_path / name for name in (f"{FOREIGN}/run", f"{FOREIGN}.png", "my.yml"))
    shutil.copy(next(captchas.rglob("*.png")), image)
    values = {"Global.save_model_dir": str(folder), "Global.epoch_num": 1, "Global.dry_step": False}
    config.write_text(tiny("student", **values).to_yaml(), encoding="utf-8")
    code, shown = started(Screen("ascii"), ["train", "-c", str(config)])
    assert (code, b"/??/run" in shown) == (0, True)
    assert str(folder) in (folder / "train.log").read_text(encoding="utf-8")
    for encoding in ENCODINGS:
        code, shown = started(Screen(encoding), ["predict", str(folder), str(image)])
        expected = FOREIGN.encode(encoding, "replace") + b".png\t"
        assert (code, expected in shown) == (0, True), encoding
        code, shown = started(Screen(encoding, is_terminal=False), ["predict", str(folder), str(image)])
        assert (code, f"{FOREIGN}.png\t" in shown.decode("utf-8")) == (0, True), encoding


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_child_processes_survive_too(encoding: str, started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", f"{encoding}:strict")
    assert started(Screen(encoding), ["--version"])[0] == 0
    shown = subprocess.run([sys.executable, "-c", f"print({FOREIGN!r})"], capture_output=True, timeout=HANG)
    assert (shown.returncode, shown.stdout.rstrip()) == (0, FOREIGN.encode(encoding, "replace"))


def test_a_terminal_without_unicode_gets_words_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen("ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["--version"]) == 0
    print("32×320 → wait…", FOREIGN)
    assert b"32x320 -> wait... ??" in screen.shown()


def test_child_processes_are_spared_the_warnings_of_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "")
    monkeypatch.delenv("PYTHONWARNINGS")
    assert main(["--version"]) == 0
    code = "import warnings; [warnings.warn(text) for text in ('No ccache found. Please', 'a fault')]"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG)
    assert "a fault" in shown.stderr and "ccache" not in shown.stderr


def test_a_notebook_has_an_output_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["--version"]) == 0


def on_terminal(words: list[str], columns: int) -> tuple[int, list[str]]:
    """Run a command on a terminal of this width; return its exit code and its lines."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {**os.environ}  # without the COLUMNS that readline sets behind Python's back
        os.execve(sys.executable, [sys.executable, "-m", "ppocr_ext", *words], environment)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the command has ended
            part = b""
        if not part:
            break
        shown += part
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, shown.decode().replace("\r\n", "\n").split("\n")


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_overview_breaks_no_word(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    code, lines = on_terminal(["--help"], columns)
    wide = [line for line in lines if len(line) > columns and len(line.split()) > 1]
    assert (code, wide) == (0, [])
    whole = "  init           look at a folder of labelled images, and write a config that is ready to train"
    assert (whole in lines) == (columns == 200)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser of a command, and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_its_examples_can_be_pasted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in parsers(build_parser(name, import_command(name))):
        assert max(map(len, parser.format_help().splitlines())) <= 80, parser.prog
        whole = parser.epilog or ""
        narrow = fit(whole, 40)
        wide = [line for line in narrow.splitlines() if len(line) > 40]
        assert all(len(line.removesuffix(" \\").split()) == 1 for line in wide), wide
        assert commands_in(narrow) == commands_in(whole)
    assert commands_in(import_command(name).EPILOG), "no example"


def commands_in(text: str) -> list[list[str]]:
    """The words of each command of ours in a help, as a shell reads them."""
    lines = re.findall(r"^  ppocr-ext (?:.*\\\n)*.*", text, re.MULTILINE)
    return [shlex.split(line.replace("\\\n", ""), comments=True) for line in lines]  # as a shell joins lines
