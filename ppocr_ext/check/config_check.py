"""The check of one config: read values, collect issues, compare keys with what a component takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from ppocr_ext.check.signatures import ComponentKeys, component_keys, key_meant, suggest_path
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.node import COMPUTED, Place, PlaceKind, dotted
from ppocr_ext.config.values import ValueRule, shown
from ppocr_ext.errors import ConfigError, HostError, UnknownComponentError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.messages import did_you_mean, is_misspelling, near_match
from ppocr_ext.registry import Registry

Path = tuple[str, ...]
PLUGIN = "plugin_not_loaded"  # code of a warning of a name or key that only a plugin may know
_LISTED = 20  # names that a message lists; the host has about a hundred transforms


@dataclass
class ConfigCheck:
    """A config under check, and the issues found so far.

    Attributes:
        config: as it was loaded.
        host: opened; components of ours and of imported plugins are registered.
        role: ``"train"``, ``"eval"`` or ``"predict"``: what the config is used for.
        unloaded_plugins: modules of ``Global.plugins`` that were not imported.
        processes: of the run; each reads batches of its own.
        issues: in the order in which they were found.
    """

    config: Config
    host: Host
    role: str
    unloaded_plugins: tuple[str, ...] = ()
    processes: int = 1
    issues: list[Issue] = field(default_factory=list)
    unused_keys: list[Path] = field(default_factory=list)

    @property
    def modes(self) -> tuple[str, ...]:
        """The data sections that the role needs."""
        return {"train": ("Train", "Eval"), "eval": ("Eval",)}.get(self.role, ())

    def at(self, *path: str, default: Any = None) -> Any:
        """Return the value at a path, or ``default`` if there is none."""
        try:
            return self.config.at(path, default)
        except ConfigError:  # a key occurs twice in a list; the check of that list reports it
            return default

    def mapping(self, *path: str) -> Mapping[Any, Any]:
        """Return the mapping at a path; an empty one if there is none, with an issue if it is something else."""
        found = self.at(*path)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self.error(path, "bad_value", f"found {shown(found)}, expected a mapping of keys.")
            return {}
        return found

    def items(self, *path: str) -> Iterator[tuple[str, Path]]:
        """Yield name and path of each item of a list ``- NAME: {options}``; an item of another form is an issue.

        The path goes by name, as after ``-o``; by index if a name occurs twice.
        """
        entries = self.at(*path)
        if isinstance(entries, tuple):
            for index, entry in enumerate(entries):
                if not isinstance(entry, Mapping) or len(entry) != 1:
                    where, found = (*path, str(index)), shown(entry)
                    self.error(where, "bad_value", f"found {found}, expected an item `- NAME: {{options}}`.")
        elif entries is not None:
            found = shown(entries)
            self.error(path, "bad_value", f"found {found}, expected a list of `- NAME: {{options}}`.")
        yield from named_items(self.config, *path)

    def place(self, path: Path) -> Place:
        """Return the place of the value at ``path``, or of the nearest one above it."""
        for end in range(len(path), 0, -1):
            with suppress(ConfigError):
                return self.config.place(path[:end])
        return COMPUTED

    def where(self, path: Path) -> str:
        """Return the text of :meth:`place`; empty for a computed value."""
        place = self.place(path)
        return "" if place == COMPUTED else place.text

    def error(self, path: Path, code: str, message: str) -> None:
        """Add an issue with which the run cannot start, or would not be what the config says."""
        self._add("error", path, code, message)

    def missing(self, path: Path, hint: str = "") -> None:
        """Add the issue that there is no value at ``path``, which must be given."""
        self._add("error", path, "missing_key", f"must be given{f': {hint}' if hint else ''}.")

    def warning(self, path: Path, code: str, message: str) -> None:
        """Add an issue with which the run can start, though the config has no effect there or is doubtful."""
        self._add("warning", path, code, message)

    def _add(self, level: Literal["error", "warning"], path: Path, code: str, message: str) -> None:
        message = message.removeprefix(f"{dotted(path)}: ")
        self.issues.append(Issue(code, level, dotted(path), self.where(path), message))

    def component(self, registry: Registry, name: Any, path: Path) -> Callable[..., Any] | None:
        """Return the component that ``path`` names, or None with an issue; None as a name is an issue too."""
        if name is None:
            self.missing(path, f"one of {', '.join(registry.names())}")
            return None
        if not isinstance(name, str):
            names = ", ".join(registry.names())
            self.error(path, "bad_value", f"found {name!r}, expected a name of a {registry.kind}: {names}.")
            return None
        try:
            return registry.get(name)
        except (UnknownComponentError, HostError) as error:
            if self.is_of_plugin(registry, name):
                self.warning(path, PLUGIN, f"no {registry.kind} {name!r}, unless a plugin has it.")
            else:
                self.error(path, "unknown_component", str(error))
            return None

    def named_component(
        self,
        registry: Registry,
        path: Path,
        *,
        default: str | None = None,
        injected: Iterable[str] = (),
        extra: Iterable[str] = (),
        others: Registry | None = None,
    ) -> Callable[..., Any] | None:
        """Check the name and the keys of the component whose options stand at ``path``, and return it.

        ``default`` is its name if the options have none; the other arguments are those of :meth:`check_keys`.
        Return None if there are no options, or with an issue if there is no such component.
        """
        options = self.mapping(*path)
        if not options:
            return None
        component = self.component(registry, options.get("name") or default, (*path, "name"))
        if component is not None:
            self.check_keys(path, component, options, injected, ("name", *extra), others)
        return component

    def is_of_plugin(self, registry: Registry, name: Any) -> bool:
        """Return True if only a plugin that was not imported can have the component ``name``."""
        return bool(self.unloaded_plugins) and isinstance(name, str) and registry.is_foreign(name)

    def host_component(self, kind: str, label: str, name: Any, path: Path) -> Callable[..., Any] | None:
        """Return the host's component that ``path`` names, or None with an issue.

        Args:
            kind: ``"operator"``, ``"sampler"``, ``"decoder"`` or ``"collate_fn"``.
            label: the kind as messages call it.
            name: as the config has it.
            path: of the name.
        """
        found = self.host.component(kind, name) if isinstance(name, str) else None
        if found is None:
            names = self.host.component_names(kind)
            if self.unloaded_plugins and not is_misspelling(str(name), names):
                self.warning(path, PLUGIN, f"the host has no {label} {name!r}, unless a plugin adds it.")
                return None
            near = near_match(str(name), names, cutoff=0.6)
            listed = f" It has: {', '.join(names)}." if len(names) <= _LISTED else ""
            hint = did_you_mean(near) or listed
            self.error(path, "unknown_component", f"the host has no {label} {name!r}.{hint}")
        return found

    def check_keys(
        self,
        path: Path,
        component: Callable[..., Any] | ComponentKeys,
        options: Mapping[Any, Any],
        injected: Iterable[str] = (),
        extra: Iterable[str] = (),
        others: Registry | None = None,
    ) -> None:
        """Compare the keys of ``options`` with those that ``component`` takes.

        Args:
            path: of the options.
            component: whose constructor has the keys, or the keys themselves.
            options: as the config has them.
            injected: keys that the program itself supplies.
            extra: keys of the section that are read before the component is built (``name``, ``weight``, …).
            others: components that the config may have used before: their keys are unused, not misspelt.
        """
        by_keyword = not isinstance(component, ComponentKeys)
        keys = component if isinstance(component, ComponentKeys) else component_keys(component)
        rivals = [] if others is None else [others.get(name) for name in others.names()]
        elsewhere = {key for rival in rivals for key in component_keys(rival).named}
        supplied, kinds = frozenset(injected), dict(keys.kinds)
        known = (keys.named - supplied) | frozenset(extra)
        for key, value in options.items():
            where = (*path, str(key))
            if key in keys.named or key in known:
                self.check_kind(where, value, kinds.get(str(key)))
            else:
                self.unknown_key(where, () if key in elsewhere else known, by_keyword, keys.open)
        for key in sorted(keys.required - supplied - set(options)):
            self.missing((*path, key))

    def check_value(self, path: Path, rule: ValueRule) -> None:
        """Report the value at ``path`` if it breaks the rule, unless its kind has been reported with the keys."""
        problem = rule.problem(self.at(*path))
        if problem is not None and (problem.code, dotted(path)) not in [
            (i.code, i.path) for i in self.issues
        ]:
            self.error(path, problem.code, problem.message)

    def check_kind(self, path: Path, value: Any, kind: Literal["number", "truth"] | None) -> None:
        """Report NaN, and a number or truth value that is written as text; accept any other text."""
        problem = None if kind is None else ValueRule(kind).problem(value)
        if problem is not None and (problem.code == "quoted_value" or value != value):
            self.error(path, problem.code, problem.message)

    def unknown_key(
        self,
        path: Path,
        known: Collection[str],
        by_keyword: bool = False,
        is_open: bool = False,
    ) -> None:
        """Report a key that is not among the ``known`` ones.

        It is an error if it is misspelt, a key of another program, or set with ``-o`` and read by nothing; ``-o +KEY``
        allows all three. Any other key is a warning, since PaddleOCR's configs carry keys that nothing reads.

        Args:
            path: of the key.
            known: the keys that are read there.
            by_keyword: a component gets the keys as keywords, so that the builder has to leave this one out.
            is_open: it may read other keys too.
        """
        key, place = path[-1], self.place(path)
        if by_keyword:
            self.unused_keys.append(path)
        if place.kind is PlaceKind.FORCED_OPTION:
            return
        near, suggested = near_match(key, known), suggest_path(path)
        hint = did_you_mean(dotted(suggested) if suggested else None)
        if near:
            self.error(path, "unknown_key", f"unknown key.{did_you_mean(near)}")
        elif is_open:
            return
        elif (not by_keyword or path[0] == "Optimizer") and (
            meant := key_meant(path)
        ):  # others have keys of their own
            self.error(path, "unknown_key", f"unknown key. Fix: write {meant}.")
        elif place.kind is PlaceKind.OPTION:
            similar = near_match(key, known, cutoff=0.7)
            hint = hint or (f" The nearest known key is {similar!r}." if similar else "")
            shared = min(len(path), len(place.target))
            # the option's own path if its value was moved to `path`
            forced = path if path[:shared] == place.target[:shared] else place.target
            message = f"nothing reads this key.{hint} `-o +{dotted(forced)}=…` sets it anyway."
            self.error(path, "unused_option", message)
        elif suggested is None and self.unloaded_plugins and path[:-1] in ((), ("Global",)):
            self.warning(path, PLUGIN, "the key is not used, unless a plugin reads it.")
        else:
            self.warning(path, "unused_key", f"the key is not used.{hint}")
