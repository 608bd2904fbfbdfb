"""``ppocr-ext config``: print the resolved config with the place of each value, and its issues."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, TextIO

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.cli.options import add_config_arguments, add_old_dictionary_argument, read_config
from ppocr_ext.config import Config, resolve_charset, with_class_counts
from ppocr_ext.errors import CharsetError, ConfigError, PPOCRExtError, with_code
from ppocr_ext.host import Host, open_host
from ppocr_ext.issues import Issue
from ppocr_ext.messages import for_people
from ppocr_ext.run.host_config import complete, import_plugins, plugin_names
from ppocr_ext.run.logs import quiet_host

_SECONDS = 10.0  # time limit of `--data quick` for each of Train and Eval

EPILOG = """\
examples:
  ppocr-ext config -c my.yml --check                            # what is wrong, and nothing else
  ppocr-ext config -c my.yml -o Global.epoch_num=5 > whole.yml  # one file that needs none of the others
  ppocr-ext config -c my.yml --role eval --check                # what an evaluation needs

Without --check, the resolved configuration goes to standard output: bases, overlays and options are merged, defaults
and class counts are filled in. Each line ends with the place where its value was written: `my.yml:12`, `-o`, or
`computed`. Issues go to standard error. No network is built.

With --check, the command also checks that this machine has the device of the config. It builds the networks, and sends
two samples of Train and of Eval through their transforms, the networks, losses, decoder and metric (Global.dry_step).
It builds schedule and optimizer, and compares the weights of the start with the networks; it downloads nothing.
Then it checks the label files (or LMDBs) and their images: 10 seconds for each of Train and Eval, or all of them with
`--data all`; `--data none` skips the dry step and the data. The command never writes a file.

The modules of Global.plugins are not imported, since that runs their code. A name or key that only a plugin may know
gives a warning [plugin_not_loaded], and the dry step is skipped; --import-plugins imports them, as train and eval do.

exit code: 0 no errors (with --strict: no warnings either), 2 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_config_arguments(parser)
    parser.add_argument("--check", action="store_true", help="print the issues, or `no issues`, and no YAML")
    parser.add_argument(
        "--data",
        choices=("quick", "all", "none"),
        default="quick",
        help="with --check: how much of the data to check (default: as much as 10 seconds allow)",
    )
    parser.add_argument(
        "--role",
        choices=("train", "eval"),
        default="train",
        help="what the config is for: `eval` needs neither Train nor its files (default: train)",
    )
    parser.add_argument(
        "--import-plugins", action="store_true", help="import Global.plugins, which runs their code"
    )
    add_old_dictionary_argument(parser)
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.check import check_all
    from ppocr_ext.check.files import weights_to_load

    config = read_config(args)
    host = open_host(args.host)
    quiet_host(host.logger)
    if args.import_plugins:
        import_plugins(config, partial(print, file=sys.stderr))
    issues, unused = check_all(config, host, args.role, () if args.import_plugins else plugin_names(config))
    if not args.check:
        sys.stdout.write(_resolved(config, host)[0].to_yaml(origins=True))
        sys.stdout.flush()
    if args.strict:
        config = config.with_values({"Global.strict": True})
    strict = config.settings.strict is True
    stream = sys.stdout if args.check else sys.stderr
    wrong = _print_issues(issues, strict, stream)
    if args.check:
        for _, name in weights_to_load(config, args.role):
            if (source := find_source(str(name))) is not None:
                _print(
                    f"weights: {name}: {'' if source.is_here else 'will be downloaded from '}{source.place}"
                )
        wrong = _check_machine(config, host, args, unused, wrong, issues)
    if not issues and not wrong:
        print("no issues", file=stream)
    return 2 if wrong else 0


def _print(text: str) -> None:
    print(for_people(text))


def _print_issues(issues: Iterable[Issue], strict: bool, stream: TextIO | None = None) -> bool:
    """Print issues, and return True if one is an error; with ``strict``, a warning is one too."""
    levels = []
    for issue in issues:
        levels.append("error" if strict else issue.level)
        print(for_people(f"{levels[-1]}: {issue}"), file=stream)
    return "error" in levels


def _check_machine(
    config: Config,
    host: Host,
    args: argparse.Namespace,
    unused: Sequence[tuple[str, ...]],
    wrong: bool,
    issues: list[Issue],
) -> bool:
    """Check the device, a dry step and the data on this machine, and print the issues.

    A config with errors may name wrong files or a wrong dictionary, so its data are not checked.

    Args:
        config: the configuration.
        host: opened.
        args: arguments of the command.
        unused: the keys that no component takes, which the check of the config has reported.
        wrong: True if the config has errors.
        issues: issues of the config; those of the dry step and the data are added.

    Returns:
        True if there are errors here, or in the config (``wrong``).
    """
    from ppocr_ext.run.context import device_kind
    from ppocr_ext.run.data_check import run_preflight
    from ppocr_ext.run.frame_counts import FrameCounts

    warnings: list[Issue] = []
    try:
        device_kind(config)
        _, charset = _resolved(config, host)
        if args.data == "none" or wrong or charset is None:
            return wrong
        of_role = ("Train", "Eval") if args.role == "train" else ("Eval",)
        modes = [mode for mode in of_role if config.get(mode)]
        frames = dict.fromkeys(modes, FrameCounts({}))
        if plugin_names(config) and not args.import_plugins:
            print("dry step: skipped, since plugins are not imported (--import-plugins)")
        else:
            dry_issues, counts = dry_check(config, host, args.role, unused, _print, args.old_dict)
            wrong = _print_issues(dry_issues, strict=False)
            frames |= counts
            issues += dry_issues
        seconds = _SECONDS if args.data == "quick" else None
        checked = run_preflight(config, charset, frames, seconds=seconds, report=_print, warn=warnings.extend)
    except PPOCRExtError as error:
        _print(f"error: {with_code(str(error), error.code)}")
        return True
    issues += warnings
    wrong |= _print_issues(warnings, config.settings.strict)
    for mode in modes:
        if mode not in checked:
            name = config.at(f"{mode}.dataset.name", None)
            print(f"{mode.lower()} data: not checked, {name} makes it itself")
    return wrong


def dry_check(
    config: Config,
    host: Host,
    role: Literal["train", "eval"],
    unused: Sequence[tuple[str, ...]],
    say: Callable[[str], None],
    old_dictionary: str | None = None,
) -> tuple[list[Issue], dict[str, Any]]:
    """Return the issues that the dry step of a run finds, and the frames of each section if none is an error.

    Nothing is built if ``Global.dry_step`` is false.

    Args:
        config: a config in which :func:`check_all` finds no errors.
        host: opened.
        role: ``"train"`` or ``"eval"``.
        unused: the keys that no component takes, from :func:`check_all`.
        say: called with a sentence if no sample can be read.
        old_dictionary: dictionary of the weights, if it differs from the config's.

    Returns:
        The issues, and :class:`ppocr_ext.run.frame_counts.FrameCounts` by ``"Train"`` and ``"Eval"``.

    Raises:
        PPOCRExtError: the networks cannot be built, or do not take images of a size in the config.
    """
    from ppocr_ext.run.context import RunOptions, choose_device, resolve_context
    from ppocr_ext.run.dry_step import try_config
    from ppocr_ext.run.frame_counts import count_frames

    if not config.settings.dry_step:
        return [], {}
    context = resolve_context(
        config, host, RunOptions(role, old_dictionary=old_dictionary), unused, choose_device(config)
    )
    model, issues = try_config(context, say, always=True)
    modes = () if any(issue.level == "error" for issue in issues) else context.modes
    return issues, {mode: count_frames(model, context.components, mode) for mode in modes}


def _resolved(config: Config, host: Host) -> tuple[Config, Charset | None]:
    """Return the config as a run has it, and its dictionary.

    If the dictionary cannot be used, it is None, and the config has no class counts.
    """
    from ppocr_ext.check.files import no_log

    try:
        with no_log():  # a run logs the same messages
            charset = resolve_charset(config, host.find_file)
    except (CharsetError, ConfigError):  # check_config reports it
        return complete(config, Charset.default()), None
    whole = complete(config, charset)
    try:
        return with_class_counts(whole, charset), charset
    except ConfigError:  # a wrong head_list, which check_config reports
        return whole, charset
