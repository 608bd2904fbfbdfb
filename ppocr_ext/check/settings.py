"""Check the sections of a config, the keys of ``Global``, and the values of the loaders."""

from __future__ import annotations

from functools import partial

from ppocr_ext.check.config_check import PLUGIN, ConfigCheck
from ppocr_ext.config import ctc_heads
from ppocr_ext.config.global_keys import DEVICES, GLOBAL_KEYS, ValueRule
from ppocr_ext.data.preprocessing import COLORS
from ppocr_ext.inference.runners import require_engine

_SECTIONS = ("Global", "Architecture", "Loss", "Optimizer", "PostProcess", "Metric", "Train", "Eval")
_ALSO_READ = ("Quickstart", "wandb", "profiler_options", "_BASE_", "computed")
_NEEDED = {
    "train": ("Architecture", "Loss", "Optimizer", "PostProcess", "Metric", "Train"),
    "eval": ("Architecture", "PostProcess", "Metric", "Eval"),
    "predict": ("Architecture", "PostProcess", "Eval"),
}
_NOT_NEGATIVE = ValueRule("number", least=0)
_SHARE = ValueRule("number", least=0, most=1)
_TRUTH = ValueRule("truth")
_OF_DATA = {
    "loader.batch_size_per_card": ValueRule("whole", least=1),
    "loader.num_workers": ValueRule("whole", least=0),
    "loader.shuffle": _TRUTH,
    "loader.drop_last": _TRUTH,
    "loader.use_shared_memory": _TRUTH,
    "dataset.ratio_list": _SHARE,  # above 1 PaddleOCR fails: it draws a line of a label file at most once
    "dataset.transforms.DecodeImage.img_mode": ValueRule("text", choices=COLORS),  # GRAY fails
}
_OF_OPTIMIZER = {
    **dict.fromkeys(("clip_norm", "clip_norm_global", "weight_decay"), _NOT_NEGATIVE),
    **dict.fromkeys(("beta1", "beta2"), _SHARE),
    **dict.fromkeys(
        ("lr.learning_rate", "lr.start_lr", "lr.end_lr", "lr.min_lr", "lr.max_lr"), _NOT_NEGATIVE
    ),
    "lr.values": _NOT_NEGATIVE,
}
_LISTS = ("ratio_list", "values")  # the items of these are checked one by one
_AVERAGE = "asks PaddleOCR for its own average"
# a key of Global, the path and the value that cannot go with it, and the reason
_CONFLICTS = (
    ("recompute", ("Global", "to_static"), True, "a network that `to_static` compiles keeps its activations"),
    ("ema", ("Global", "start_ema"), True, f"`start_ema: true` {_AVERAGE}"),
    ("ema", ("Architecture", "algorithm"), "SRN", f"`algorithm: SRN` {_AVERAGE}"),
)
_IGNORED_IN_EVAL = {
    "drop_last": "it counts as false, since every sample is evaluated; PaddleOCR would skip the last ones.",
    "shuffle": "it counts as false, since samples are evaluated in the order of the data.",
}


def check_sections(check: ConfigCheck) -> None:
    """Report sections that nothing reads, and missing sections that the role needs."""
    for name in check.config:
        if name not in _SECTIONS + _ALSO_READ:
            check.unknown_key((str(name),), _SECTIONS + _ALSO_READ)
    if "Global" in check.config and check.at("Global") is None:
        check.error(
            ("Global",),
            "empty_value",
            "is empty. Fix: give the dictionary, max_text_length and epoch_num in it.",
        )
    for name in _NEEDED[check.role]:
        if name not in check.config:
            check.error((name,), "missing_section", f"the section is missing, but `{check.role}` needs it.")
        elif check.at(name) is None:
            check.error((name,), "empty_value", f"is empty, but `{check.role}` needs it.")


def check_global(check: ConfigCheck) -> None:
    """Report unknown keys of ``Global``, and values that break the rule of their key."""
    for name in check.mapping("Global"):
        path = ("Global", str(name))
        if name in GLOBAL_KEYS:
            check.check_value(path, GLOBAL_KEYS[name])
        else:
            check.unknown_key(path, GLOBAL_KEYS)
    if check.unloaded_plugins:
        check.warning(
            ("Global", "plugins"),
            PLUGIN,
            f"not imported: {', '.join(check.unloaded_plugins)}. Fix: `--import-plugins` runs their code.",
        )
    _check_engine(check)
    if check.role == "train":
        _check_hooks(check)
    if check.at("Global", "return_feats") is True and not list(ctc_heads(check.config)):
        check.error(
            ("Global", "return_feats"),
            "missing_branch",
            "there is no CTCHead in Architecture that can return features.",
        )


def _check_engine(check: ConfigCheck) -> None:
    """Report that the engine of the role is not installed; engines are used only on a CPU."""
    name = {"train": "teacher_engine", "eval": "eval_engine"}.get(check.role)
    if name is None or any(check.at("Global", f"use_{kind}") is True for kind in DEVICES):
        return
    check.attempt(("Global", name), "engine", partial(require_engine, str(check.at("Global", name))))


def _check_hooks(check: ConfigCheck) -> None:
    """Report hooks that would have no effect, or that do not work with another value."""
    if check.at("Global", "early_stop") is not None and check.at("Eval") is None:
        check.error(
            ("Global", "early_stop"),
            "missing_section",
            "there is no Eval, so the run never knows if it gets better. Fix: give Eval, or remove this key.",
        )
    for key, path, value, reason in _CONFLICTS:
        if check.at("Global", key) not in (None, False) and check.at(*path) == value:
            check.error(("Global", key), "conflicting_keys", f"{reason}. Fix: remove one of the two.")


def check_values(check: ConfigCheck) -> None:
    """Report wrong values outside Global, and values that an evaluation ignores."""
    rules = {(mode, *key.split(".")): rule for mode in check.modes for key, rule in _OF_DATA.items()}
    if check.role == "train":
        rules |= {("Optimizer", *key.split(".")): rule for key, rule in _OF_OPTIMIZER.items()}
    for path, rule in rules.items():
        value = check.at(*path)
        count = len(value) if isinstance(value, tuple) and path[-1] in _LISTS else 0
        for where in [(*path, str(index)) for index in range(count)] or [path]:
            check.check_value(where, rule)
    if not check.modes:
        return
    for name, reason in _IGNORED_IN_EVAL.items():
        if check.at("Eval", "loader", name) is True:
            check.warning(("Eval", "loader", name), "ignored_value", f"{reason} Fix: false.")
    path = ("Eval", "dataset", "ratio_list")
    ratios = check.at(*path)
    if any(
        isinstance(r, int | float) and r < 1 for r in (ratios if isinstance(ratios, tuple) else (ratios,))
    ):
        check.warning(
            path,
            "partial_evaluation",
            "an evaluation reads only this share of the samples, drawn at random. Fix: remove it.",
        )
