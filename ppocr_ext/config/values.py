"""Rules for single values: what a value must be, and how to say that it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ppocr_ext.config.node import plain_copy

Kind = Literal["truth", "whole", "number", "text", "texts", "steps", "options", "any"]
_TRUTHS = ("true", "false", "yes", "no", "on", "off")
_NAMES = {
    "truth": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "text": "text",
    "texts": "a list of names",
    "steps": "a number of steps or [first, every], every at least 1",
}
_UNQUOTE = " Fix: remove the quotes."
_QUOTE = " Fix: put quotes around it (YAML reads off, on, yes, no and numbers as values)."


class Problem(NamedTuple):
    """Why a value cannot be used: the code of an issue or error, and its message."""

    code: str
    message: str


@dataclass(frozen=True)
class ValueRule:
    """What a value must be; ``null`` always passes.

    Attributes:
        kind: ``"truth"``, ``"whole"`` (a whole number), ``"number"``, ``"text"``, ``"texts"`` (a list of them),
            ``"steps"`` (``eval_batch_step``), ``"options"`` (named values) or ``"any"``.
        least: the least number.
        most: the greatest number.
        above: the number must be greater than this.
        choices: the values that a text can have.
        options: the rule of each named value; the first one is needed.
    """

    kind: Kind = "any"
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    options: tuple[tuple[str, ValueRule], ...] = ()

    def problem(self, value: Any) -> Problem | None:
        """Return why ``value`` cannot be used, or None if it can."""
        if value is None or self._fits(value):
            return None
        if self.kind == "options" and isinstance(value, Mapping):
            return self._option_problem(value)
        if isinstance(value, str):
            is_truth = self.kind == "truth" and value.strip().lower() in _TRUTHS
            if is_truth or self.kind in ("whole", "number") and is_number(value):
                message = f"found the text {value!r}, expected {_NAMES[self.kind]}.{_UNQUOTE}"
                return Problem("quoted_value", message)
        expected = f"found {shown(value)}, expected {self._expected()}."
        if self.kind == "text" and isinstance(value, (bool, int, float)):
            return Problem("bad_value", expected + _QUOTE)
        if self.kind == "texts" and isinstance(value, str):
            return Problem("bad_value", f"{expected} Fix: [{value}].")
        return Problem("bad_value", expected)

    def _option_problem(self, value: Mapping[str, Any]) -> Problem | None:
        rules = dict(self.options)
        for name, given in value.items():
            if name not in rules:
                return Problem("unknown_key", f"unknown key {name!r}, expected one of {', '.join(rules)}.")
            problem = rules[name].problem(given)
            if problem is not None:
                return Problem(problem.code, f"{name}: {problem.message}")
        needed = self.options[0][0]
        return None if value.get(needed) is not None else Problem("bad_value", f"{needed} is missing.")

    def _fits(self, value: Any) -> bool:
        if self.kind == "truth":
            return isinstance(value, bool)
        if self.kind == "text":
            return isinstance(value, str) and (not self.choices or value in self.choices)
        if self.kind == "texts":
            return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
        if self.kind == "steps":
            pair = value if isinstance(value, (list, tuple)) else (0, value)
            whole = all(isinstance(number, int) and not isinstance(number, bool) for number in pair)
            return len(pair) == 2 and whole and pair[0] >= 0 and pair[1] >= 1
        if self.kind == "options":
            return isinstance(value, Mapping) and self._option_problem(value) is None
        types = int if self.kind == "whole" else (int, float)
        return self.kind == "any" or (
            isinstance(value, types)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )

    def _expected(self) -> str:
        """Return what the value must be, for a message."""
        if self.options:
            return f"a mapping of {', '.join(name for name, _ in self.options)}"
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.most is not None:
            return f"{_NAMES[self.kind]} between {self.least} and {self.most}"
        if self.above is not None:
            return f"{_NAMES[self.kind]} greater than {self.above}"
        return _NAMES[self.kind] + ("" if self.least is None else f" of at least {self.least}")


def is_number(text: str) -> bool:
    """Return True if a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(value: Any) -> str:
    """Return a value as one writes it in a config: lists as lists."""
    return repr(plain_copy(value))
