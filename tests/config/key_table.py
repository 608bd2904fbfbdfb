"""Write the table of the keys of `Global` in docs/reference.md: `python tests/config/key_table.py`."""

from __future__ import annotations

from ppocr_ext.config.global_keys import GLOBAL_KEYS, GlobalKey

NAMES = {
    "truth": "`bool`",
    "whole": "`int`",
    "number": "`float`",
    "text": "`str`",
    "texts": "`[str]`",
    "steps": "`int` or `[first, every]`",
    "any": "",
}


def form(key: GlobalKey) -> str:
    """Return the values that are accepted."""
    name = NAMES[key.kind]
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.most is not None:
        return f"{name} {key.least}–{key.most}"
    if key.above is not None:
        return f"{name} > {key.above}"
    return name if key.least is None else f"{name} ≥ {key.least}"


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
