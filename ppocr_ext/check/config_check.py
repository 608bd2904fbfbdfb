"""The check of one config: read values, collect issues, compare keys with what a component takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ppocr_ext.base.parts import IGNORED_KEYS
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.global_keys import GLOBAL_KEYS, ValueRule, shown
from ppocr_ext.config.node import COMPUTED, Place, PlaceKind, dotted
from ppocr_ext.errors import ConfigError, HostError, UnknownComponentError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.messages import did_you_mean, near_match
from ppocr_ext.registry import SCHEDULES, ComponentKeys, Registry, ValueKind, component_keys

Path = tuple[str, ...]
PLUGIN = "plugin_not_loaded"  # code of a warning of a name or key that only a plugin may know
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


def key_meant(path: Path) -> str | None:
    """Return the path that a key of another program stands for; None for other keys."""
    mode = "Eval" if path[0] == "Eval" else "Train"
    return next((known.format(mode) for known, others in _ALIASES.items() if path[-1] in others), None)


def home_of(path: Path) -> str | None:
    """Return the path of the key in another section that the key of ``path`` means or misspells.

    Only a key at the top or directly in a section has one: in ``Global``, ``Optimizer.lr``, or the dataset or loader
    of ``Train`` and ``Eval``.
    """
    if len(path) > _SECTION_DEPTH:
        return None
    schedules = {name for each in SCHEDULES.names() for name in component_keys(SCHEDULES.get(each)).named}
    sections = [
        (("Global",), GLOBAL_KEYS),
        (("Optimizer", "lr"), schedules.difference(GIVEN_TO_SCHEDULE)),
        *(((mode, part), DATA_KEYS[part]) for mode in ("Eval", "Train") for part in DATA_KEYS),
    ]
    sections.sort(
        key=lambda section: section[0][0] == path[0]
    )  # the section of the key itself last, so that it wins
    homes = {key: dotted((*where, key)) for where, keys in sections if where != path[:-1] for key in keys}
    return homes.get(near_match(path[-1], homes, cutoff=_NEAR) or "") or key_meant(path)


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
            self.missing(path, f"one of {registry.examples()}")
            return None
        if not isinstance(name, str):
            expected = f"a name of a {registry.kind}: {registry.examples()}"
            self.error(path, "bad_value", f"found {shown(name)}, expected {expected}.")
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

    def host_component(self, kind: str, name: Any, path: Path) -> Callable[..., Any] | None:
        """Return the host's component that ``path`` names, or None with an issue; None as a name is an issue too.

        Args:
            kind: ``"operator"`` (a transform), ``"sampler"``, ``"decoder"`` or ``"collate_fn"``.
            name: as the config has it.
            path: of the name.
        """
        registry = Registry("transform" if kind == "operator" else kind)
        registry.set_fallback(
            partial(self.host.component, kind), partial(self.host.component_names, kind), True
        )
        return self.component(registry, name, path)

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
        supplied = frozenset(injected)
        known = (keys.named - supplied) | frozenset(extra)
        for key, value in options.items():
            where = (*path, str(key))
            if key in keys.named or key in known:
                self.check_kind(where, value, keys.kinds.get(str(key)))
            else:
                self.unknown_key(where, () if key in elsewhere else known, by_keyword, keys.is_open)
        for key in sorted(keys.required - supplied):
            if key not in options:
                self.missing((*path, key))
            elif not by_keyword and options[key] in (None, ()):
                self.error((*path, key), "empty_value", "is empty, but must be given.")

    def check_value(self, path: Path, rule: ValueRule) -> None:
        """Report the value at ``path`` if it breaks the rule, unless its kind has been reported with the keys."""
        problem = rule.problem(self.at(*path))
        if problem is not None and (problem.code, dotted(path)) not in [
            (i.code, i.path) for i in self.issues
        ]:
            self.error(path, problem.code, problem.message)

    def check_kind(self, path: Path, value: Any, kind: ValueKind | None) -> None:
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
        allows all three. A key that PaddleOCR is known to ignore, and any other key, is a warning, since PaddleOCR's
        configs carry keys that nothing reads.

        Args:
            path: of the key.
            known: the keys that are read there.
            by_keyword: a component gets the keys as keywords, so that the builder has to leave this one out.
            is_open: the component may read other keys too, so that it gets this one, with a warning.
        """
        key, place = path[-1], self.place(path)
        if by_keyword and not is_open:
            self.unused_keys.append(path)
        if place.kind is PlaceKind.FORCED_OPTION:
            return
        if key in IGNORED_KEYS and not is_open:
            self.warning(path, "unused_key", "the key is not used; PaddleOCR ignores it too.")
            return
        # components have keys of their own
        meant = None if by_keyword and path[0] != "Optimizer" else key_meant(path)
        near, home = near_match(key, known) or meant, home_of(path)
        report = self.warning if is_open else self.error
        if near:
            report(path, "unknown_key", f"unknown key.{did_you_mean(near)}")
        elif place.kind is PlaceKind.OPTION and not is_open:
            hint = did_you_mean(home or near_match(key, known, cutoff=0.7))
            shared = min(len(path), len(place.target))
            # the option's own path if its value was moved to `path`
            forced = path if path[:shared] == place.target[:shared] else place.target
            self.error(
                path,
                "unused_option",
                f"nothing reads this key.{hint} `-o +{dotted(forced)}=…` sets it anyway.",
            )
        elif home is None and self.unloaded_plugins and path[:-1] in ((), ("Global",)):
            self.warning(path, PLUGIN, "the key is not used, unless a plugin reads it.")
        else:
            unless = ", unless its `**kwargs` are read" if is_open else ""
            self.warning(path, "unused_key", f"the key is not used{unless}.{did_you_mean(home)}")
