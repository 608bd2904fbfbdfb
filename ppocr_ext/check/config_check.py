"""The check of one config: read values, collect issues, compare keys with those of a component."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ppocr_ext.base.parts import IGNORED_KEYS, refused_key
from ppocr_ext.check.findings import Findings, KeyPath
from ppocr_ext.config import named_items
from ppocr_ext.config.global_keys import GLOBAL_KEYS, ValueRule, shown
from ppocr_ext.config.node import PlaceKind, dotted
from ppocr_ext.errors import ConfigError, HostError, UnknownComponentError
from ppocr_ext.host import Host
from ppocr_ext.messages import did_you_mean, near_match
from ppocr_ext.registry import SCHEDULES, Component, Registry, ValueKind, component_keys

PLUGIN = "plugin_not_loaded"  # code of the warning about a name or key that only a plugin may know
UNUSED = "the key is not used."
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
_SECTION_DEPTH = 2  # number of components of a path such as `Global.seed`
_NEAR = 0.85  # higher than within a section: a lower similarity to a key of any section is often chance
GIVEN_TO_SCHEDULE = ("epochs", "step_each_epoch", "last_epoch")  # the program computes these values
# Keys of other programs by the key of PaddleOCR that they mean; {} is `Train` or `Eval`.
_ALIASES = {
    "Global.epoch_num": ("epoch", "epochs", "num_epochs", "max_epochs"),
    "Optimizer.lr.learning_rate": ("lr", "learning_rate"),
    "{}.loader.batch_size_per_card": ("batch_size", "train_batch_size", "batch_size_per_gpu"),
    "Global.pretrained_model": ("pretrain_weights", "pretrain_model", "pretrained_weights"),
    "Global.use_gpu": ("gpu", "cuda"),
    "Global.character_dict_path": ("dict_path", "charset", "charset_path", "dictionary"),
    "Global.save_model_dir": ("output_dir", "out_dir", "save_dir"),
    "Optimizer.clip_norm_global": ("grad_clip", "gradient_clip", "max_grad_norm"),
    "Global.eval_batch_step": ("eval_every", "eval_interval", "eval_steps"),
}


def key_meant(path: KeyPath) -> str | None:
    """Return the path of the key that a key of another program means; None for other keys."""
    mode = "Eval" if path[0] == "Eval" else "Train"
    return next((known.format(mode) for known, others in _ALIASES.items() if path[-1] in others), None)


def home_of(path: KeyPath) -> str | None:
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
    # The last section wins, so the section of the key itself comes last.
    sections.sort(key=lambda section: section[0][0] == path[0])
    homes = {key: dotted((*where, key)) for where, keys in sections if where != path[:-1] for key in keys}
    return homes.get(near_match(path[-1], homes, cutoff=_NEAR) or "") or key_meant(path)


def _has_other_word(key: str, known: str) -> bool:
    """Return True if a word of ``key`` is like no word of ``known``, as in `save_iter_step` and `save_epoch_step`."""
    words = key.split("_")
    others = (word for word in words if len(word) > 2 and near_match(word, known.split("_"), 0.6) is None)
    return len(words) > 1 and any(others)


@dataclass
class ConfigCheck(Findings):
    """A config under check, and the issues found so far.

    Attributes:
        host: opened; our components and those of imported plugins are registered.
        role: what the config is used for: ``"train"``, ``"eval"`` or ``"predict"``.
        unloaded_plugins: modules of ``Global.plugins`` that were not imported.
        processes: number of processes of the run; each reads its own batches.
        unused_keys: paths of the keys that no component takes.
    """

    host: Host
    role: str
    unloaded_plugins: tuple[str, ...] = ()
    processes: int = 1
    unused_keys: list[KeyPath] = field(default_factory=list)

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
        """Return the mapping at a path, or an empty one; add an issue if the value is not a mapping."""
        value = self.at(*path)
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self.error(path, "bad_value", f"found {shown(value)}, expected a mapping of keys.")
        return {}

    def section(
        self, path: KeyPath, known: Collection[str], beside: Collection[str] = ()
    ) -> Mapping[Any, Any]:
        """Return the mapping at ``path``; add an issue for each key that is neither ``known`` nor in ``beside``."""
        section = self.mapping(*path)
        for key in section:
            if key not in known and key not in beside:
                self.unknown_key((*path, str(key)), known)
        return section

    def items(self, *path: str) -> Iterator[tuple[str, KeyPath]]:
        """Yield name and path of each item of a list ``- NAME: {options}``; an item of another form is an issue.

        The path has the name of the item, as after ``-o``, or its index if the name occurs twice.
        """
        entries = self.at(*path)
        form = "`- NAME: {options}`"
        if isinstance(entries, tuple):
            for index, entry in enumerate(entries):
                if not isinstance(entry, Mapping) or len(entry) != 1:
                    self.error(
                        (*path, str(index)), "bad_value", f"found {shown(entry)}, expected an item {form}."
                    )
        elif entries is not None:
            self.error(path, "bad_value", f"found {shown(entries)}, expected a list of {form}.")
        yield from named_items(self.config, *path)

    def missing(self, path: KeyPath, hint: str = "") -> None:
        """Add the issue that a value must be given at ``path``."""
        self.error(path, "missing_key", f"must be given{f': {hint}' if hint else ''}.")

    def component(self, registry: Registry, name: Any, path: KeyPath) -> Callable[..., Any] | None:
        """Return the component ``name`` that the config has at ``path``; None, with an issue, if it does not exist."""
        if name is None:
            self.missing(path, f"one of {registry.examples()}")
            return None
        if not isinstance(name, str):
            self.error(
                path,
                "bad_value",
                f"found {shown(name)}, expected a name of a {registry.kind}: {registry.examples()}.",
            )
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
        path: KeyPath,
        *,
        default: str | None = None,
        injected: Iterable[str] = (),
        extra: Iterable[str] = (),
        others: Registry | None = None,
    ) -> Callable[..., Any] | None:
        """Check the name and the keys of the component whose options stand at ``path``, and return it.

        ``default`` is its name if the options have none. The other arguments are those of :meth:`check_keys`. Without
        options the result is None. If the component does not exist, the result is None and an issue is added.
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

    def host_component(self, kind: str, name: Any, path: KeyPath) -> Callable[..., Any] | None:
        """Return the host's component ``name``. If it does not exist, add an issue and return None.

        Args:
            kind: ``"operator"`` (a transform), ``"sampler"``, ``"decoder"`` or ``"collate_fn"``.
            name: as the config has it.
            path: the path of the name.
        """
        registry = Registry("transform" if kind == "operator" else kind)
        registry.set_fallback(
            partial(self.host.component, kind), partial(self.host.component_names, kind), True
        )
        return self.component(registry, name, path)

    def check_keys(
        self,
        path: KeyPath,
        component: Component,
        options: Mapping[Any, Any],
        injected: Iterable[str] = (),
        extra: Iterable[str] = (),
        others: Registry | None = None,
    ) -> None:
        """Compare the keys of ``options`` with those that ``component`` takes.

        Args:
            path: path of the options.
            component: a class or function that takes the keys, or the keys themselves.
            options: as the config has them.
            injected: keys whose values the program supplies.
            extra: keys that are read before the component is built (``name``, ``weight``, …).
            others: components that the config may have named before. Their keys are reported as unused, not as
                misspelt.
        """
        keys = component_keys(component)
        by_keyword = not keys.of_section
        rivals = () if others is None else map(others.get, others.names())
        elsewhere = {key for rival in rivals for key in component_keys(rival).named}
        supplied = frozenset(injected)
        known = (keys.named - supplied) | frozenset(extra)
        for key, value in options.items():
            where = (*path, str(key))
            if key in keys.named or key in known:
                self.check_kind(where, value, keys.kinds.get(str(key)))
            else:
                refusal = refused_key(getattr(component, "__name__", ""), str(key), value)
                reads = f" It reads {', '.join(sorted(known))}." if key in elsewhere else ""
                near = () if key in elsewhere else known
                self.unknown_key(where, near, by_keyword, keys.is_open, reads, refusal)
        for key in sorted(keys.required - supplied):
            if key not in options:
                self.missing((*path, key))
            elif not by_keyword and options[key] in (None, ()):
                self.error((*path, key), "empty_value", "is empty, but must be given.")

    def check_value(self, path: KeyPath, rule: ValueRule) -> None:
        """Report the value at ``path`` if it breaks the rule, unless :meth:`check_keys` has reported it."""
        problem = rule.problem(self.at(*path))
        if problem is not None and (problem.code, dotted(path)) not in [
            (i.code, i.path) for i in self.issues
        ]:
            self.error(path, problem.code, problem.message)

    def check_kind(self, path: KeyPath, value: Any, kind: ValueKind | None) -> None:
        """Report NaN, and a number or truth value in quotes; accept any other text."""
        problem = None if kind is None else ValueRule(kind).problem(value)
        if problem is not None and (problem.code == "quoted_value" or value != value):
            self.error(path, problem.code, problem.message)

    def unknown_key(
        self,
        path: KeyPath,
        known: Collection[str],
        by_keyword: bool = False,
        is_open: bool = False,
        reads: str = "",
        refusal: str | None = None,
    ) -> None:
        """Report a key that is not one of the ``known`` keys.

        It is an error if the key is misspelt, if it is a key of another program, or if ``-o`` sets it and nothing reads
        it. ``-o +KEY`` allows all three. Any other key is a warning, since PaddleOCR's configs have keys that nothing
        reads.

        Args:
            path: path of the key.
            known: the keys that are read there.
            by_keyword: a component takes the keys as keywords, so the builder must leave this one out.
            is_open: the component may read other keys too, so it gets this one.
            reads: a sentence with the keys that are read in place of one that another component reads.
            refusal: why PaddleOCR refuses the key.
        """
        key = path[-1]
        place = self.place(path)
        if by_keyword and not is_open:
            self.unused_keys.append(path)
        if place.kind is PlaceKind.FORCED_OPTION:
            return
        if key in IGNORED_KEYS and not is_open:
            self.warning(path, "unused_key", "the key has no effect, neither here nor in PaddleOCR.")
            return
        # a component may have a key of this name, with another meaning
        meant = None if by_keyword and path[0] != "Optimizer" else key_meant(path)
        near = near_match(key, known)
        if near is None or _has_other_word(key, near):
            near = None if meant == dotted(path) else meant
        home = home_of(path)
        if near:
            # a key without a value says nothing, and PaddleOCR trains such a config
            report = self.warning if is_open or self.at(*path) is None else self.error
            report(path, "unknown_key", f"unknown key.{did_you_mean(near)}")
        elif refusal:
            self.error(path, "refused_key", refusal)
        elif place.kind is PlaceKind.OPTION and not is_open:
            hint = did_you_mean(home or near_match(key, known, cutoff=0.7)) or reads
            shared = min(len(path), len(place.target))
            # the path of the option differs if its value was moved to `path`
            forced = path if path[:shared] == place.target[:shared] else place.target
            self.error(
                path,
                "unused_option",
                f"nothing reads this key.{hint} `-o +{dotted(forced)}=…` sets it anyway.",
            )
        elif home is None and self.unloaded_plugins and path[:-1] in ((), ("Global",)):
            self.warning(path, PLUGIN, "the key is not used, unless a plugin reads it.")
        else:
            text = "the key is not used, unless its `**kwargs` are read." if is_open else UNUSED
            self.warning(path, "unused_key", f"{text}{did_you_mean(home) or reads}")
