"""Entry point of ``ppocr-ext`` and of the scripts in ``tools/``: choose a command, run it, report errors.

The dispatch is our own, since argparse's subparsers would import the modules of all commands.
"""

from __future__ import annotations

import argparse
import codecs
import importlib
import io
import os
import shutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from types import FrameType, ModuleType
from typing import Any, NoReturn

from ppocr_ext import __version__
from ppocr_ext.base import Proxy
from ppocr_ext.errors import PPOCRExtError, interruption_behind, with_code
from ppocr_ext.loop.signals import termination_signals
from ppocr_ext.messages import (
    DEBUG,
    PROGRAM,
    command_line,
    did_you_mean,
    error_text,
    fit,
    for_people,
    near_match,
    printable,
)

FAILED = 2  # exit code of an error
# Name and description of each command. Its module has that name, and is imported only when the command runs.
COMMANDS = {
    "quickstart": "train a teacher, a student and a distilled student, and print a table of results",
    "init": "look at a folder of labelled images, and write a config that is ready to train",
    "sanity": "learn one batch by heart, head by head, before a long training",
    "train": "train or distil a recogniser",
    "tune": "search for better settings by many short trainings",
    "eval": "evaluate a trained recogniser",
    "blend": "take weights between two checkpoints that read new lines and forget little",
    "predict": "read images with a trained or an exported recogniser",
    "replay": "repeat a training step with a bad value, and name its operator and layer",
    "export": "write an inference model for PaddleOCR, ONNX Runtime and others",
    "verify": "check that an exported model reads the same in every engine and client",
    "checkpoint": "show what a checkpoint holds, or take one of its sub-models out",
    "export-center": "write one feature center for each character, for center loss",
    "cache-teacher": "store the outputs of a frozen teacher, so that a distillation need not compute them",
    "confusions": "count which characters are confused, before and after a fine-tuning",
    "doubtful": "find wrong, too easy and worthless lines of a list, and images to label first",
    "config": "check a configuration, and show where each value comes from",
    "report": "write one page about one or several runs",
    "make-dataset": "draw text lines with labels, dictionary and lists",
    "make-lmdb": "put label files and their images into one LMDB",
    "weights": "list and download PaddleOCR's official weights, by name",
    "doctor": "check the installation, and print the commands that fix it",
}
# These import Paddle first; others import it later, or do without it.
_WITH_PADDLE = {"quickstart", "sanity", "eval", "blend", "export", "export-center", "cache-teacher"}
# How Paddle's warnings on every machine begin: a compiler cache that only developers of operators need, that BatchNorm
# updates its statistics in training, and that an optimizer has no state before its first step.
_NOISE = ("No ccache found", "When training", "The input state dict is empty")
# For characters of our messages that a terminal cannot show.
_PLAIN = {"…": "...", "→": "->", "×": "x", "–": "-"}
_ENDED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}  # "hung up" for SIGHUP
_EXAMPLES = """\
examples:
  ppocr-ext doctor                              # is everything installed?
  ppocr-ext quickstart                          # a teacher, a student, a table: minutes on two CPU cores
  ppocr-ext train -c config.yml -o Global.epoch_num=20
  ppocr-ext eval -c config.yml -o Global.pretrained_model=output/best_accuracy
  ppocr-ext predict output/run photo.png        # what does it read?
  ppocr-ext COMMAND --help                      # options and examples of a command
"""


class Termination(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C, so that temporary files are removed.

    Its class tells the signal, since Paddle raises an exception anew, with its class and a text, while it traces.
    """

    number = 15


class HangUp(Termination):
    """SIGHUP, handled like SIGTERM."""

    number = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (by default the arguments of the process) names.

    Returns:
        0 if it is done, 1 if it is done with a negative result, 2 after an error, 128 + n after the signal n.
    """
    _open_closed_streams()
    _take_any_text()
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("OPENCV_LOG_LEVEL", "ERROR")  # we report broken images by name
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
    os.environ.setdefault(
        "PYTHONWARNINGS", ",".join(f"ignore:{each}" for each in _NOISE)
    )  # of child processes
    warnings.filterwarnings("ignore", module="PIL")  # Pillow's warnings about images, which we report by name
    try:
        with _termination_raises(), redirect_stdout(_PrintableOutput(sys.stdout)):
            return _run(arguments)
    except BrokenPipeError:  # the reader of our output (`| head`) has ended
        code = 128 + signal.SIGPIPE
    except (Exception, KeyboardInterrupt) as error:
        code = _report_error(error, "--debug" in arguments)
    try:
        sys.stdout.flush()
    except OSError:  # Python would write the rest at its end, and fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


class _PrintableOutput(Proxy):
    """Standard output without control characters, since names and labels in files may hold escape sequences."""

    def write(self, text: str) -> int:
        """Write ``text`` without control characters."""
        return self.real.write(printable(text))


def _open_closed_streams() -> None:
    """Open standard streams that are closed (`>&-`), or the next opened file would get the printed text."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _take_any_text() -> None:
    """Let no character end a command with an error. A terminal may show ``?``, and all other streams get UTF-8."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook has others
            encoding = stream.encoding if stream.isatty() else "utf-8"
            # By lines, so that a full disk is an error of the command, and results and messages keep their order.
            stream.reconfigure(encoding=encoding, errors="plain", line_buffering=True)
    encoding = os.environ.get("PYTHONIOENCODING", "").partition(":")[0]
    os.environ["PYTHONIOENCODING"] = f"{encoding}:replace"  # for child processes that are not commands


def _plain(error: Any) -> tuple[str, int]:
    """Return what stands for the characters that cannot be encoded, and where they end."""
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Inside this context, SIGTERM and SIGHUP raise :class:`Termination`; they end forked processes as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise (Termination if number == signal.SIGTERM else HangUp)(number)

    before = {number: signal.signal(number, handle) for number in termination_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report_error(error: BaseException, debug: bool) -> int:
    """Print ``error`` with its code behind the first line, and return the exit code."""
    if (cause := interruption_behind(error)) is not None:
        number = getattr(cause, "number", signal.SIGINT)
        with suppress(OSError):  # the terminal is closed
            said = _ENDED.get(number, "hung up")
            if sys.stderr.isatty():  # over the line with the ^C that the terminal shows
                said = f"\r{said:<{shutil.get_terminal_size().columns - 1}}"
            print(said, file=sys.stderr)
        return 128 + int(number)
    text = error_text(error)
    if debug:
        print(for_people("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if isinstance(error, PPOCRExtError):
        text = with_code(text, error.code)
    count = os.environ.get("PADDLE_TRAINERS_NUM", "1")  # Paddle's launcher may have started several processes
    process = "" if count == "1" else f"process {os.environ.get('PADDLE_TRAINER_ID')} of {count}: "
    text = for_people(text.removesuffix(DEBUG).rstrip() if debug else text)
    with suppress(OSError):
        print(f"error: {process}{text}", file=sys.stderr)
    return error.exit_code if isinstance(error, PPOCRExtError) else FAILED


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
        overview = (
            f"usage: {PROGRAM} COMMAND [options]\n\n"
            f"Distil and fine-tune PaddleOCR text recognisers.\n\n"
            f"commands:\n{commands}\n\n{_EXAMPLES}\n"
            f"options: --help, --version; every command takes --debug."
        )
        print(fit(overview))
        return 0 if arguments else FAILED
    if arguments[0] == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    name = arguments[0].replace("_", "-")
    rest = arguments[1:]
    if name not in COMMANDS:
        hint = did_you_mean(near_match(name, COMMANDS, cutoff=0.6))
        raise PPOCRExtError(
            f"no command {arguments[0]!r}.{hint} Commands: {', '.join(COMMANDS)}.", code="unknown_command"
        )
    module = import_command(name)
    # `--debug` may stand anywhere, also behind a subcommand; `again` is the command that continues a stopped job
    options = argparse.Namespace(debug="--debug" in rest, again=command_line(name, *rest))
    args = build_parser(name, module).parse_args([word for word in rest if word != "--debug"], options)
    if name in _WITH_PADDLE:
        from ppocr_ext.host.complete import import_paddle

        import_paddle()
    return module.run(args)


def import_command(name: str) -> ModuleType:
    """Import the module of the command ``name``."""
    return importlib.import_module(f"ppocr_ext.cli.{name.replace('-', '_')}")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that a terminal shows without breaking words."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return fit(text, width)


class _Parser(argparse.ArgumentParser):
    """Parser whose messages are like those of all other errors."""

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own method ignores errors of the output."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments; the usage, which may take 30 lines, would hide why."""
        raise PPOCRExtError(f"{message}. Fix: see `{self.prog} --help`.", code="bad_arguments")


def build_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Return the parser of the command ``name``, which must be in :data:`COMMANDS`; ``module`` adds its options."""
    parser = _Parser(
        prog=f"{PROGRAM} {name}",
        description=COMMANDS[name],
        epilog=getattr(module, "EPILOG", None),
        formatter_class=_Help,
    )
    module.add_arguments(parser)
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
