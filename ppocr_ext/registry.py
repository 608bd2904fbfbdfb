"""Registries of components by the name that a config uses; imports no Paddle.

A registry asks its *fallback* for a name that is not registered. The host sets the fallback when it is opened, so that
configs can name the backbones and losses of a checkout.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar

from ppocr_ext.base.parts import FORMER_NAMES, MORE_KEYS, SPECIALS, TRANSFORM_ROWS, names_of
from ppocr_ext.errors import ConfigError, UnknownComponentError
from ppocr_ext.messages import LOG, did_you_mean, is_misspelling, near_match, shortened

T = TypeVar("T")
_LISTED = 20  # names in a message; the host has about a hundred transforms
ValueKind = Literal["number", "truth"]
_BY_ANNOTATION: dict[str, ValueKind] = {"float": "number", "int": "number", "bool": "truth"}


@dataclass(frozen=True)
class ComponentKeys:
    """The keys that a component takes.

    Attributes:
        named: the keys.
        required: keys that must be given.
        takes_any: True if it has ``**kwargs``.
        is_open: True if it has ``**kwargs``, and the keys that it reads from them are not known.
        kinds: ``"number"`` or ``"truth"`` for each key whose values are known to be of this kind.
        of_section: True if the component gets the whole section of the config, and not each key as an argument.
    """

    named: frozenset[str]
    required: frozenset[str] = frozenset()
    takes_any: bool = False
    is_open: bool = False
    kinds: Mapping[str, ValueKind] = field(default_factory=dict)
    of_section: bool = False


Component = Callable[..., Any] | ComponentKeys  # a class or function that takes the keys, or the keys alone


def component_keys(component: Component) -> ComponentKeys:
    """Return the keys of a component: by its signature, if they are not given."""
    return component if isinstance(component, ComponentKeys) else _keys_of_signature(component)


@cache
def _keys_of_signature(component: Callable[..., Any]) -> ComponentKeys:
    """Return the keys in the signature of a component.

    PaddleOCR's transforms and decoders with a row in the table of parts read no other keys from their ``**kwargs``.
    """
    parameters = inspect.signature(component).parameters.values()
    own = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    name = component.__name__.removeprefix("Distillation")
    is_known = component.__module__.startswith("ppocr_ext.") or name in TRANSFORM_ROWS or name in SPECIALS
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return ComponentKeys(
        frozenset(p.name for p in own) | MORE_KEYS.get(name, frozenset()),
        frozenset(p.name for p in own if p.default is p.empty),
        takes_any,
        takes_any and not is_known,
        {p.name: kind for p in own if (kind := _value_kind(p)) is not None},
    )


def _value_kind(parameter: inspect.Parameter) -> ValueKind | None:
    """Return the kind of the values of a parameter, from its default or its annotation."""
    if isinstance(parameter.default, bool):
        return "truth"
    if isinstance(parameter.default, (int, float)):
        return "number"
    return _BY_ANNOTATION.get(str(parameter.annotation).removesuffix("| None").strip())


class Registry:
    """Components of one kind (``"backbone"``, ``"loss"``, …) by name.

    Args:
        kind: name of the kind for error messages.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._own: dict[str, Callable[..., Any]] = {}
        self._find_foreign: Callable[[str], Callable[..., Any] | None] = lambda name: None
        self._foreign_names: Callable[[], Iterable[str]] = lambda: ()
        self._has_checkout = False

    def register(self, name: str | None = None) -> Callable[[T], T]:
        """Return a decorator that registers a class or function under ``name`` (its own name by default).

        Raises:
            ValueError: the name is taken by another component.
        """

        def decorate(component: T) -> T:
            key = name or component.__name__  # type: ignore[attr-defined]
            known = self._own.get(key)
            if known is not None and known is not component:
                raise ValueError(f"{self.kind} {key!r} is registered twice: {known!r} and {component!r}")
            self._own[key] = component  # type: ignore[assignment]
            return component

        return decorate

    def set_fallback(
        self,
        find: Callable[[str], Callable[..., Any] | None],
        names: Callable[[], Iterable[str]],
        has_checkout: bool = False,
    ) -> None:
        """Ask ``find`` for names that are not registered; ``names`` lists the names that it knows.

        If ``has_checkout``, the host is a PaddleOCR checkout, and messages do not suggest one.
        """
        self._find_foreign = find
        self._foreign_names = names
        self._has_checkout = has_checkout

    def names(self) -> list[str]:
        """Return the names registered here, sorted."""
        return sorted(self._own)

    def examples(self) -> str:
        """Return the names registered here, or the first ones of the host, for a message."""
        return shortened(self.names() or sorted(self._foreign_names()), _LISTED)

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def get(self, name: str) -> Callable[..., Any]:
        """Return our component ``name``, or the host's if we have none.

        Raises:
            UnknownComponentError: neither has it; the message lists the names of both.
        """
        component = self._own.get(name) or self._find_foreign(name)
        if component is None:
            raise UnknownComponentError(self._unknown(name), code="unknown_component")
        return component

    def of_host(self, name: str) -> Callable[..., Any] | None:
        """Return the host's component ``name``, even if we have one with this name; None if the host has none."""
        return self._find_foreign(name)

    def is_foreign(self, name: str) -> bool:
        """Return True if neither we nor the host have ``name``, and it is not a misspelling of a known name."""
        names = {*self._own, *self._foreign_names()}
        known = names | names_of(self.kind)
        if name in names or name in FORMER_NAMES:
            return False
        return name in known or not is_misspelling(name, known)

    def _unknown(self, name: str) -> str:
        foreign = sorted(self._foreign_names())
        known_elsewhere = names_of(self.kind)
        if name in known_elsewhere:
            lacking = "this checkout does" if self._has_checkout else "ppocr-ext does"
            return (
                f"PaddleOCR has the {self.kind} {name}, {lacking} not. Fix: `--host DIR` takes it from a checkout that "
                f"has it."
            )
        known = [*self._own, *foreign, *known_elsewhere]
        hint = did_you_mean(FORMER_NAMES.get(name) or near_match(name, known, cutoff=0.7))
        text = f"Unknown {self.kind} {name!r}.{hint}"
        if self._own:
            text += f" From ppocr_ext: {', '.join(self.names())}."
        if name in FORMER_NAMES or is_misspelling(name, known):
            return text
        theirs = "" if hint else f" From the host: {shortened(foreign, _LISTED) or 'none'}."
        checkout = "" if self._has_checkout else "`--host DIR` (a PaddleOCR checkout) or "
        return f"{text}{theirs} Others come with {checkout}`Global.plugins: [your.module]`."

    def build(self, name: str, options: Mapping[str, Any], **injected: Any) -> Any:
        """Construct the component ``name`` from the ``options`` of a config, which are not changed.

        ``injected`` are values of the program (``in_channels``, …). They are passed only if the constructor takes them.
        """
        component = self.get(name)
        chosen = known_options(component, options, f"{self.kind} {name}")
        keys = component_keys(component)
        supplied = {key: value for key, value in injected.items() if keys.takes_any or key in keys.named}
        if lacking := keys.required - chosen.keys() - supplied.keys():
            raise ConfigError(
                f"{self.kind} {name}: missing {', '.join(sorted(lacking))}.", code="missing_key"
            )
        return component(**{**chosen, **supplied})


def known_options(component: Component, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the entries of ``options`` that ``component`` takes.

    An unknown key is an error if it is near a known key. Otherwise it is skipped with a warning, since PaddleOCR's
    official configs have keys that its constructors ignore.

    Raises:
        ConfigError: an unknown key is near a known key, which the message names.
    """
    keys = component_keys(component)
    if keys.takes_any:
        return dict(options)
    chosen: dict[str, Any] = {}
    for key, value in options.items():
        if key in keys.named:
            chosen[key] = value
            continue
        if near := near_match(str(key), keys.named):
            raise ConfigError(f"{where}: unknown key {key!r}.{did_you_mean(near)}", code="unknown_key")
        LOG.warning("%s: the key %r is not used.", where, key)
    return chosen


TRANSFORMS = Registry("transform")
BACKBONES = Registry("backbone")
NECKS = Registry("neck")
HEADS = Registry("head")
ARCHITECTURES = Registry("architecture")
LOSSES = Registry("loss")
OPTIMIZERS = Registry("optimizer")
SCHEDULES = Registry("learning-rate schedule")
METRICS = Registry("metric")
DATASETS = Registry("dataset")

BY_KIND: dict[str, Registry] = {
    "transform": TRANSFORMS,
    "backbone": BACKBONES,
    "neck": NECKS,
    "head": HEADS,
    "architecture": ARCHITECTURES,
    "loss": LOSSES,
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "metric": METRICS,
    "dataset": DATASETS,
}
