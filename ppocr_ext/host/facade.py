"""One interface to PaddleOCR's loop, loaders and decoders, and to the components of the wheel or of a checkout.

A checkout has some 60 backbones and losses, many of which need packages of their own. The catalog of components is
therefore read from its source, and a module is imported only when a config names its component.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tqdm import tqdm

from ppocr_ext.base.parts import BRANCH_ROWS
from ppocr_ext.charset import Charset
from ppocr_ext.config import plain_copy
from ppocr_ext.data.preprocessing import Operator, set_transform_factory
from ppocr_ext.errors import ConfigError, HostError
from ppocr_ext.host.complete import (
    HostModules,
    JudgedDecoder,
    import_from_host,
    import_host,
    missing_packages,
    quiet_signals,
)
from ppocr_ext.host.locate import Location, locate_host
from ppocr_ext.io.resources import find_file
from ppocr_ext.messages import LOG
from ppocr_ext.registry import BY_KIND

_OPEN: list[Host] = []  # at most one: `ppocr` and `tools` are global names of the process


class Host:
    """PaddleOCR, found and completed; :func:`open_host` makes it.

    Attributes:
        root: the folder that holds ``ppocr/`` and ``tools/``.
        form: ``"wheel"`` or ``"checkout"``.
        version: version of the wheel, or of the checkout by its git history; None if it is not known.
        found_by: how the host was found, in words.
        grafted: packages of ``ppocr`` that the host lacks, and that we add.
        logger: the host's own logger, ``"ppocr"``.
    """

    def __init__(self, location: Location, modules: HostModules) -> None:
        self.root = location.root
        self.form = location.form
        self.version = location.version
        self.found_by = location.found_by
        self.grafted = missing_packages(location.root)
        self.logger: logging.Logger = modules.logging.get_logger()
        self._location = location
        self._modules = modules
        self._catalog = Catalog(location.root / "ppocr")

    def __str__(self) -> str:
        return (
            f"PaddleOCR {self.version or 'of unknown version'}, {self.form} at {self.root} ({self.found_by})"
        )

    def create_operators(
        self, transforms: list[dict[str, Any]], global_config: dict[str, Any]
    ) -> list[Operator]:
        """Return the host's operators of a ``transforms`` list; the arguments may be changed."""
        return self._modules.data.create_operators(transforms, global_config)

    def build_post_process(
        self,
        config: Mapping[str, Any],
        global_config: Mapping[str, Any],
        charset: Charset | None = None,
    ) -> Callable[..., Any]:
        """Return the decoder that ``config`` (the ``PostProcess`` section) names; the arguments are not changed.

        With a ``charset``, texts are in the order in which they are read, and labels as they are compared with them.

        Raises:
            ConfigError: the host has no such decoder, or does not take these keys.
        """
        # PaddleOCR lays Global over the section. There `model_name` is the name of an exported model, and would replace
        # the sub-models to decode.
        options = {key: value for key, value in plain_copy(global_config).items() if key != "model_name"}
        try:
            decoder = self._modules.postprocess.build_post_process(plain_copy(config), options)
        except (AssertionError, NameError) as reason:
            name = config.get("name")
            raise ConfigError(
                f"PostProcess.name: the host has no decoder {name!r}: {reason}", code="unknown_component"
            ) from reason

        if hasattr(decoder, "decode"):
            decoder.decode = _without_warnings()(decoder.decode)
        decoder.reverse = False  # PaddleOCR looks for `arabic` in the path of the dictionary on this machine
        is_nrtr = type(decoder).__name__ == BRANCH_ROWS["gtc"].decoder
        if charset is None or not (charset.unknown_symbol or charset.turns_texts or is_nrtr):
            return decoder
        return JudgedDecoder(decoder, charset)

    def train(self, *args: Any, replacements: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Run the host's training loop, ``program.train``, with globals of its module replaced while it runs.

        Args:
            args: arguments of ``program.train``; the config comes first and is copied.
            replacements: such as ``{"save_model": ours}``. Names that the loop of this host does not have (2.8 has no
                ``export``) are left out.
            kwargs: arguments that this host's loop does not know are left out.

        Raises:
            HostError: the loop does not save through ``save_model``, so that ours cannot replace it.
        """
        program = self._modules.program
        config, *others = args
        with replaced_globals(program, {"tqdm": _evaluation_bar, **(replacements or {})}):
            program.train(plain_copy(config), *others, **_accepted(program.train, kwargs))

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Run the host's ``program.eval``; return the metric's dict, with ``fps``. The model is left in train mode."""
        program = self._modules.program
        with replaced_globals(program, {"tqdm": _evaluation_bar}):
            return program.eval(*args, **_accepted(program.eval, kwargs))

    def component(self, kind: str, name: str) -> Callable[..., Any] | None:
        """Import and return the host's class or builder function ``name``; None if it has none.

        Args:
            kind: a key of ``ppocr_ext.registry.BY_KIND``, or one of ``PART_KINDS`` (``"operator"``, …).
            name: as a config calls it.

        Raises:
            HostError: the host has it, but it cannot be imported.
        """
        if kind in PART_KINDS:
            return parts(self._modules, kind).get(name)
        if (source := self._catalog.find(kind, name)) is None:
            return None
        return getattr(import_from_host(source.module, self._location), source.attribute)

    def component_names(self, kind: str) -> list[str]:
        """Return the sorted names of the host's own components of ``kind``."""
        return sorted(parts(self._modules, kind)) if kind in PART_KINDS else self._catalog.names(kind)

    def find_file(self, path: str | Path) -> Path | None:
        """Return the file ``path`` in the current folder, the host's folder or our dictionaries; None without it."""
        return find_file(path, self.root)

    def set_seed(self, seed: int) -> None:
        """Seed Python's, numpy's and Paddle's generators as the host does."""
        self._modules.utility.set_seed(seed)


def open_host(path: str | Path | None = None) -> Host:
    """Find PaddleOCR, complete it and import it; later calls return the same object.

    Registries then ask the host for names that are not ours.

    Args:
        path: a checkout (or the wheel's folder); None to search (:func:`ppocr_ext.host.locate.locate_host`).

    Raises:
        HostError: not found, not importable, or another one is open in this process already.
        MissingPackageError: Paddle is missing.
    """
    if _OPEN and path is None:
        return _OPEN[0]
    location = locate_host(path)
    if _OPEN:
        if _OPEN[0].root == location.root:
            return _OPEN[0]
        raise HostError(
            f"PaddleOCR at {_OPEN[0].root} is in use already; one process cannot use {location.root} as well.",
            code="host_in_use",
        )
    host = Host(location, import_host(location))
    quiet_signals()
    _OPEN.append(host)
    set_transform_factory(host.create_operators)
    for kind, registry in BY_KIND.items():
        find = partial(host.component, kind)
        names = partial(host.component_names, kind)
        registry.set_fallback(find, names, host.form == "checkout")
    return host


def open_text_recognizer(options: Sequence[str]) -> Any:
    """Return a ``TextRecognizer`` of the installed PaddleOCR 2.x, to compare this client with a trained network.

    Call it in a separate process, since importing ``paddleocr`` replaces the modules that our networks need.

    Args:
        options: the options of its command line.
    """
    import_module("paddleocr")  # makes its `tools` importable
    args = import_module("tools.infer.utility").init_args().parse_args(list(options))
    return import_module("tools.infer.predict_rec").TextRecognizer(args)


def _evaluation_bar(*args: Any, **kwargs: Any) -> tqdm:
    """Return the progress bar of an evaluation: shown only on a terminal, and removed at the end."""
    return tqdm(*args, **{**kwargs, "desc": "evaluation", "unit": "batch", "disable": None, "leave": False})


@contextmanager
def replaced_globals(module: ModuleType, replacements: Mapping[str, Any]) -> Iterator[None]:
    """Replace globals of ``module`` inside this context, and restore them at its end.

    Names that ``module`` does not have are left out. Only a missing ``save_model`` is an error: a loop that saves in
    another way would write files that are not atomic.
    """
    names = vars(module)
    if "save_model" in replacements and "save_model" not in names:
        raise HostError(
            f"The loop in {module.__file__} does not save through `save_model`, so its checkpoints "
            f"cannot be written safely. Use another checkout, or the packaged host.",
            code="unsupported_host",
        )
    if absent := [name for name in replacements if name not in names]:
        LOG.debug("%s has no %s; nothing to replace.", module.__name__, ", ".join(absent))
    saved = {name: names[name] for name in replacements if name in names}
    try:
        for name in saved:
            setattr(module, name, replacements[name])
        yield
    finally:
        for name, original in saved.items():
            setattr(module, name, original)


def _accepted(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``kwargs`` that ``function`` takes, since the loops of hosts differ."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(kwargs)
    if unknown := [name for name in kwargs if name not in parameters]:
        LOG.debug("%s of this host does not take %s.", function.__name__, ", ".join(unknown))
    return {name: value for name, value in kwargs.items() if name in parameters}


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide NumPy's warning about the mean of nothing, which is the confidence of an empty text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


# Folder or file of each kind of component, below `ppocr/`.
PLACES = {
    "transform": "modeling/transforms",
    "backbone": "modeling/backbones",
    "neck": "modeling/necks",
    "head": "modeling/heads",
    "architecture": "modeling/architectures",
    "loss": "losses",
    "metric": "metrics",
    "optimizer": "optimizer/optimizer.py",
    "schedule": "optimizer/learning_rate.py",
}
# Components of the data pipeline, and the decoders.
PART_KINDS = ("dataset", "operator", "sampler", "decoder", "collate_fn")
TASK = "rec"  # the `model_type` of recognition, by which PaddleOCR uses one name for different classes
_DEFINITION = re.compile(r"^(?:class|def) ([A-Za-z]\w*)", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """Where a component is: module (dotted, under ``ppocr``) and its name there."""

    module: str
    attribute: str


class Catalog:
    """Names of the components in the ``ppocr`` folder ``package``."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self._exports: dict[str, dict[str, Source]] = {}

    def names(self, kind: str) -> list[str]:
        """Return the sorted names that the host offers for ``kind``; empty if it lacks the kind."""
        return sorted(self._offered(kind))

    def find(self, kind: str, name: str) -> Source | None:
        """Return the source from which the host's builder imports ``name``, or the only file that defines it."""
        return self._offered(kind).get(name) or self._defined(kind, name)

    def _offered(self, kind: str) -> dict[str, Source]:
        if kind not in self._exports:
            place = self._place(kind)
            sources = {}
            if place is not None and place.is_file():
                module = _dotted(place, self.package)
                sources = {name: Source(module, name) for name in _definitions(place)}
            elif place is not None and (place / "__init__.py").is_file():
                sources = _exports(place / "__init__.py", _dotted(place, self.package))
            self._exports[kind] = sources
        return self._exports[kind]

    def _defined(self, kind: str, name: str) -> Source | None:
        place = self._place(kind)
        if place is None or not place.is_dir():
            return None
        files = [file for file in sorted(place.glob("*.py")) if name in _definitions(file)]
        files = [file for file in files if file.name.startswith(f"{TASK}_")] or files
        # A name that two files define is a private helper (`ConvBNLayer`), not a component.
        return Source(_dotted(files[0], self.package), name) if len(files) == 1 else None

    def _place(self, kind: str) -> Path | None:
        if (relative := PLACES.get(kind)) is None:
            return None
        place = self.package / relative
        return place if place.exists() else None


def _dotted(path: Path, package: Path) -> str:
    return ".".join(["ppocr", *path.relative_to(package).with_suffix("").parts])


def _definitions(file: Path) -> list[str]:
    return _DEFINITION.findall(file.read_text(encoding="utf-8", errors="replace"))


def _exports(init: Path, package: str) -> dict[str, Source]:
    """Return the names that ``init`` imports from sibling modules, also inside its builder function.

    If a name is imported several times, the import for ``model_type == "rec"`` counts. Imports for other model types
    are left out.
    """
    try:
        tree = ast.parse(init.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError as reason:
        raise HostError(f"{init} of the host cannot be read: {reason}", code="unreadable_file") from reason
    sources: dict[str, Source] = {}
    for_task: set[str] = set()
    for node, model_types in _imports(tree.body, None):
        if model_types is not None and TASK not in model_types:
            continue
        source_module = f"{package}.{node.module}" if node.level == 1 else str(node.module)
        for alias in node.names:
            name = alias.asname or alias.name
            if model_types is not None and name not in for_task:
                for_task.add(name)
            elif name in sources:
                continue
            sources[name] = Source(source_module, alias.name)
    return sources


def _imports(
    body: Iterable[ast.stmt], model_types: set[str] | None
) -> Iterator[tuple[ast.ImportFrom, set[str] | None]]:
    """Yield the imports from the host's modules in ``body``, each with its model types."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            sibling = node.level == 1 and node.module is not None
            if sibling or (node.level == 0 and str(node.module).startswith("ppocr.")):
                yield node, model_types
        elif isinstance(node, ast.If):
            yield from _imports(node.body, _model_types(node.test) or model_types)
            yield from _imports(node.orelse, model_types)
        elif isinstance(node, (ast.FunctionDef, ast.Try)):
            yield from _imports(node.body, model_types)


def _model_types(test: ast.expr) -> set[str] | None:
    """Return the strings that ``test`` compares ``model_type`` with; None if it tests something else."""
    if not any(isinstance(node, ast.Name) and node.id == "model_type" for node in ast.walk(test)):
        return None
    constants = (node.value for node in ast.walk(test) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def parts(modules: HostModules, kind: str) -> dict[str, type]:
    """Return the host's classes of ``kind``, one of :data:`PART_KINDS`.

    Operators, decoders and collate functions have no common base class; the host's factories only call them.
    """
    from paddle.io import BatchSampler, Dataset, Sampler

    module = {
        "operator": f"{modules.data.__name__}.imaug",
        "collate_fn": f"{modules.data.__name__}.collate_fn",
        "decoder": modules.postprocess.__name__,
    }.get(kind, modules.data.__name__)
    bases = {"dataset": (Dataset,), "sampler": (Sampler, BatchSampler)}.get(kind, ())
    return {
        name: member
        for name, member in vars(importlib.import_module(module)).items()
        if isinstance(member, type)
        and (
            issubclass(member, bases) and member not in (Dataset, Sampler)
            if bases
            else any("__call__" in vars(base) for base in member.__mro__)
        )
    }
