"""The notebook as its tests read it: cells, commands, and settings replaced."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
PLACEHOLDER = "1"  # in place of a value that a cell computes


def read() -> dict[str, Any]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def sources(kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in read()["cells"] if cell["cell_type"] == kind]


def with_settings(source: str, **values: object) -> str:
    """Return the cell of the settings with other values."""
    for name, value in values.items():
        source, count = re.subn(
            rf"^{name} = .*$", lambda _, v=value, n=name: f"{n} = {v!r}", source, flags=re.M
        )
        assert count == 1, name
    return source


def commands() -> Iterator[str]:
    """Yield what each `run(…)` of a cell runs, with a placeholder for what the cell computes."""
    for source in sources("code"):
        if source.startswith("%%"):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "run":
                (argument,) = node.args
                parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
                yield "".join(part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in parts)
