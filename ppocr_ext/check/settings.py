"""Sections of a config, the keys of ``Global``, and values that are numbers or truths."""

from __future__ import annotations

from typing import Any

from ppocr_ext.check.config_check import TRUTHS, ConfigCheck, Path, is_number, shown
from ppocr_ext.check.global_keys import GLOBAL_KEYS, NEEDED, SECTIONS, GlobalKey
from ppocr_ext.config import ctc_heads

_LOADER_NUMBERS = {"batch_size_per_card": 1, "num_workers": 0}  # key → least value
_LOADER_TRUTHS = ("shuffle", "drop_last", "use_shared_memory")
_CHOICES = {
    "amp_level": ("O0", "OD", "O1", "O2"),
    "amp_dtype": ("float16", "bfloat16"),
    "unknown_char": ("drop_line", "drop_char"),
}


def check_sections(check: ConfigCheck) -> None:
    """Sections that nothing reads, and those that the role needs and the config lacks."""
    for name in check.config:
        if name not in SECTIONS:
            check.unknown_key((str(name),), SECTIONS)
    if "Global" in check.config and check.at("Global") is None:
        check.error(
            ("Global",),
            "empty_value",
            "is empty. Fix: give the dictionary, max_text_length and epoch_num in it.",
        )
    for name in NEEDED[check.role]:
        if name in check.config and check.at(name) is None:
            check.error((name,), "empty_value", f"is empty, but `{check.role}` needs it.")
        elif name not in check.config:
            check.error(
                (), "missing_section", f"The config has no section {name}, which `{check.role}` needs."
            )


def check_global(check: ConfigCheck) -> None:
    """Keys of ``Global`` and their values."""
    for name, value in check.mapping("Global").items():
        key = GLOBAL_KEYS.get(str(name))
        if key is None:
            check.unknown_key(("Global", str(name)), GLOBAL_KEYS)
        elif value is not None:
            _check_value(check, ("Global", str(name)), value, key)
    if check.unloaded_plugins:
        names = ", ".join(check.unloaded_plugins)
        check.plugin_warning(
            ("Global", "plugins"), f"not imported: {names}. Fix: `--import-plugins` runs their code."
        )
    _check_eval_step(check)
    share = check.at("Global", "max_unusable")
    if isinstance(share, (int, float)) and not 0 <= share <= 1:
        check.error(("Global", "max_unusable"), "bad_value", f"it is {share!r}, but must be between 0 and 1.")
    if check.at("Global", "return_feats") is True and not list(ctc_heads(check.config)):
        check.error(
            ("Global", "return_feats"),
            "missing_branch",
            "no CTCHead in Architecture, alone or in a MultiHead, gives any.",
        )
    for name, choices in _CHOICES.items():
        chosen = check.at("Global", name)
        if isinstance(chosen, str) and chosen not in choices:
            check.error(("Global", name), "bad_value", f"{chosen!r} is none of {', '.join(choices)}.")


def check_loaders(check: ConfigCheck) -> None:
    """Numbers and truth values of the loaders."""
    for mode in check.modes:
        for name, least in _LOADER_NUMBERS.items():
            _whole(check, (mode, "loader", name), check.at(mode, "loader", name), least)
        for name in _LOADER_TRUTHS:
            _truth(check, (mode, "loader", name), check.at(mode, "loader", name))
    if check.at("Eval", "loader", "drop_last") is True:
        check.warning(
            ("Eval", "loader", "drop_last"),
            "ignored_value",
            "every line is evaluated, so it counts as false; PaddleOCR would skip the last lines. Fix: false.",
        )
    ratios = check.at("Eval", "dataset", "ratio_list")
    if any(
        isinstance(r, int | float) and r < 1 for r in (ratios if isinstance(ratios, tuple) else (ratios,))
    ):
        check.warning(
            ("Eval", "dataset", "ratio_list"),
            "partial_evaluation",
            "an evaluation reads only this share of the lines, drawn at random. Fix: take it out to read all.",
        )
    if check.at("Eval", "loader", "shuffle") is True:
        check.warning(
            ("Eval", "loader", "shuffle"),
            "ignored_value",
            "lines are evaluated in the data's order, so it counts as false. Fix: false.",
        )


def _check_value(check: ConfigCheck, path: Path, value: Any, key: GlobalKey) -> None:
    if key.kind == "whole":
        _whole(check, path, value, 0 if key.least is None else key.least)
    elif key.kind == "truth":
        _truth(check, path, value)
    elif key.kind == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        check.error(path, _code(value), f"{shown(value)} is no number.{_unquote(value)}")
    elif key.kind == "text" and not isinstance(value, str) and path[-1] == "save_model_dir":
        check.error(
            path,
            "bad_value",
            f"{value!r} is not the name of a folder. (YAML reads off, on, yes, no and numbers as values: put "
            f"quotes around such a name.)",
        )
    elif key.kind == "text" and not isinstance(value, str):
        check.error(
            path,
            "bad_value",
            f"{shown(value)} is no text.{'' if isinstance(value, tuple) else ' Put quotes around it.'}",
        )
    elif key.kind == "list" and not isinstance(value, tuple):
        check.error(path, "bad_value", f"{value!r} is no list. Write [{value}].")


def _whole(check: ConfigCheck, path: Path, value: Any, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        check.error(
            path, _code(value), f"{shown(value)} is not a whole number of at least {least}.{_unquote(value)}"
        )


def _truth(check: ConfigCheck, path: Path, value: Any) -> None:
    if value is not None and not isinstance(value, bool):
        check.error(path, _code(value), f"{shown(value)} is neither true nor false.{_unquote(value)}")


def _code(value: Any) -> str:
    return "quoted_value" if _unquote(value) else "bad_value"


def _unquote(value: Any) -> str:
    fits = isinstance(value, str) and (is_number(value) or value.strip().lower() in TRUTHS)
    return " Write it without quotes." if fits else ""


def _check_eval_step(check: ConfigCheck) -> None:
    path = ("Global", "eval_batch_step")
    value = check.at(*path)
    if value is None:
        return
    pair = value if isinstance(value, tuple) else (0, value)
    if len(pair) != 2 or any(isinstance(n, bool) or not isinstance(n, int) for n in pair):
        shown = list(value) if isinstance(value, tuple) else value
        check.error(path, "bad_value", f"{shown!r} is neither a number of steps nor [first, every].")
    elif pair[1] < 1 or pair[0] < 0:
        check.error(
            path,
            "bad_value",
            f"{list(pair)} evaluates every {pair[1]} steps from {pair[0]} on. Give at least 1, from 0 on.",
        )
