"""Options that several commands share, with PaddleOCR's names, and the config that they give."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocr_ext.config import Config, load
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.errors import ConfigError
from ppocr_ext.host.locate import ENVIRONMENT
from ppocr_ext.io.resources import find_config
from ppocr_ext.messages import for_people

if TYPE_CHECKING:
    from ppocr_ext.recognition.recognizer import Recognizer


def add_config_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add ``-c FILE …`` (repeatable; required by default), ``-o KEY=VALUE …`` (repeatable) and ``--host DIR``.

    ``args.config`` is the flat list of files.
    """
    parser.add_argument(
        "-c",
        "--config",
        action="extend",
        nargs="+",
        required=required,
        default=None if required else [],
        metavar="FILE",
        help="configuration; later files are laid over earlier ones",
    )
    add_option_argument(
        parser, "set single keys, e.g. -o Global.epoch_num=20 Optimizer.lr.learning_rate=0.0005"
    )
    add_host_argument(parser)


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``RUN``, which :func:`read_recogniser_config` takes in place of ``-c``, and the options of a config."""
    parser.add_argument(
        "run_folder",
        nargs="?",
        metavar="RUN",
        help="the folder of a run: its own config and its best checkpoint",
    )
    add_config_arguments(parser, required=False)


def add_option_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``-o KEY=VALUE …`` (repeatable) with ``text`` as its help; ``args.opt`` is the flat list."""
    parser.add_argument("-o", "--opt", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help=text)


def add_number(
    parser: argparse.ArgumentParser,
    option: str,
    rule: ValueRule,
    **choices: Any,
) -> None:
    """Add an option whose value is a number.

    Args:
        parser: the parser of the command.
        option: the name of the option.
        rule: what the number must be. Its kind is ``"whole"`` or ``"number"``.
        choices: further arguments of ``add_argument``.
    """

    def number(text: str) -> float:
        """Return the number.

        Raises:
            ConfigError: it breaks the rule.
        """
        value = int(text) if rule.kind == "whole" else float(text)
        if (problem := rule.problem(value)) is not None:
            raise ConfigError(f"{option}: {problem.message}", code=problem.code)
        return value

    parser.add_argument(option, type=number, **choices)


def add_count(parser: argparse.ArgumentParser, option: str, *, least: int = 1, **choices: Any) -> None:
    """Add an option whose value is a whole number of at least ``least``."""
    add_number(parser, option, ValueRule("whole", least), **{"metavar": "N", **choices})


def add_host_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--host DIR``: ``args.host`` is the folder of a PaddleOCR checkout, or None."""
    parser.add_argument(
        "--host",
        metavar="DIR",
        help=f"a PaddleOCR checkout to run in (default: {ENVIRONMENT}, else the installed package)",
    )


def add_data_dir_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--data-dir DIR``, for the label files that the command reads."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="folder that paths in label files start from (default: the file's own)",
    )


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust-model``."""
    parser.add_argument(
        "--trust-model",
        action="store_true",
        help="run a file whose digest is neither in model.json nor in our table; a model is a program",
    )


def add_old_dictionary_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--old-dict FILE``."""
    parser.add_argument(
        "--old-dict",
        metavar="FILE",
        help="dictionary of the weights (Global.pretrained_model, or a sub-model's `pretrained`), if it differs: "
        "classifier and embedding rows are carried over character by character",
    )


def add_strict_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--strict``."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with exit code 2 if a sample is unusable or the config check warns",
    )


def open_recognizer(source: str, host: str | None, **options: Any) -> Recognizer:
    """Open a recogniser; its log goes to standard error.

    Args:
        source: MODEL, as `predict` takes it.
        host: a PaddleOCR checkout, for a run or a config.
        options: the other arguments of :class:`ppocr_ext.recognition.recognizer.Recognizer`.

    Raises:
        PPOCRExtError: it cannot be opened.
    """
    from ppocr_ext.recognition.opening import find_model, is_exported
    from ppocr_ext.recognition.recognizer import Recognizer

    model = find_model(source, options.get("dictionary"))
    if isinstance(model, Path) and not is_exported(model):
        from ppocr_ext.run.logs import set_up_logs

        set_up_logs(host, to_stderr=True)
    recognizer = Recognizer(model, host_path=host, **options)
    if recognizer.origin:
        print(for_people(recognizer.origin), file=sys.stderr)
    return recognizer


def read_config(args: argparse.Namespace, strict: bool = False) -> Config:
    """Return the config of ``-c`` and ``-o``; ``strict`` sets Global.strict."""
    return load([find_config(path) for path in args.config], _options(args, strict))


def read_recogniser_config(args: argparse.Namespace, strict: bool = False) -> Config:
    """Return the config of ``RUN`` with its best checkpoint, or the config of ``-c``, with the options of ``-o``.

    Raises:
        ConfigError: neither ``RUN`` nor ``-c`` is given, or both are.
    """
    from ppocr_ext.run.recogniser import recogniser_config  # imports Paddle

    if (args.run_folder is None) == (not args.config):
        raise ConfigError(
            "give either a run or a config. Fix: give the folder of a run; or a config with -c, and weights with "
            "-o Global.pretrained_model=PATH.",
            code="bad_arguments",
        )
    if args.run_folder is None:
        return read_config(args, strict)
    return recogniser_config(args.run_folder, _options(args, strict))


def _options(args: argparse.Namespace, strict: bool) -> list[str]:
    return [*args.opt, "Global.strict=true"] if strict else args.opt
