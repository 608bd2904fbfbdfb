"""Entry of ``ppocr-ext`` and of the scripts in ``tools/``: choose a command, run it, report errors."""

from __future__ import annotations

import argparse
import difflib
import errno
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
from ppocr_ext.errors import PPOCRExtError

PROGRAM = "ppocr-ext"
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
    "make-dataset": Command(
        "ppocr_ext.cli.make_dataset", "draw text lines with labels, dictionary and lists"
    ),
    "benchmark": Command("ppocr_ext.cli.benchmark", "time a training step"),
    "doctor": Command(
        "ppocr_ext.cli.doctor", "say what is installed, and the command that mends what is not"
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
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)
    try:
        return _run(arguments)
    except PPOCRExtError as error:
        return _report(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader of our output (`| head`) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except ModuleNotFoundError as error:
        return _report(_missing(error), CANNOT, debug)
    except OSError as error:
        return _report(_refused_by_system(error), CANNOT, debug)
    except Exception as error:
        said = f"internal error: {type(error).__name__}: {error}"
        return _report(said if debug else f"{said} (run again with --debug to see where)", CANNOT, debug)


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else CANNOT
    if arguments[0] == "--version":
        print(f"{PROGRAM} {__version__}")
        return 0
    name, rest = arguments[0].replace("_", "-"), arguments[1:]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PPOCRExtError(f"no command {arguments[0]!r}.{hint} Commands: {', '.join(COMMANDS)}.")
    module = importlib.import_module(COMMANDS[name].module)
    # `--debug` may stand anywhere, also behind the subcommands that a command may have of its own.
    options = argparse.Namespace(debug="--debug" in rest)
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


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND [options]\n\n"
        f"Distil and fine-tune PaddleOCR text recognisers.\n\n"
        f"commands:\n{commands}\n\n{_EXAMPLES}\n"
        f"options: --help, --version; every command takes --debug."
    )


def _refused_by_system(error: OSError) -> str:
    """What the system would not do: no space, no permission, a file where a folder should be."""
    where = f"{error.filename}: " if error.filename else ""
    remedy = {
        errno.ENOSPC: "Free some space, or write elsewhere.",
        errno.EACCES: "Choose a folder that you may write to.",
        errno.EROFS: "Choose a folder that can be written to.",
        errno.EEXIST: "Choose another name, or move that file away.",
        errno.ENOTDIR: "Choose another name, or move that file away.",
    }.get(error.errno or 0, "")
    return f"{where}{error.strerror or error}. {remedy}".strip()


def _missing(error: ModuleNotFoundError) -> str:
    from ppocr_ext.host.complete import INSTALL_PADDLE

    package = (error.name or "").partition(".")[0]
    if package == "paddle":
        return f"Paddle is not installed. Install it: {INSTALL_PADDLE}"
    if package in ("captcha", "matplotlib"):
        return f"{error}. Install it: pip install 'ppocr-ext[quickstart]'"
    return f"{error}. Run `{PROGRAM} doctor` to see what is missing and how to install it."


def _report(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
