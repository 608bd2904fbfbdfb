"""Entry of ``ppocr-ext`` and of the scripts in ``tools/``: choose a command, run it, report errors."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from ppocr_ext import __version__
from ppocr_ext.cli.terminate import Terminated, termination_raises
from ppocr_ext.commands import PROGRAM, command_line
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.messages import DEBUG, did_you_mean, error_text

CANNOT = 2  # exit code: the job could not be done


@dataclass(frozen=True)
class Command:
    """A command as the overview lists it; its module is imported when it is run."""

    module: str
    summary: str


COMMANDS = {
    "quickstart": Command(
        "ppocr_ext.cli.quickstart", "watch a distillation from nothing to a table of results"
    ),
    "train": Command("ppocr_ext.cli.train", "train or distil a recogniser as a configuration says"),
    "eval": Command("ppocr_ext.cli.eval", "measure a trained recogniser"),
    "export-center": Command(
        "ppocr_ext.cli.export_center", "write one feature center for each character, for center loss"
    ),
    "confusions": Command(
        "ppocr_ext.cli.confusions", "say which characters are taken for which, before and after"
    ),
    "lookalikes": Command(
        "ppocr_ext.cli.lookalikes", "find characters that look alike, from their glyphs in fonts"
    ),
    "config": Command("ppocr_ext.cli.config", "check a configuration, and show where each value comes from"),
    "report": Command("ppocr_ext.cli.report", "draw one or several runs on one page"),
    "make-dataset": Command(
        "ppocr_ext.cli.make_dataset", "draw text lines with labels, dictionary and lists"
    ),
    "make-lmdb": Command("ppocr_ext.cli.make_lmdb", "put label files and their images into one LMDB"),
    "doctor": Command(
        "ppocr_ext.cli.doctor", "say what is installed, and the command that fixes what is not"
    ),
}

# What Paddle warns of wherever it runs: a compiler cache, which only those need who compile operators, and
# that BatchNorm does in training what it is for.
_NOISE = ("No ccache found", "When training, we now always track global mean and variance")

_EXAMPLES = """\
examples:
  ppocr-ext doctor                              is everything there?
  ppocr-ext quickstart                          a teacher, a student, a table: minutes on two CPU cores
  ppocr-ext train -c config.yml -o Global.epoch_num=20
  ppocr-ext eval -c config.yml -o Global.pretrained_model=output/best_accuracy
  ppocr-ext COMMAND --help                      what a command takes
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (by default the process's own arguments) names.

    Returns:
        0: done; 1: done, and the verdict is bad; 2: it could not be done; 128 + n: signal n.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    os.environ.setdefault(
        "OPENCV_LOG_LEVEL", "ERROR"
    )  # what it warns of, a broken image, is said with its name
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
    try:
        with termination_raises():
            return _run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except Terminated:
        print("terminated", file=sys.stderr)
        return 128 + signal.SIGTERM
    except BrokenPipeError:  # the reader of our output (`| head`) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        if _was_interrupted(error):
            print("interrupted", file=sys.stderr)
            return 128 + signal.SIGINT
        said = error_text(error)
        if debug:
            traceback.print_exc()
            said = said.removesuffix(DEBUG).rstrip()
        print(f"error: {_process()}{_with_code(said, error)}", file=sys.stderr)
        return error.exit_code if isinstance(error, PPOCRExtError) else CANNOT


def _with_code(text: str, error: Exception) -> str:
    """Return ``text`` with the error's code behind its first line, as in ``there is no file x [missing_file]``."""
    code = getattr(error, "code", None) if isinstance(error, PPOCRExtError) else None
    if code in (None, PPOCRExtError.code):
        return text
    first, newline, rest = text.partition("\n")
    return f"{first} [{code}]{newline}{rest}"


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is at the root of ``error``: a package that is being imported turns it into an ImportError."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else CANNOT
    if arguments[0] == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    name, rest = arguments[0].replace("_", "-"), arguments[1:]
    if name == "benchmark":
        raise PPOCRExtError(
            "benchmarks are a script of a clone now: python tools/benchmark.py " + " ".join(rest)
        )
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = did_you_mean(next(iter(near), None))
        raise PPOCRExtError(f"no command {arguments[0]!r}.{hint} Commands: {', '.join(COMMANDS)}.")
    module = importlib.import_module(COMMANDS[name].module)
    # `--debug` may stand anywhere, also behind the subcommands that a command may have of its own.
    again = command_line(name, *rest)  # for commands that go on where they were
    options = argparse.Namespace(debug="--debug" in rest, again=again)
    args = build_parser(name, module).parse_args([word for word in rest if word != "--debug"], options)
    code: int = module.run(args)
    return code


def build_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """The parser of the command ``name``, whose module says what it takes."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} {name}",
        description=module.HELP,
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    return parser


def _process() -> str:
    """Which process speaks, where Paddle's launcher started several."""
    count = os.environ.get("PADDLE_TRAINERS_NUM", "1")
    return "" if count == "1" else f"process {os.environ.get('PADDLE_TRAINER_ID')} of {count}: "


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND [options]\n\n"
        f"Distil and fine-tune PaddleOCR text recognisers.\n\n"
        f"commands:\n{commands}\n\n{_EXAMPLES}\n"
        f"options: --help, --version; every command takes --debug."
    )


if __name__ == "__main__":
    sys.exit(main())
