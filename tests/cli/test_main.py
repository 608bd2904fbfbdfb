"""Choosing a command, its exit codes, and what a user sees of an error."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from waiting import HANG

from ppocr_ext import __version__
from ppocr_ext.cli.main import COMMANDS, main
from ppocr_ext.cli.options import add_config_arguments
from ppocr_ext.errors import ConfigError, PPOCRExtError
from ppocr_ext.loop.signals import deferred_signals

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def hangups_count() -> Iterator[None]:
    """Also where the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[argparse.Namespace], int]], None]:
    """Make ``try-it`` a command that runs a given function."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_config_arguments(parser)

    def install(run: Callable[[argparse.Namespace], int]) -> None:
        module = ModuleType("ppocr_ext.cli.try_it")
        vars(module).update(EPILOG="examples:\n  see", add_arguments=add_arguments)
        vars(module).update(run=run)
        monkeypatch.setitem(sys.modules, "ppocr_ext.cli.try_it", module)
        monkeypatch.setitem(COMMANDS, "try-it", "try it")

    return install


def failing(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def test_options_accumulate(command: Callable[..., None]) -> None:
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args)
        return 1

    command(run)
    line = "try_it -c a.yml b.yml -o A.b=1 C=d=e -c c.yml -o F= --host DIR"
    assert main(line.split()) == 1
    (args,) = seen
    assert args.config == ["a.yml", "b.yml", "c.yml"]
    assert args.opt == ["A.b=1", "C=d=e", "F="]
    assert args.host == "DIR"
    assert args.debug is False
    main(["try-it", "-c", "a.yml", "--debug"])
    assert (seen[1].opt, seen[1].host, seen[1].debug) == ([], None, True)


class VerdictError(PPOCRExtError):
    exit_code = 1


INTERRUPTED_IMPORT = ImportError("initialization failed")
INTERRUPTED_IMPORT.__cause__ = KeyboardInterrupt()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("config.yml: no key 'Globl'"), 2, "error: config.yml: no key 'Globl'\n"),
        (VerdictError("not good enough"), 1, "error: not good enough\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (INTERRUPTED_IMPORT, 130, "interrupted\n"),
        (
            ZeroDivisionError("by zero"),
            2,
            "error: internal error: ZeroDivisionError: by zero (run again with --debug to see where)\n",
        ),
        (
            ModuleNotFoundError("No module named 'paddle'", name="paddle"),
            2,
            "error: Paddle is not installed. Fix: pip install 'ppocr-ext[cpu]'\n",
        ),
        (
            ModuleNotFoundError("No module named 'captcha'", name="captcha.image"),
            2,
            "error: No module named 'captcha'. Fix: pip install 'ppocr-ext[quickstart]'\n",
        ),
        (
            ModuleNotFoundError("No module named 'cv2'", name="cv2"),
            2,
            "error: No module named 'cv2'. Fix: pip install ppocr-ext (in a clone: pip install .); `ppocr-ext doctor` "
            "shows what is still missing.\n",
        ),
    ],
)
def test_errors_are_sentences(
    command: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    command(failing(error))
    assert main(["try-it", "-c", "x"]) == code
    assert capsys.readouterr().err == said


def test_debug_shows_the_traceback(command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    command(failing(ConfigError("wrong")))
    assert main(["try-it", "-c", "x", "--debug"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback") and "in run" in shown
    assert shown.endswith("error: wrong\n")


def test_an_unknown_command_is_met_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    shown = capsys.readouterr().err
    assert "[unknown_command]" in shown and "'train'?" in shown and "make-dataset" in shown


@pytest.mark.parametrize("words", [["train", "--fo"], ["make-dataset", "linse"], ["weights", "get"]])
def test_wrong_arguments_are_refused_in_one_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and f"ppocr-ext {words[0]}" in shown and "[bad_arguments]" in shown


@pytest.mark.parametrize(("line", "code"), [(["--help"], 0), (["-h"], 0), ([], 2)])
def test_the_overview_lists_every_command(
    capsys: pytest.CaptureFixture[str], line: list[str], code: int
) -> None:
    assert main(line) == code
    shown = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"  {name}" in shown and summary in shown
    assert "ppocr-ext train -c config.yml" in shown


def test_help_imports_no_paddle() -> None:
    code = (
        "import sys\nfrom ppocr_ext.cli import main\n"
        "for name in main.COMMANDS:\n"
        "    main.build_parser(name, main.import_command(name)).format_help()\n"
        "assert 'paddle' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_package_is_run_as_the_command(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "ppocr_ext"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    result = subprocess.run(
        [*call, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, f"ppocr-ext {__version__}\n"), result.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import sys\nfrom ppocr_ext.cli import main\n"
        "main._EXAMPLES = 'line\\n' * 100_000\n"
        "sys.exit(main.main(['--help']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith("usage: ppocr-ext")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=HANG) == 141


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["init", "--help"], ["weights", "list"]])
def test_output_that_goes_nowhere_is_one_sentence_or_none(words: list[str]) -> None:
    call = [sys.executable, "-m", "ppocr_ext", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("PYTHONUNBUFFERED", None)  # the last write may fail only when Python ends
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(call, env=environment, stdout=full, stderr=subprocess.PIPE, timeout=HANG)
    assert ended.returncode == 2 and ended.stderr.startswith(b"error: No space left"), ended.stderr
    assert ended.stderr.count(b"\n") == 1, ended.stderr
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(call, env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=HANG)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]
)
def test_sigterm_ends_a_command_like_ctrl_c(
    number: int, code: int, said: str, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned = []

    def run(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            cleaned.append(True)
            raise
        return 0

    command(run)
    assert main(["try-it", "-c", "x"]) == code
    assert (cleaned, capsys.readouterr().err) == ([True], f"{said}\n")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_that_paddle_raises_anew_ends_a_command_as_usual(
    number: int, code: int, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """While Paddle traces a network, it gives each exception a text in place of its arguments."""

    def run(args: argparse.Namespace) -> int:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as error:
            raise type(error)("In transformed code: …") from None
        return 0

    command(run)
    assert main(["try-it", "-c", "x"]) == code
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_hangup_that_is_ignored_stays_so(command: Callable[..., None]) -> None:
    def run(args: argparse.Namespace) -> int:
        with deferred_signals(lambda number: pytest.fail("not ignored")):
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        return 0

    command(run)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["try-it", "-c", "x"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_runs_although_its_output_was_closed_before_it_began(tmp_path: Path) -> None:
    code = """import sys
from ppocr_ext.cli.main import main
code = main(["--help"])
file = open(sys.argv[1], "w")
print("not into the file", flush=True)
assert file.fileno() > 2
sys.exit(code)"""
    shell = ["sh", "-c", '"$0" -c "$1" "$2" <&- >&-', sys.executable, code, str(tmp_path / "file")]
    ended = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=HANG)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "file").read_text() == ""
