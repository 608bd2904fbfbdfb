"""The search space (config keys and the values to try): read it, check it, make it from a config, write it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ppocr_ext.check import check_config
from ppocr_ext.config import Config, named_items, plain_copy
from ppocr_ext.config.global_keys import ValueRule, shown
from ppocr_ext.config.node import COMPUTED, Node, Place, dotted
from ppocr_ext.config.yaml_io import read_file
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.messages import did_you_mean, near_match

_RULES = {
    "low": ValueRule("number"),
    "high": ValueRule("number"),
    "log": ValueRule("truth"),
    "step": ValueRule("number", above=0),
    "choices": ValueRule("any"),
}
_FORMS = "{low: 0.001, high: 0.01, log: true}, {low: 1, high: 5, step: 1} or {choices: [a, b]}"
_FIXED = ("Eval", "Metric", "Global.save_model_dir", "Global.checkpoints")
_RATES = ("Optimizer.lr.learning_rate", "Optimizer.lr.max_lr")
_SCALAR = str | int | float | None
_FACTOR = 3.0  # the default space goes from 1/3 of a value to 3 times it


@dataclass(frozen=True)
class Parameter:
    """One config key with the values that trials may give it.

    Attributes:
        key: path in the config, as after ``-o``.
        values: what a space file gives: ``choices``, or ``low`` and ``high`` with ``log`` (equal ratios are equally
            likely) or ``step`` (values are ``low + n * step``).
        place: place of the key in a file.
    """

    key: str
    values: Mapping[str, Any]
    place: Place = COMPUTED

    @property
    def ends(self) -> tuple[Any, ...]:
        """Return all choices, or both ends of the range."""
        return tuple(self.values.get("choices") or (self.values["low"], self.values["high"]))

    @property
    def step(self) -> float | None:
        """Return the step of a range, which is 1 by default if its ends are whole numbers; None if any number fits."""
        step: float | None = self.values.get("step")
        return 1 if step is None and all(isinstance(end, int) for end in self.ends) else step

    def holds(self, value: Any) -> bool:
        """Return True if ``value`` is one that a trial can have."""
        if "choices" in self.values or isinstance(value, bool) or not isinstance(value, int | float):
            return value in self.ends
        steps = 0.0 if self.step is None else (value - self.ends[0]) / self.step
        return self.ends[0] <= value <= self.ends[1] and abs(steps - round(steps)) < 1e-8


Space = Sequence[Parameter]


def read_space(path: Path, config: Config) -> list[Parameter]:
    """Read a space file: config keys with ``{low, high, log}``, ``{low, high, step}`` or ``{choices}``.

    Raises:
        ConfigError: the file cannot be read, or has keys that are not in ``config`` or cannot be tuned, or values that
            are wrong or lack the value of ``config``, which trial 0 has. The message lists all of them.
    """
    space = [Parameter(str(key), plain_copy(node), node.place) for key, node in read_file(path).value.items()]
    report_issues(
        Issue(error.code, "error", parameter.key, parameter.place.text, str(error))
        for parameter in space
        if (error := _value_error(parameter.values) or _key_error(parameter, config)) is not None
    )
    return space


def _value_error(values: Any) -> ConfigError | None:
    """Return the error of the values of a parameter; None if they are right."""
    if not isinstance(values, dict):
        return ConfigError(f"found {shown(values)}, expected {_FORMS}.", code="bad_value")
    for name, value in values.items():
        if name not in _RULES:
            hint = did_you_mean(near_match(str(name), _RULES, cutoff=0.6))
            return ConfigError(f"unknown key {name!r}.{hint} Expected {_FORMS}.", code="unknown_key")
        if problem := _RULES[name].problem("" if value is None else value):
            return ConfigError(f"{name}: {problem.message}", code=problem.code)
    low: Any = values.get("low")
    high = values.get("high")
    if (choices := values.get("choices")) is not None:
        scalars = isinstance(choices, list) and all(isinstance(each, _SCALAR) for each in choices)
        right = scalars and len(values) == 1 and len(set(choices)) == len(choices) > 1
        expected = "two or more different numbers or texts, and nothing beside them"
    else:
        takes_log = not values.get("log") or (low is not None and low > 0 and "step" not in values)
        right = None not in (low, high) and low < high and takes_log
        expected = f"{_FORMS}; low less than high, with log above 0"
    return None if right else ConfigError(f"found {shown(values)}, expected {expected}.", code="bad_value")


def _key_error(parameter: Parameter, config: Config) -> ConfigError | None:
    """Return the error of the key of ``parameter`` in ``config``; None if it can be tuned."""
    key = parameter.key
    try:
        value = config.at(key)
    except ConfigError as error:
        message = str(error).removeprefix(f"{key}: ")
        if "Did you mean" not in message:
            message += f" To add it to the config: -o {key}=VALUE."
        return ConfigError(message, code="unknown_key")
    if fixed := [each for each in _FIXED if f"{key}.".startswith(f"{each}.")]:
        message = f"trials with another {fixed[0]} cannot be compared. Fix: remove the key."
    elif isinstance(value, Mapping | tuple):
        message = "is a section or list of the config. Fix: name a single value below it."
    elif parameter.holds(value):
        return None
    else:
        message = (
            f"trial 0 has the config's own value {shown(value)} ({config.where(key)}), which is not among these. Fix: "
            f"add it, or set another one: -o {key}={parameter.ends[0]}."
        )
    return ConfigError(message, code="bad_value")


def check_space(space: Space, config: Config, host: Host) -> None:
    """Check ``config`` with each choice and both ends of each range, by the config check of a run.

    Raises:
        InvalidConfigError: the config itself has errors, or a value gives it one.
    """

    def errors(changed: Config, prefix: str = "") -> list[Issue]:
        issues = check_config(changed, host, "train")
        return [replace(each, message=prefix + each.message) for each in issues if each.level == "error"]

    report_issues(errors(config))
    report_issues(
        issue
        for parameter in space
        for end in parameter.ends
        for issue in errors(
            config.with_values({parameter.key: Node(end, parameter.place)}), f"{shown(end)}: "
        )
    )


def default_space(config: Config) -> list[Parameter]:
    """Return the default space for ``config``. It has only keys whose value in the config is a number above 0.

    - Learning rate: from a third to three times its value.
    - Weight decay: 0.01, 0.03, 0.1.
    - Warm-up: half, the same, double.
    - Weights of all losses but the first, since only their ratios matter: from a third to three times.
    - Temperatures of distillation losses: 1, 2, 4.

    The config's own value is always included.

    Raises:
        ConfigError: it has none of these.
    """
    losses = [dotted(path) for _, path in named_items(config, "Loss", "loss_config_list")]
    weights = [*(f"{loss}.weight" for loss in losses), "Loss.weight_1", "Loss.weight_2"]
    weights = [key for key in weights if config.at(key, None) is not None]
    others: dict[str, Iterable[float] | None] = dict.fromkeys(_RATES)  # None: a range
    others |= {"Optimizer.weight_decay": (0.01, 0.03, 0.1), "Optimizer.lr.warmup_epoch": ()}
    others |= dict.fromkeys(weights[1:])
    others |= {f"{loss}.temperature": (1.0, 2.0, 4.0) for loss in losses}
    space = []
    for key, choices in others.items():
        own = config.at(key, None)
        if isinstance(own, bool) or not isinstance(own, int | float) or own <= 0:
            continue
        values: dict[str, Any] = {"low": _short(own / _FACTOR), "high": _short(own * _FACTOR), "log": True}
        if choices is not None:
            values = {"choices": sorted({own, *(choices or (_short(own / 2), _short(own * 2)))})}
        space.append(Parameter(key, values))
    if not space:
        raise ConfigError(
            "the config has nothing to tune. Fix: give a space, --space FILE.", code="missing_option"
        )
    return space


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def space_text(space: Space) -> str:
    """Return the space file of ``space``; JSON's values are YAML too."""
    rows = [(each.key, ", ".join(f"{k}: {json.dumps(v)}" for k, v in each.values.items())) for each in space]
    return f"# key of the config: values to try\n# {_FORMS}\n" + "".join(
        f"{k}: {{{row}}}\n" for k, row in rows
    )
