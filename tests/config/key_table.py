"""Write the table of the keys of `Global` in docs/reference.md: `python tests/config/key_table.py`."""

from __future__ import annotations

from ppocr_ext.config.global_keys import GLOBAL_KEYS, GlobalKey
from ppocr_ext.config.values import ValueRule

NAMES = {
    "truth": "`bool`",
    "whole": "`int`",
    "number": "`float`",
    "text": "`str`",
    "texts": "`[str]`",
    "steps": "`int` or `[first, every]`",
    "any": "",
}


def rule_text(rule: ValueRule) -> str:
    """Return a kind and its range."""
    name = NAMES[rule.kind]
    if rule.most is not None:
        return f"{name} {rule.least}–{rule.most}"
    if rule.above is not None:
        return f"{name} > {rule.above}"
    return name if rule.least is None else f"{name} ≥ {rule.least}"


def form(key: GlobalKey) -> str:
    """Return the values that are accepted."""
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.options:
        return ", ".join(f"`{name}`: {rule_text(rule)}" for name, rule in key.options)
    return rule_text(key)


def default_text(key: GlobalKey) -> str:
    """Return the default as one writes it in YAML; empty if there is none."""
    if key.default is None:
        return ""
    return f"`{str(key.default).lower() if isinstance(key.default, bool) else key.default}`"


def key_table() -> str:
    """Return the table, one row for each key."""
    rows = [
        f"| `{name}` | {form(key)} | {default_text(key)} | {key.meaning} |"
        for name, key in GLOBAL_KEYS.items()
    ]
    return "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(key_table())
