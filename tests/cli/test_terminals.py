"""No character ends a command, whatever a terminal can show; what goes into a file or a pipe is UTF-8."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import captchas, tiny  # noqa: F401
from waiting import HANG

from ppocr_ext.cli.main import main

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


def test_a_notebook_has_an_output_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["--version"]) == 0
