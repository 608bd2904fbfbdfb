"""Registries of components by the name that a config uses; imports no Paddle.

A name that is not registered here is asked of the *fallback*, which the host installs
when it is opened, so that a checkout's own backbones and losses can be named too.
"""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ppocr_ext.errors import ConfigError, UnknownComponentError
from ppocr_ext.messages import did_you_mean
from ppocr_ext.paddleocr_names import FORMER_NAMES, PADDLEOCR_NAMES

T = TypeVar("T")
_LOG = logging.getLogger("ppocr_ext")
NEAR_MATCH = 0.75  # difflib ratio from which an unknown key is taken for a misspelling


def near_match(name: str, known: Iterable[str], cutoff: float = NEAR_MATCH) -> str | None:
    """The known name that ``name`` is a misspelling of, in upper or lower case; None if it is near none."""
    by_folded = {each.casefold(): each for each in sorted(known)}
    near = difflib.get_close_matches(str(name).casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def is_misspelling(name: str, known: Iterable[str]) -> bool:
    """Return whether ``name`` is near a known name and not that name with something added (``MyCTCHead``)."""
    near = near_match(name, known)
    return near is not None and abs(len(near) - len(name)) <= 1


class Registry:
    """Components of one kind (``"backbone"``, ``"loss"``, …) by name.

    Args:
        kind: what the registry holds, as error messages call it.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._own: dict[str, Callable[..., Any]] = {}
        self._find_foreign: Callable[[str], Callable[..., Any] | None] = lambda name: None
        self._foreign_names: Callable[[], Iterable[str]] = lambda: ()
        self._has_checkout = False

    def register(self, name: str | None = None) -> Callable[[T], T]:
        """Decorator: register a class or function under ``name`` (its own name by default).

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
        """Ask ``find`` for names that are not registered; ``names`` lists what it could find.

        ``has_checkout``: they are looked for in a PaddleOCR checkout, so that messages advise no other one.
        """
        self._find_foreign, self._foreign_names = find, names
        self._has_checkout = has_checkout

    def names(self) -> list[str]:
        """Names registered here, sorted."""
        return sorted(self._own)

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def get(self, name: str) -> Callable[..., Any]:
        """The component called ``name``: ours first, then the host's.

        Raises:
            UnknownComponentError: nobody has it; the message lists both sets.
        """
        component = self._own.get(name) or self._find_foreign(name)
        if component is None:
            raise UnknownComponentError(self._unknown(name), code="unknown_component")
        return component

    def of_host(self, name: str) -> Callable[..., Any] | None:
        """The host's component ``name``, also where we have one by that name; None if it has none."""
        return self._find_foreign(name)

    def is_foreign(self, name: str) -> bool:
        """True if neither we nor the host have ``name``, and it is no misspelling of a known name."""
        names = {*self._own, *self._foreign_names()}
        known = names | PADDLEOCR_NAMES.get(self.kind, frozenset())
        if name in names or name in FORMER_NAMES:
            return False
        return name in known or not is_misspelling(name, known)

    def _unknown(self, name: str) -> str:
        foreign = sorted(self._foreign_names())
        known_elsewhere = PADDLEOCR_NAMES.get(self.kind, frozenset())
        if name in known_elsewhere:
            lacking = "this checkout lacks" if self._has_checkout else "the installed package lacks"
            return (
                f"{name} is a {self.kind} of PaddleOCR's repository, which {lacking}: `--host DIR` names a "
                f"checkout that has it."
            )
        near = FORMER_NAMES.get(name) or near_match(
            name, [*self._own, *foreign, *known_elsewhere], cutoff=0.6
        )
        hint = did_you_mean(near)
        theirs = ", ".join(foreign) if foreign else "none"
        checkout = "" if self._has_checkout else "`--host DIR` (a PaddleOCR checkout) or "
        return (
            f"Unknown {self.kind} {name!r}.{hint} From ppocr_ext: {', '.join(self.names())}. "
            f"From the host: {theirs}. Others come with {checkout}"
            f"`Global.plugins: [your.module]`."
        )

    def build(self, name: str, options: Mapping[str, Any], **injected: Any) -> Any:
        """Construct the component ``name`` from the ``options`` of a config.

        ``injected`` holds what the program itself supplies (``in_channels``, …) and is never
        spell-checked; it is passed only where the constructor takes it. ``options`` is not changed.
        """
        component = self.get(name)
        chosen = known_options(component, options, f"{self.kind} {name}")
        taken = _parameters(component)
        supplied = {k: v for k, v in injected.items() if taken is None or k in taken}
        lacking = _required(component) - chosen.keys() - supplied.keys()
        if lacking:
            raise ConfigError(
                f"{self.kind} {name}: {', '.join(sorted(lacking))} must be given.", code="missing_key"
            )
        return component(**{**chosen, **supplied})


def _parameters(component: Callable[..., Any]) -> set[str] | None:
    """Keyword names that ``component`` takes; None where it takes any."""
    parameters = inspect.signature(component).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}


def _required(component: Callable[..., Any]) -> set[str]:
    """Keyword names without which ``component`` cannot be called."""
    parameters = inspect.signature(component).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in parameters if p.kind in named and p.default is p.empty}


def known_options(component: Callable[..., Any], options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The entries of ``options`` that ``component`` takes.

    A key near a known one is taken for a misspelling; any other unknown key is left out with a
    warning, since PaddleOCR's official configs carry keys that its constructors swallow.

    Raises:
        ConfigError: an unknown key is near a known one, which the message names.
    """
    taken = _parameters(component)
    if taken is None:
        return dict(options)
    chosen: dict[str, Any] = {}
    for key, value in options.items():
        if key in taken:
            chosen[key] = value
            continue
        near = near_match(str(key), taken)
        if near:
            raise ConfigError(f"{where}: unknown key {key!r}.{did_you_mean(near)}", code="unknown_key")
        _LOG.warning("%s: the key %r is not used and is left out.", where, key)
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
