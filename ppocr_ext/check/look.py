"""A look at one config: where things stand, what is found, and the question that every key is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ppocr_ext.check.homes import home_of
from ppocr_ext.check.signatures import Keys, keys_of
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.node import COMPUTED, Place, PlaceKind, dotted
from ppocr_ext.errors import ConfigError, HostError, UnknownComponentError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.messages import did_you_mean
from ppocr_ext.registry import Registry, is_misspelling, leave_out_in_silence, near_match

Path = tuple[str, ...]
_LISTED = 20  # names that a message lists; the host has about a hundred transforms
PLUGIN_NOT_LOADED = "plugin_not_loaded"  # a plugin that was not imported may know it
TRUTHS = ("true", "false", "yes", "no", "on", "off")


@dataclass
class Look:
    """The config that is looked at, and the issues found so far.

    Attributes:
        config: as it was loaded.
        host: opened; components of ours are registered, those of plugins too.
        role: ``"train"`` or ``"eval"``: what the config is to be used for.
        unloaded_plugins: modules of ``Global.plugins`` that were not imported.
    """

    config: Config
    host: Host
    role: str
    unloaded_plugins: tuple[str, ...] = ()
    issues: list[Issue] = field(default_factory=list)

    @property
    def modes(self) -> tuple[str, ...]:
        """The data sections that the role needs."""
        return ("Train", "Eval") if self.role == "train" else ("Eval",)

    def at(self, *path: str, default: Any = None) -> Any:
        """The value at a path; ``default`` where there is none."""
        try:
            return self.config.at(path, default)
        except ConfigError:  # a key stands twice in a list; whoever reads that list says so
            return default

    def mapping(self, *path: str) -> Mapping[Any, Any]:
        """The mapping at a path; empty where there is none, with an issue where something else stands there."""
        found = self.at(*path)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self.error(path, f"{shown(found)} stands where a mapping of keys belongs.")
            return {}
        return found

    def place(self, path: Path) -> Place:
        """Return the place of the value at ``path``, or of the nearest one above it."""
        for end in range(len(path), 0, -1):
            try:
                return self.config.place(path[:end])
            except ConfigError:
                continue
        return COMPUTED

    def where(self, path: Path) -> str:
        """The place where the value at ``path``, or the nearest one above it, was written; empty if nowhere."""
        place = self.place(path)
        return "" if place == COMPUTED else place.text

    def error(self, path: Path, message: str, key: str = "") -> None:
        """The run cannot be, or would not be what the config says; ``key`` of the path is where it says so."""
        self._add("error", path, message, key)

    def warning(self, path: Path, message: str) -> None:
        """The run can be, but the config says something that has no effect or is doubtful."""
        self._add("warning", path, message)

    def not_loaded(self, path: Path, message: str) -> None:
        """Warn of something that only a plugin that was not imported may know."""
        self._add("warning", path, message, code=PLUGIN_NOT_LOADED)

    def _add(
        self,
        level: Literal["error", "warning"],
        path: Path,
        message: str,
        key: str = "",
        code: str = "invalid_value",
    ) -> None:
        text = dotted(path)
        message = message.removeprefix(f"{text}: ") if text else message
        place = self.where((*path, key) if key else path)
        self.issues.append(Issue(code, level, text, place, message))

    def unknown_key(
        self,
        path: Path,
        known: Collection[str],
        component: Callable[..., Any] | None = None,
        is_open: bool = False,
    ) -> None:
        """Say what there is to say of a key that is not among the ``known`` ones.

        A misspelling is an error, and so is what was set with ``-o`` and nothing reads; ``-o +…`` silences
        both. Anything else is a warning, since PaddleOCR's configs carry keys that nothing reads.

        Args:
            path: of the key.
            known: the keys that are read there.
            component: what takes the keys, so that building it does not say the same again.
            is_open: it may read other keys too.
        """
        key, place = path[-1], self.place(path)
        if component is not None:
            leave_out_in_silence(component, key)
        if place.kind is PlaceKind.FORCED_OPTION:
            return
        near, home = near_match(key, known), home_of(path)
        if near:
            self.error(path, f"unknown key.{did_you_mean(near)}")
        elif is_open:
            return
        elif place.kind is PlaceKind.OPTION:
            forced = dotted(_forced(path, place.target))
            hint = _meant(home) if home else _nearest(key, known)
            self.error(path, f"nothing reads this key.{hint} `-o +{forced}=…` sets it all the same.")
        elif home is None and self.unloaded_plugins and path[:-1] in ((), ("Global",)):
            self.not_loaded(path, "the key is not used, unless a plugin reads it.")
        else:
            self.warning(path, f"the key is not used.{_meant(home)}")

    def component(self, registry: Registry, name: Any, path: Path) -> Callable[..., Any] | None:
        """The component that ``path`` names, or None with an issue."""
        if not isinstance(name, str):
            self.error(
                path,
                f"{registry.kind} names are words, not {name!r}. There are: {', '.join(registry.names())}.",
            )
            return None
        try:
            return registry.get(name)
        except (UnknownComponentError, HostError) as error:
            if self.is_of_plugin(registry, name):
                self.not_loaded(path, f"no {registry.kind} {name!r}, unless a plugin has it.")
            else:
                self.error(path, str(error))
            return None

    def is_of_plugin(self, registry: Registry, name: Any) -> bool:
        """True if only a plugin that was not imported can have the component, and its name is no misspelling."""
        return bool(self.unloaded_plugins) and isinstance(name, str) and registry.is_foreign(name)

    def part(self, kind: str, label: str, name: Any, path: Path) -> Callable[..., Any] | None:
        """The host's ``operator``, ``sampler``, ``decoder`` or ``collate_fn`` that ``path`` names, or None."""
        found = self.host.component(kind, name) if isinstance(name, str) else None
        if found is None:
            names = self.host.component_names(kind)
            if self.unloaded_plugins and not is_misspelling(str(name), names):
                self.not_loaded(path, f"the host has no {label} {name!r}, unless a plugin adds it.")
                return None
            near = near_match(str(name), names, cutoff=0.6)
            listed = f" It has: {', '.join(names)}." if len(names) <= _LISTED else ""
            there = did_you_mean(near) or listed
            self.error(path, f"the host has no {label} {name!r}.{there}")
        return found

    def keys(
        self,
        path: Path,
        component: Callable[..., Any],
        options: Mapping[Any, Any],
        injected: Iterable[str] = (),
        extra: Iterable[str] = (),
        others: Registry | None = None,
    ) -> None:
        """Compare ``options`` with what ``component`` takes.

        Args:
            path: of the options.
            component: whose constructor is asked.
            options: as the config has them.
            injected: what the program itself supplies.
            extra: keys of the section that are read before the component is built (``name``, ``weight``, …).
            others: components that one may have changed from: their keys are unused, and no misspellings.
        """
        rivals = [] if others is None else [others.get(name) for name in others.names()]
        elsewhere = {key for rival in rivals for key in keys_of(rival).named}
        self.compare(path, keys_of(component), options, component, injected, extra, elsewhere)

    def compare(
        self,
        path: Path,
        keys: Keys,
        options: Mapping[Any, Any],
        component: Callable[..., Any] | None = None,
        injected: Iterable[str] = (),
        extra: Iterable[str] = (),
        elsewhere: Collection[str] = (),
    ) -> None:
        """As :meth:`keys`, for keys that are known already; ``elsewhere``: those of other components."""
        supplied, kinds = frozenset(injected), dict(keys.kinds)
        known = (keys.named - supplied) | frozenset(extra)
        for key, value in options.items():
            if key in keys.named or key in known:
                self.kind((*path, str(key)), value, kinds.get(str(key)))
            else:
                self.unknown_key((*path, str(key)), () if key in elsewhere else known, component, keys.open)
        lacking = sorted(keys.required - supplied - set(options))
        if lacking:
            self.error(path, f"{', '.join(lacking)} must be given.")

    def kind(self, path: Path, value: Any, kind: str | None) -> None:
        """Refuse a number or truth value that was written as text."""
        if not isinstance(value, str):
            return
        if kind == "number" and is_number(value):
            self.error(path, f"{value!r} is text. Write the number without quotes.")
        elif kind == "truth" and value.strip().lower() in TRUTHS:
            self.error(path, f"{value!r} is text. Write true or false, without quotes.")

    def options(self, *path: str) -> Mapping[Any, Any]:
        """The options of a named component: the mapping at ``path`` without its ``name``."""
        return {key: value for key, value in self.mapping(*path).items() if key != "name"}

    def listed(self, *path: str) -> Iterator[tuple[str, Path]]:
        """Names and paths of the items of a list of single-key mappings, ``- NAME: {options}``.

        The path goes by name, as one would write it after ``-o``; by index where a name stands twice.
        An item of another form is an issue.
        """
        entries = self.at(*path)
        if isinstance(entries, tuple):
            for index, entry in enumerate(entries):
                if not isinstance(entry, Mapping) or len(entry) != 1:
                    self.error((*path, str(index)), f"an item is `- NAME: {{options}}`, not {shown(entry)}.")
        elif entries is not None:
            self.error(path, f"{shown(entries)} stands where a list of `- NAME: {{options}}` belongs.")
        yield from self.listed_quietly(*path)

    def listed_quietly(self, *path: str) -> Iterator[tuple[str, Path]]:
        """As :meth:`listed`, without issues: for what has been looked at before."""
        return named_items(self.config, *path)


def _forced(path: Path, target: Path) -> Path:
    """Path for ``-o +…``: the key's, or what the option set where that was moved to ``path``."""
    shared = min(len(path), len(target))
    return path if path[:shared] == target[:shared] else target


def _meant(home: Path | None) -> str:
    return did_you_mean(dotted(home) if home else None)


def _nearest(key: str, known: Iterable[str]) -> str:
    near = near_match(key, known, cutoff=0.7)
    return f" The nearest that is read is {near!r}." if near else ""


def is_number(text: str) -> bool:
    """Whether a text is that of a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(value: Any) -> str:
    """A value of the config as one would write it: lists as lists."""
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.thaw() if isinstance(value, Config) else value
