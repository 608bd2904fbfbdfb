"""Which keys a component takes, read from its constructor."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Plain = Literal["number", "truth"]
_BY_ANNOTATION: dict[str, Plain] = {"float": "number", "int": "number", "bool": "truth"}
_READERS = ("get", "pop", "setdefault")


@dataclass(frozen=True)
class ComponentKeys:
    """What a constructor takes by name.

    Attributes:
        named: its keys, with those that it reads from its ``**kwargs``.
        required: keys without which it cannot be called.
        open: it hands ``**kwargs`` on to something that cannot be seen from here, so any key may mean something.
        kinds: what is known of the values: ``"number"`` or ``"truth"``.
    """

    named: frozenset[str]
    required: frozenset[str]
    open: bool
    kinds: tuple[tuple[str, Plain], ...] = ()


@cache
def component_keys(component: Callable[..., Any]) -> ComponentKeys:
    """Keys of a class, with those of the constructors that it hands its ``**kwargs`` to, or of a function."""
    named: dict[str, inspect.Parameter] = {}
    read: set[str] = set()
    required: set[str] = set()
    is_open = False
    for depth, function in enumerate(_constructors(component)):
        parameters = list(inspect.signature(function).parameters.values())
        if isinstance(component, type):
            parameters = parameters[1:]
        own = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        named = {**{p.name: p for p in own}, **named}
        if depth == 0:
            required = {p.name for p in own if p.default is p.empty}
        rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        if rest is None:
            break
        use = _use_of(rest, function)
        read |= use.names
        is_open = is_open or use.elsewhere
        if not use.to_base:
            break
    kinds = tuple((name, kind) for name, p in named.items() if (kind := _kind(p)) is not None)
    return ComponentKeys(frozenset(named) | read, frozenset(required), is_open, kinds)


def _constructors(component: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    if not isinstance(component, type):
        yield component
        return
    for base in component.__mro__:
        # what a component hands on to Paddle's Layer is no option of a config; a class of Paddle's own may be one
        if base is object or (base is not component and base.__module__.partition(".")[0] == "paddle"):
            return
        if "__init__" in vars(base):
            yield vars(base)["__init__"]


def _kind(parameter: inspect.Parameter) -> Plain | None:
    if isinstance(parameter.default, bool):
        return "truth"
    if isinstance(parameter.default, (int, float)):
        return "number"
    return _BY_ANNOTATION.get(str(parameter.annotation).removesuffix("| None").strip())


@dataclass
class _Use:
    """What a function does with its ``**kwargs``."""

    names: set[str]
    to_base: bool = False
    elsewhere: bool = False


def _use_of(rest: str, function: Callable[..., Any]) -> _Use:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return _Use(set(), elsewhere=True)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    use = _Use(set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == rest:
            _note(node, parents, use)
    return use


def _note(node: ast.Name, parents: dict[ast.AST, ast.AST], use: _Use) -> None:
    parent = parents[node]
    above = parents.get(parent)
    name: ast.AST | None = None
    if isinstance(parent, ast.Subscript):
        name = parent.slice
    elif isinstance(parent, ast.Compare):
        name = parent.left
    elif isinstance(parent, ast.Attribute) and parent.attr in _READERS and isinstance(above, ast.Call):
        name = above.args[0] if above.args else None
    elif isinstance(parent, ast.keyword) and isinstance(above, ast.Call) and _is_base_call(above):
        use.to_base = True
        return
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        use.names.add(name.value)
    else:
        use.elsewhere = True


def _is_base_call(call: ast.Call) -> bool:
    """``super().__init__(…)``, with or without arguments of ``super``."""
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "__init__"
        and isinstance(function.value, ast.Call)
        and isinstance(function.value.func, ast.Name)
        and function.value.func.id == "super"
    )
