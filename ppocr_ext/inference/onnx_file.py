"""Convert a graph of Paddle to ONNX, in a process of its own, which the converter may end; imports no Paddle."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.errors import MissingPackageError, ModelError, PPOCRExtError
from ppocr_ext.inference.runners import GRAPH, ONNX, WEIGHTS
from ppocr_ext.messages import INSTALL_ONNX

OPSET = 17  # the converter's own default is 9
# `optimize_tool`: by default it installs packages with pip
_CODE = (
    "import sys, paddle2onnx\n"
    "paddle2onnx.export(*sys.argv[1:4], opset_version=int(sys.argv[4]), optimize_tool=None)"
)
_SHOWN = 3  # lines of what was printed
_ERROR = "[ERROR]"  # begin of the lines in which paddle2onnx names a reason
_NO_IMPORT = ("ImportError: ", "ModuleNotFoundError: ")  # begin of the last line of a traceback


def convert_graph(folder: Path, target: Path, place: Path) -> None:
    """Write an ONNX file from ``inference.json`` and ``inference.pdiparams``. What it computes is not checked here.

    paddle2onnx ends its process (SIGABRT) where it cannot convert a layer, such as adaptive pooling of images of any
    width, and it changes variables of the process.

    Args:
        folder: has the graph.
        target: the file; it is complete or not there.
        place: a folder on the same disk for a temporary folder.

    Raises:
        MissingPackageError: the converter cannot be imported.
        ModelError: it cannot convert a layer, or memory or disk is full; the message has the reason that it printed.
    """
    with tempfile.TemporaryDirectory(dir=place, prefix=".part-") as temporary:
        part = Path(temporary).resolve() / target.name
        files = [str(each.resolve()) for each in (folder / GRAPH, folder / WEIGHTS, part)]
        done = subprocess.run(
            [sys.executable, "-c", _CODE, *files, str(OPSET)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd=temporary,  # `-c` imports from the current folder first
            start_new_session=True,  # Ctrl-C ends this process, which ends the converter
        )
        if done.returncode != 0 or not part.is_file():
            raise _failure(done.returncode, done.stdout)
        part.replace(target)


def _failure(code: int, printed: str) -> PPOCRExtError:
    """Return the error for the exit code of the converter, negative for a signal, and what it printed."""
    lines = [line.strip() for line in printed.split("\n") if line.strip()]
    if lines and lines[-1].startswith(_NO_IMPORT):
        return MissingPackageError(
            f"paddle2onnx cannot be imported: {lines[-1]}. Fix: install it again: {INSTALL_ONNX}",
            code="missing_package",
        )
    if code < 0 and code != -signal.SIGABRT:
        return ModelError(f"paddle2onnx was killed by signal {-code}.", code="not_converted")
    return ModelError(f"paddle2onnx cannot convert the network: {_reason(lines)}", code="not_converted")


def _reason(lines: list[str]) -> str:
    named = [line.rpartition("] ")[2] for line in lines if line.startswith(_ERROR)]
    return " ".join(named or lines[-_SHOWN:]) or "it printed nothing"


def write_onnx(folder: Path, metadata: Mapping[str, str]) -> None:
    """Write ``inference.onnx`` from the graph in ``folder``. What it computes is not checked here.

    Args:
        folder: has ``inference.json`` and ``inference.pdiparams``.
        metadata: texts to store in the file by key; see :func:`ppocr_ext.export.inference_files.onnx_metadata`.

    Raises:
        MissingPackageError: a package of the extra ``onnx`` cannot be imported.
        ModelError: the converter fails; see :func:`convert_graph`.
    """
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
