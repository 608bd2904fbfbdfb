"""What a PaddleOCR checkout can build, read from its source without importing it.

A checkout has some 60 backbones and losses, many of which need packages of their own. So the
catalog reads names only, and one module is imported when a config names its component.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ppocr_ext.errors import HostError
from ppocr_ext.host.complete import HostModules

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
PART_KINDS = (
    "dataset",
    "operator",
    "sampler",
    "decoder",
    "collate_fn",
)  # of the data pipeline and the decoders
TASK = "rec"  # PaddleOCR gives one name to different classes by `model_type`; ours is recognition
_DEFINITION = re.compile(r"^(?:class|def) ([A-Za-z]\w*)", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """Where a component is: module (dotted, under ``ppocr``) and its name there."""

    module: str
    attribute: str


class Catalog:
    """Names of the components in the checkout whose ``ppocr`` folder is ``package``."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self._exports: dict[str, dict[str, Source]] = {}

    def names(self, kind: str) -> list[str]:
        """Return the sorted names that the host itself offers for ``kind``; empty for a kind that it lacks."""
        return sorted(self._offered(kind))

    def find(self, kind: str, name: str) -> Source | None:
        """Return where ``name`` is: as the host's builder imports it, else the one file that defines it."""
        return self._offered(kind).get(name) or self._defined(kind, name)

    def _offered(self, kind: str) -> dict[str, Source]:
        if kind not in self._exports:
            place = self._place(kind)
            found = {}
            if place is not None and place.is_file():
                module = _dotted(place, self.package)
                found = {name: Source(module, name) for name in _definitions(place)}
            elif place is not None and (place / "__init__.py").is_file():
                found = _exports(place / "__init__.py", _dotted(place, self.package))
            self._exports[kind] = found
        return self._exports[kind]

    def _defined(self, kind: str, name: str) -> Source | None:
        place = self._place(kind)
        if place is None or not place.is_dir():
            return None
        files = [file for file in sorted(place.glob("*.py")) if name in _definitions(file)]
        files = [file for file in files if file.name.startswith(f"{TASK}_")] or files
        # Two files that define one name hold private helpers (`ConvBNLayer`), not components.
        return Source(_dotted(files[0], self.package), name) if len(files) == 1 else None

    def _place(self, kind: str) -> Path | None:
        relative = PLACES.get(kind)
        if relative is None:
            return None
        place = self.package / relative
        return place if place.exists() else None


def _dotted(path: Path, package: Path) -> str:
    return ".".join(["ppocr", *path.relative_to(package).with_suffix("").parts])


def _definitions(file: Path) -> list[str]:
    return _DEFINITION.findall(file.read_text(encoding="utf-8", errors="replace"))


def _exports(init: Path, package: str) -> dict[str, Source]:
    """Return the names that ``init`` imports from sibling modules, also inside its builder function.

    Where a name is imported several times, the import under ``model_type == "rec"`` wins;
    imports that only other model types need are left out.
    """
    try:
        tree = ast.parse(init.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError as reason:
        raise HostError(f"{init} of the host cannot be read: {reason}", code="unreadable_file") from reason
    found: dict[str, Source] = {}
    for_task: set[str] = set()
    for node, model_types in _imports(tree.body, None):
        if model_types is not None and TASK not in model_types:
            continue
        source_module = f"{package}.{node.module}" if node.level == 1 else str(node.module)
        for alias in node.names:
            name = alias.asname or alias.name
            if model_types is not None and name not in for_task:
                for_task.add(name)
            elif name in found:
                continue
            found[name] = Source(source_module, alias.name)
    return found


def _imports(
    body: Iterable[ast.stmt], model_types: set[str] | None
) -> Iterator[tuple[ast.ImportFrom, set[str] | None]]:
    """Yield the imports from the host's modules in ``body``, each with the model types that it is for."""
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

    Of operators, decoders and collate functions, the host's factories require no more than that they can be called.
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
