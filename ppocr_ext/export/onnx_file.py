"""Convert an exported graph to ONNX, with the dictionary in its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ppocr_ext.engine.onnx_conversion import convert_graph
from ppocr_ext.engine.runners import ONNX
from ppocr_ext.errors import MissingPackageError
from ppocr_ext.messages import INSTALL_ONNX

PACKAGES = ("paddle2onnx", "onnx", "onnxruntime")  # the last one compares the file with the network


def require_converter() -> None:
    """Check that the packages of the extra ``onnx`` are there.

    Raises:
        MissingPackageError: one is not; the message says what to install.
    """
    missing = missing_packages()
    if missing:
        raise MissingPackageError(
            f"To write {ONNX}, {', '.join(missing)} must be installed. Fix: {INSTALL_ONNX}, or export with "
            f"--format paddle.",
            code="missing_package",
        )


def missing_packages() -> list[str]:
    """Return the packages of the extra ``onnx`` that are not installed; they are not imported."""
    return [name for name in PACKAGES if find_spec(name) is None]


def write_onnx(folder: Path, metadata: Mapping[str, str]) -> None:
    """Write ``inference.onnx`` from the graph in ``folder``. What it computes is not checked here.

    Args:
        folder: has ``inference.json`` and ``inference.pdiparams``.
        metadata: texts to store in the file by key; see :func:`ppocr_ext.export.dictionary_files.onnx_metadata`.

    Raises:
        MissingPackageError: a package of the extra ``onnx`` is not installed, or cannot be imported.
        ModelError: the converter fails; see :func:`ppocr_ext.engine.onnx_conversion.convert_graph`.
    """
    require_converter()
    try:
        import onnx
        import onnxruntime  # noqa: F401  (compares the file with the network)
    except ImportError as error:
        raise MissingPackageError(
            f"To write {ONNX}, a package must be installed again: {error}. Fix: {INSTALL_ONNX}, or export with "
            f"--format paddle.",
            code="missing_package",
        ) from error

    convert_graph(folder, folder / ONNX, folder)
    model = onnx.load_model(folder / ONNX)
    _drop_unused(model.graph)
    for key, text in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    (folder / ONNX).write_bytes(model.SerializeToString())


def _drop_unused(graph: Any) -> None:
    """Remove the constants that no node reads: ONNX Runtime warns of each whenever the file is opened."""
    used = {output.name for output in graph.output}.union(*(node.input for node in _nodes(graph)))
    kept = [node for node in graph.node if node.op_type != "Constant" or used.intersection(node.output)]
    del graph.node[:]
    graph.node.extend(kept)


def _nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of the graphs inside them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)
            for inner in attribute.graphs:
                yield from _nodes(inner)
