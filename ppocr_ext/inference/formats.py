"""The forms of an exported recogniser: the files of each, how they are written and opened; imports no Paddle."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ppocr_ext.config.global_keys import ONNXRUNTIME, PADDLE
from ppocr_ext.errors import MissingPackageError, ModelError, PPOCRExtError, WeightsError
from ppocr_ext.inference.runners import (
    GRAPH,
    ONNX,
    WEIGHTS,
    Runner,
    missing_packages,
    open_onnxruntime,
    open_paddle,
)
from ppocr_ext.messages import INSTALL_ONNX, INSTALL_PADDLE

if TYPE_CHECKING:
    import numpy as np

MODEL_FILE = "model.json"  # describes an exported folder
INFERENCE_YML = "inference.yml"  # describes a model to the paddleocr 3 client
# Keys in the metadata of an ONNX file.
CHARACTERS = "character"  # RapidOCR's name: the dictionary, one character on each line
POLICY = "width_policy"  # our name: the width policy as JSON
# The first version with LayerNormalization. With the converter's default, 9, a LayerNorm becomes about ten operators.
OPSET = 17
# Without `optimize_tool=None` the converter installs packages with pip.
_CODE = (
    "import sys, paddle2onnx\n"
    "paddle2onnx.export(*sys.argv[1:4], opset_version=int(sys.argv[4]), optimize_tool=None)"
)
_WIDER = 32  # columns; more than a network's strides, so that a graph of one width does not take them
_SHOWN = 3  # lines of the converter that a message shows
_ERROR = "[ERROR]"  # paddle2onnx begins a line with a reason so
_NO_IMPORT = ("ImportError: ", "ModuleNotFoundError: ")  # the last line of a traceback begins so


def convert_graph(folder: Path) -> None:
    """Write ``inference.onnx`` from the other two files of a graph. The caller must compare its outputs.

    The converter runs in a process of its own, since it changes variables of its process, and ends it (SIGABRT) if it
    cannot convert a layer, such as adaptive pooling of images of any width.

    Args:
        folder: has ``inference.json`` and ``inference.pdiparams``.

    Raises:
        MissingPackageError: the converter cannot be imported.
        ModelError: it cannot convert a layer, or memory or disk is full. The message has the reason that it printed.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as temporary:
        part = Path(temporary).resolve() / ONNX
        files = [str(each.resolve()) for each in (folder / GRAPH, folder / WEIGHTS, part)]
        process = subprocess.run(
            [sys.executable, "-c", _CODE, *files, str(OPSET)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd=temporary,  # an empty folder, since `python -c` imports from the current folder first
            start_new_session=True,  # Ctrl-C ends this process, which ends the converter
        )
        if process.returncode != 0 or not part.is_file():
            raise _failure(process.returncode, process.stdout)
        part.replace(folder / ONNX)


def _failure(code: int, printed: str) -> PPOCRExtError:
    """Return the error for the exit code of the converter, negative for a signal, and for the text it printed."""
    lines = [line.strip() for line in printed.split("\n") if line.strip()]
    if lines and lines[-1].startswith(_NO_IMPORT):
        return MissingPackageError(
            f"paddle2onnx cannot be imported: {lines[-1]}. Fix: install it again: {INSTALL_ONNX}",
            code="missing_package",
        )
    reasons = [line.rpartition("] ")[2] for line in lines if line.startswith(_ERROR)] or lines[-_SHOWN:]
    if code < 0 and code != -signal.SIGABRT:
        reasons = [f"it was killed by signal {-code}."]
    return ModelError(
        f"paddle2onnx cannot convert the network: {' '.join(reasons) or 'it printed nothing'}",
        code="not_converted",
    )


def write_onnx(folder: Path, metadata: Mapping[str, str]) -> None:
    """Write ``inference.onnx`` from the graph in ``folder``. The caller must compare its outputs.

    Args:
        folder: has ``inference.json`` and ``inference.pdiparams``.
        metadata: texts to store in the file by key; see :func:`ppocr_ext.export.exporter.onnx_metadata`.

    Raises:
        MissingPackageError: a package of the extra ``onnx`` cannot be imported.
        ModelError: the converter fails; see :func:`convert_graph`.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401  (compares the file with the network)
    except ImportError as error:
        raise MissingPackageError(
            f"{ONNX} cannot be written, since a package cannot be imported: {error}. Fix: {INSTALL_ONNX}, or export "
            f"with --format paddle.",
            code="missing_package",
        ) from error

    convert_graph(folder)
    model = onnx.load_model(folder / ONNX)
    _drop_unused(model.graph)
    for key, text in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, text
    (folder / ONNX).write_bytes(model.SerializeToString())


def _drop_unused(graph: Any) -> None:
    """Remove the constants that no node reads; for each, ONNX Runtime would print a warning."""
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


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form in which a recogniser is exported.

    Attributes:
        files: a description of each file, by its name.
        packages: the packages, besides Paddle, that write the form and compare it with the network.
        library: the package that runs it.
        install: the command that installs the packages and the library.
        write: writes the files into a folder that has Paddle's graph, and stores the given texts in them by key. It is
            None if the form is that graph.
        openers: the ways to open the files, by name. An export compares each with the network; the first reads images.
    """

    files: Mapping[str, str]
    packages: tuple[str, ...]
    library: str
    install: str
    write: Callable[[Path, Mapping[str, str]], None] | None = None
    openers: Mapping[str, Callable[..., Runner]] = field(default_factory=dict)

    def require_packages(self) -> None:
        """Check that the packages for writing this form are installed.

        Raises:
            MissingPackageError: one is missing; the message says how to install it.
        """
        if missing := missing_packages(self.packages):
            raise MissingPackageError(
                f"{' and '.join(self.files)} cannot be written without {', '.join(missing)}. Fix: {self.install}, or "
                f"export with --format paddle.",
                code="missing_package",
            )


# The keys are the names in `export --format` and `predict --engine`. By default, `predict` reads an exported folder in
# the first form whose library is installed.
FORMATS = {
    "onnx": Format(
        files={ONNX: "graph, weights and dictionary, for ONNX Runtime"},
        packages=("paddle2onnx", "onnx", ONNXRUNTIME),
        library=ONNXRUNTIME,
        install=INSTALL_ONNX,
        write=write_onnx,
        openers={ONNX: open_onnxruntime},
    ),
    "paddle": Format(
        files={GRAPH: "the graph, for Paddle Inference", WEIGHTS: "its weights"},
        packages=(),
        library=PADDLE,
        install=INSTALL_PADDLE,
        openers={
            f"{GRAPH}, oneDNN": open_paddle,
            f"{GRAPH}, no oneDNN": partial(open_paddle, onednn=False),
        },
    ),
}
# The files of all forms, in the order in which they are listed and checked.
MODEL_FILES = tuple(file for form in reversed(FORMATS.values()) for file in form.files)


class Sizes(NamedTuple):
    """Height and usual width of the images of a recogniser, its classes, and whether it takes wider images."""

    rows: int
    columns: int
    classes: int
    widens: bool


class ExportedEngine:
    """Run an exported model on the CPU; see :class:`ppocr_ext.inference.runners.Engine`.

    Compare the digests of the files first: Paddle may not notice that the file of weights is truncated.

    Args:
        name: the name of the form in :data:`FORMATS`.
        place: the folder with its files, or the only file.
        files: its files, graph first, if they have other names than those of the form.
        way: one of the form's ``openers``; None for the first one.
        threads: the number of threads of the computation; None for the library's default.

    Attributes:
        place: the folder or the file.
        metadata: texts in the file by key, such as the dictionary.
        shape: the shape of its input; None for a size that is not fixed, empty if the library does not know it.

    Raises:
        MissingPackageError: the library is not installed, or Paddle is older than 3.0.
        WeightsError: a file is missing, damaged, or not a recogniser.
    """

    def __init__(
        self,
        name: str,
        place: Path,
        *,
        files: Sequence[Path] = (),
        way: str | None = None,
        threads: int | None = None,
    ) -> None:
        form = FORMATS[name]
        self.name, self.place = name, place
        files = files or ([place / file for file in form.files] if place.is_dir() else [place])
        if missing_packages([form.library]):
            raise MissingPackageError(
                f"The package {form.library} is not installed. Fix: {form.install}", code="missing_package"
            )
        for file in files:
            if not file.is_file():
                raise WeightsError(
                    f"there is no file {file}. Fix: copy all files of the model, or export it again.",
                    code="missing_file",
                )
        opener = form.openers[way or next(iter(form.openers))]
        try:
            self._runner = opener(files, threads=threads)
        except (MissingPackageError, ImportError):
            raise
        except Exception as error:  # libraries raise any class for a damaged file
            raise WeightsError(
                f"{place} cannot be opened; it may be truncated, of another kind, or of several models "
                f"({_reason(error)}). Fix: export it "
                f"again, or copy it again.",
                code="damaged_file",
            ) from error
        inputs = [len(shape) for shape in self._runner.shapes.values()]
        if (inputs, list(self._runner.outputs)) not in (([4], [3]), ([0], [None])):
            raise WeightsError(
                f"{place}: not a text recogniser (found {len(inputs)} inputs {dict(self._runner.shapes)}, "
                f"{len(self._runner.outputs)} outputs; expected images [B, 3, H, W] and probabilities [B, T, C]). Fix: "
                f"give a recogniser of text lines.",
                code="not_a_recogniser",
            )
        ((self._input, self.shape),) = self._runner.shapes.items()
        self.metadata = self._runner.metadata

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """See :class:`ppocr_ext.inference.runners.Engine`."""
        return self._runner({self._input: images})[0]

    def try_sizes(self, stated: Sequence[int]) -> Sizes:
        """Run it on blank images, and return what it takes. A size that the graph fixes is the only one that it takes.

        Args:
            stated: (3, height, width), the usual size of its images.

        Raises:
            WeightsError: it does not run on several images of this size, or has another output.
        """
        import numpy as np

        sizes = zip(self.shape[2:] or (None, None), stated[1:], strict=True)
        rows, columns = (fixed or usual for fixed, usual in sizes)
        reason: object = None
        for width, widens in ((columns + _WIDER, True), (columns, False)):
            try:
                output = self.probabilities(np.zeros((2, 3, rows, width), np.float32))
            except Exception as error:  # libraries raise any class
                reason = _reason(error)
            else:
                if output.ndim == 3 and len(output) == 2:
                    return Sizes(rows, columns, output.shape[2], widens)
                reason = f"its output is {list(output.shape)}"
        raise WeightsError(
            f"{self.place}: not a text recogniser, or its files are of different models: 2 images of {rows} x "
            f"{columns} make no probabilities [2, T, C] ({reason}). Fix: give a recogniser that takes several images.",
            code="not_a_recogniser",
        )


def _reason(error: Exception) -> str:
    """Return the last lines of what a library says, without Paddle's hints for its authors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return " ".join([line for line in lines if not line.startswith("[")][-2:]) or str(error)
