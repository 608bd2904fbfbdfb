"""The rooms of the package import downwards only, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import house

HOST_MODULES = ("ppocr", "tools")


def levels() -> dict[str, int]:
    """Room → line of the drawing, 0 at the top."""
    page = (house.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = re.search(r"<!-- rooms -->\n```\n(.*?)```", page, re.DOTALL)
    assert drawing is not None
    lines = [line.partition("  ")[0] for line in drawing[1].splitlines()]
    return {room.strip("/"): number for number, line in enumerate(lines) for room in line.split(", ")}


MODULES = {name: tree for name, tree in house.modules().items() if "." in name}


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of every import: in functions, under TYPE_CHECKING, and by `import_module` of a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "run_module"):
                yield node.lineno, str(node.args[0].value)


def room(name: str) -> str:
    return name.split(".")[1]


def test_every_room_is_drawn() -> None:
    known = levels()
    assert {room(name) for name in MODULES} - {"__main__"} == set(known)


def test_rooms_import_downwards_only() -> None:
    known = levels()
    upwards = []
    for name, tree in MODULES.items():
        for line, imported in imports(tree):
            if not imported.startswith("ppocr_ext.") or imported.count(".") < 1:
                continue
            theirs, ours = room(imported), room(name)
            if theirs in known and ours in known and theirs != ours and known[theirs] <= known[ours]:
                upwards.append(f"{name}:{line} imports {imported}")
    assert upwards == []


def test_only_the_host_imports_paddleocr() -> None:
    found = [
        f"{name}:{line} imports {imported}"
        for name, tree in MODULES.items()
        for line, imported in imports(tree)
        if imported.split(".")[0] in HOST_MODULES and room(name) != "host"
    ]
    assert found == []
