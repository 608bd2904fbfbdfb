"""Read from a constructor which keys a component takes, and suggest where a misplaced key belongs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from ppocr_ext.config.global_keys import GLOBAL_KEYS
from ppocr_ext.messages import near_match
from ppocr_ext.registry import SCHEDULES

Path = tuple[str, ...]
ValueKind = Literal["number", "truth"]
_BY_ANNOTATION: dict[str, ValueKind] = {"float": "number", "int": "number", "bool": "truth"}
# Keys of the parts of `Train` and `Eval`: all of a loader, and those that every dataset of PaddleOCR has.
DATA_KEYS = {
    "dataset": ("data_dir", "label_file_list", "transforms"),
    "loader": (
        "batch_size_per_card",
        "shuffle",
        "drop_last",
        "num_workers",
        "use_shared_memory",
        "collate_fn",
    ),
}
_SECTION_DEPTH = 2  # of `Global.seed`
_NEAR = 0.85  # higher than within a section: among the keys of all sections a lower ratio is often chance
GIVEN_TO_SCHEDULE = ("epochs", "step_each_epoch", "last_epoch")  # by the program
# Keys of other programs, which no config of PaddleOCR has, by the key that they stand for; {} is `Train` or `Eval`.
_ALIASES = {
    "Global.epoch_num": ("epoch", "epochs", "num_epochs", "max_epochs"),
    "Optimizer.lr.learning_rate": ("lr", "learning_rate"),
    "{}.loader.batch_size_per_card": ("batch_size", "train_batch_size"),
    "Global.use_gpu": ("gpu", "cuda"),
    "Global.character_dict_path": ("dict_path", "charset", "charset_path", "dictionary"),
    "Global.save_model_dir": ("output_dir", "out_dir", "save_dir"),
    "Global.eval_batch_step": ("eval_every", "eval_interval", "eval_steps"),
}


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


def key_meant(path: Path) -> str | None:
    """Return the path that a key of another program stands for; None for other keys."""
    mode = "Eval" if path[0] == "Eval" else "Train"
    return next((known.format(mode) for known, others in _ALIASES.items() if path[-1] in others), None)


def suggest_path(path: Path) -> Path | None:
    """Return the known path in another section whose key is, starts with or is nearest to the key of ``path``.

    Only a key at the top or directly in a section gets a suggestion: a path in ``Global``, ``Optimizer.lr``, or the
    dataset or loader of ``Train`` and ``Eval``. Return None if there is none.
    """
    if len(path) > _SECTION_DEPTH:
        return None
    key = path[-1]
    schedules = {name for each in SCHEDULES.names() for name in component_keys(SCHEDULES.get(each)).named}
    known_paths = [
        *(("Global", name) for name in GLOBAL_KEYS),
        *(("Optimizer", "lr", name) for name in sorted(schedules.difference(GIVEN_TO_SCHEDULE))),
        *((mode, part, name) for mode in ("Train", "Eval") for part in DATA_KEYS for name in DATA_KEYS[part]),
    ]
    others = [known for known in known_paths if known[:-1] != path[:-1]]
    others.sort(key=lambda known: known[0] != path[0])  # the section of the key itself first
    near = near_match(key, {known[-1] for known in others}, cutoff=_NEAR)
    rules: tuple[Callable[[str], bool], ...] = (
        lambda name: name == key,
        lambda name: name.startswith(f"{key}_"),
        lambda name: name == near,
    )
    return next((known for fits in rules for known in others if fits(known[-1])), None)
