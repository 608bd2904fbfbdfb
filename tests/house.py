"""Measure the code: size, import circles, and tests that assert wording alone.

`python tests/house.py` prints the table; `python tests/house.py --list` also names what it counted, and `--rooms`
prints the sizes of each room.
tests/test_house.py sets the limits.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "ppocr_ext"
GENERATED = {"reference.md", "errors.md", "README.zh.md"}
# names that tests give to text which a program has printed or raised
TEXT_NAMES = re.compile(
    r"(said|message|text|err|out|output|stderr|stdout|printed|log|logged|lines?|warned|caplog\.text)$"
)


def modules(folder: Path = PACKAGE) -> dict[str, ast.Module]:
    """Return each module's dotted name and tree."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        name = ".".join(file.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(file.read_text(encoding="utf-8"))
    return found


def statements(tree: ast.Module) -> int:
    """Count the statements of a module: every `ast.stmt`, imports and docstrings included."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(tree))


def working_statements(tree: ast.Module) -> int:
    """Count the statements that work: no imports, no docstrings, each target of a packed assignment singly."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    count = 0
    for node in ast.walk(tree):
        count += isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom)
        count -= isinstance(node, kinds) and ast.get_docstring(node) is not None
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            count += len(node.value.elts) - 1 if isinstance(node.targets[0], ast.Tuple) else 0
    return count


def tokens(tree: ast.Module) -> int:
    """Count the tokens of a module without comments and docstrings."""
    for node in ast.walk(tree):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    text = ast.unparse(ast.fix_missing_locations(tree))
    layout = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    return sum(each.type not in layout for each in tokenize.generate_tokens(io.StringIO(text).readline))


def totals() -> dict[str, int]:
    """Return what the package and its English documents come to; tests/test_house.py holds the limits."""
    trees = list(modules().values())
    prose, tables, pages = english_words()
    return {
        "working statements": sum(map(working_statements, trees)),
        "all statements": sum(map(statements, trees)),
        "tokens": sum(map(tokens, trees)),  # last: it takes the docstrings away
        "files": len(trees),
        "lines of tests": _lines(ROOT / "tests"),
        "lines of tools": _lines(ROOT / "tools"),
        "words of English prose": prose,
        "words of tables": tables,
        "pages": pages,
    }


def markdown(root: Path) -> list[Path]:
    """Return the Markdown that belongs to the repository: what git tracks, or else what `.gitignore` does not name.

    Users write model cards and reports into their clone.
    """
    listed = ["git", "ls-files", "-z", "--", "*.md"]
    try:
        names = subprocess.run(listed, cwd=root, capture_output=True, check=True, text=True).stdout.split(
            "\0"
        )
    except (OSError, subprocess.CalledProcessError):  # no git, or no clone
        names = []
    if tracked := [root / name for name in names if name and (root / name).is_file()]:
        return tracked
    ignored = {line.strip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").splitlines()}
    return sorted(page for page in root.rglob("*.md") if page.relative_to(root).parts[0] not in ignored)


def english_words(root: Path = ROOT) -> tuple[int, int, int]:
    """Return the words of prose and of tables in English Markdown, and its pages.

    Blocks of code, the Chinese pages and the generated pages do not count.
    """
    prose, tables, pages = 0, 0, 0
    for page in markdown(root):
        inside = page.relative_to(root)
        if (
            {"zh", "node_modules"} & {*inside.parts}
            or inside.name in GENERATED
            or any(part[0] == "." for part in inside.parts)
        ):
            continue
        pages += 1
        for line in re.sub(
            r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S
        ).splitlines():
            words = len(line.split())
            tables += words if line.lstrip().startswith("|") else 0
            prose += 0 if line.lstrip().startswith("|") else words
    return prose, tables, pages


def packed_assignments(trees: dict[str, ast.Module]) -> int:
    """Count the assignments of several values to several names at once."""
    return sum(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
        for tree in trees.values()
        for node in ast.walk(tree)
    )


def _lines(folder: Path) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in folder.rglob("*.py"))


def imported(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """Yield the modules of `known` that a module imports: in functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (each for each in (name if name in known else node.module,) if each in known)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name == "import_module" and node.args[0].value in known:
                yield str(node.args[0].value)


def circles(trees: dict[str, ast.Module]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    graph = {name: set(imported(tree, set(trees))) - {name} for name, tree in trees.items()}
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, queue = set(), list(graph[start])
        while queue:
            name = queue.pop()
            if name not in seen:
                seen.add(name)
                queue.extend(graph[name])
        reach[start] = seen
    groups = {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }
    return sorted(sorted(group) for group in groups)


def called(node: ast.AST) -> str:
    """Return the name of what a call, or a decorator, names: `x` of `a.x(…)`."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Subscript):
        function = function.value
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def prose_tests(folder: Path = ROOT / "tests") -> tuple[list[str], int]:
    """Return the tests that assert nothing but the wording of a message, and how many tests there are.

    Wording is: `pytest.raises` or `warns` with a `match`, and comparisons of printed or raised text with a constant.
    A test with any other assertion (a code, a number, a path, a file) is not counted.
    """
    found, count = [], 0
    for file in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                count += 1
                kinds = list(_assertions(node))
                if kinds and all(kinds):
                    found.append(f"{file.relative_to(ROOT)}::{node.name}")
    return found, count


def _assertions(function: ast.FunctionDef) -> Iterator[bool]:
    """Yield for each assertion of a test whether it is about wording alone."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield _is_prose(node.test)
        elif isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and called(call) in ("raises", "warns"):
                    match = next((k.value for k in call.keywords if k.arg == "match"), None)
                    if match is not None:
                        yield True
                    elif item.optional_vars is None:
                        yield False  # the type alone
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from (False for name in (called(node.value),) if name.startswith("assert"))


def _is_prose(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return all(_is_prose(value) for value in test.values)
    if isinstance(test, ast.UnaryOp):
        return _is_prose(test.operand)
    if isinstance(test, ast.Call):
        if (
            called(test) in ("all", "any")
            and test.args
            and isinstance(test.args[0], ast.GeneratorExp | ast.ListComp)
        ):
            return _is_prose(test.args[0].elt)
        return called(test) in ("startswith", "endswith", "search", "match", "found") and any(
            map(_is_words, test.args)
        )
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    texts = [_is_text(side) for side in sides]
    words = [_is_words(side) or any(texts) and isinstance(side, ast.Constant) for side in sides]
    return any(words) and all(word or text for word, text in zip(words, texts, strict=True))


def _is_words(node: ast.AST) -> bool:
    """Return whether `node` holds a text of several words."""
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and len(each.value.split()) > 1
        for each in ast.walk(node)
    )


def _is_text(node: ast.AST) -> bool:
    """Return whether `node` looks like text that was printed or raised."""
    if isinstance(node, ast.Call) and called(node) in (
        "str",
        "join",
        "getMessage",
        "error_text",
        "splitlines",
    ):
        return True
    return TEXT_NAMES.search(ast.unparse(node)) is not None


def table() -> dict[str, str]:
    """Return the measures by name."""
    trees = modules()
    lines = {
        name: len(file.read_text(encoding="utf-8").splitlines())
        for name, file in ((str(f), f) for f in PACKAGE.rglob("*.py"))
    }
    wording, tests = prose_tests()
    return {
        **{name: f"{total:,}" for name, total in totals().items()},
        "lines": f"{sum(lines.values()):,}",
        "median file, lines": f"{statistics.median(lines.values()):.0f}",
        "longest file, lines": str(max(lines.values())),
        "packed assignments": str(packed_assignments(trees)),
        "circles of imports": str(len(circles(trees))),
        "tests that assert wording alone": f"{len(wording)} of {tests:,}",
    }


def rooms() -> dict[str, tuple[int, int]]:
    """Return the working statements and tokens of each room: each folder or file below the package, and each file."""
    sizes: dict[str, tuple[int, int]] = {}
    for name, tree in modules().items():
        count = (working_statements(tree), tokens(tree))
        parts = name.split(".")[1:] or ["__init__"]
        for room in dict.fromkeys((parts[0], "/".join(parts))):
            before = sizes.get(room, (0, 0))
            sizes[room] = (before[0] + count[0], before[1] + count[1])
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name circles and tests too")
    parser.add_argument(
        "--rooms", action="store_true", help="print working statements and tokens of each room"
    )
    args = parser.parse_args()
    if args.rooms:
        for name, (count, words) in sorted(rooms().items()):
            print(f"{name:50}{count:>10,}{words:>14,}")
        return
    for name, value in table().items():
        print(f"{name:50}{value:>14}")
    if args.list:
        print("\n".join(["", *(" <-> ".join(group) for group in circles(modules()))]))
        print("\n".join(["", *prose_tests()[0]]))


if __name__ == "__main__":
    main()
