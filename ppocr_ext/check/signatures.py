"""Read from a constructor which keys a component takes."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

ValueKind = Literal["number", "truth"]
_BY_ANNOTATION: dict[str, ValueKind] = {"float": "number", "int": "number", "bool": "truth"}


@dataclass(frozen=True)
class ComponentKeys:
    """What a constructor takes by name.

    Attributes:
        named: its keys, with those that it reads from its ``**kwargs``.
        required: keys without which it cannot be called.
        open: it passes ``**kwargs`` on to a function that cannot be read here, so that any key may be used.
        kinds: ``"number"`` or ``"truth"`` for each key whose values are known to be so.
    """

    named: frozenset[str]
    required: frozenset[str]
    open: bool
    kinds: tuple[tuple[str, ValueKind], ...] = ()


@cache
def component_keys(component: Callable[..., Any]) -> ComponentKeys:
    """Return the keys of a function, or of a class with the base classes that get its ``**kwargs``."""
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
        names, to_base, elsewhere = _uses_of(rest, function)
        read |= names
        is_open = is_open or elsewhere
        if not to_base:
            break
    kinds = tuple((name, kind) for name, p in named.items() if (kind := _value_kind(p)) is not None)
    return ComponentKeys(frozenset(named) | read, frozenset(required), is_open, kinds)


def _constructors(component: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function itself, or the constructors of a class and of its bases."""
    if not isinstance(component, type):
        yield component
        return
    for base in component.__mro__:
        # what a component passes on to Paddle's Layer is no option of a config; a class of Paddle's own may be one
        if base is object or (base is not component and base.__module__.partition(".")[0] == "paddle"):
            return
        if "__init__" in vars(base):
            yield vars(base)["__init__"]


def _value_kind(parameter: inspect.Parameter) -> ValueKind | None:
    """Return the kind of the values of a parameter, from its default or its annotation."""
    if isinstance(parameter.default, bool):
        return "truth"
    if isinstance(parameter.default, (int, float)):
        return "number"
    return _BY_ANNOTATION.get(str(parameter.annotation).removesuffix("| None").strip())


def _uses_of(rest: str, function: Callable[..., Any]) -> tuple[set[str], bool, bool]:
    """Return what a function does with its ``**kwargs``, which are called ``rest``.

    Returns:
        The keys that it reads, whether it passes them on to ``super().__init__``, and whether it does anything else.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return set(), False, True
    nodes = list(ast.walk(tree))
    unknown = sum(isinstance(node, ast.Name) and node.id == rest for node in nodes)
    names: set[str] = set()
    to_base = False
    for node in nodes:
        match node:
            case (
                ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))
                | ast.Compare(left=ast.Constant(value=str(key)), comparators=[ast.Name(id=name)])
                | ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="get" | "pop" | "setdefault"),
                    args=[ast.Constant(value=str(key)), *_],
                )
            ) if name == rest:
                names.add(key)
                unknown -= 1
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__"), keywords=given
            ) if any(isinstance(each.value, ast.Name) and each.value.id == rest for each in given):
                to_base = True
                unknown -= 1
    return names, to_base, unknown > 0
