"""The forms of an exported recogniser: the files of each, what writes them, and what opens them; imports no Paddle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.config.global_keys import ONNXRUNTIME, PADDLE
from ppocr_ext.errors import MissingPackageError, WeightsError
from ppocr_ext.inference.onnx_file import write_onnx
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


@dataclass(frozen=True, kw_only=True)
class Format:
    """A form in which a recogniser is exported.

    Attributes:
        files: that it has, by name what each is.
        packages: that write it and compare it with the network, besides Paddle.
        library: the package that runs it.
        install: the command that installs all of these.
        write: writes the files into a folder that has Paddle's graph, with texts to store in them by key; None: they
            are that graph.
        openers: open the files, in as many ways as are compared with the network, by the name of each; the first one
            reads images.
    """

    files: Mapping[str, str]
    packages: tuple[str, ...]
    library: str
    install: str
    write: Callable[[Path, Mapping[str, str]], None] | None = None
    openers: Mapping[str, Callable[..., Runner]] = field(default_factory=dict)

    def require_packages(self) -> None:
        """Check that the packages that write this form are installed.

        Raises:
            MissingPackageError: one is not; the message says what to install.
        """
        if missing := missing_packages(self.packages):
            raise MissingPackageError(
                f"To write {' and '.join(self.files)}, {', '.join(missing)} must be installed. Fix: {self.install}, or "
                f"export with --format paddle.",
                code="missing_package",
            )


# by the name in `export --format` and `predict --engine`; an exported folder is read by the first that is installed
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
# the files of all forms, as they are listed and checked
MODEL_FILES = tuple(file for form in reversed(FORMATS.values()) for file in form.files)


class ExportedEngine:
    """Run an exported model on the CPU; see :class:`ppocr_ext.inference.runners.Engine`.

    Compare the digests of the files first: Paddle may not notice that the file of weights is truncated.

    Args:
        name: of its form in :data:`FORMATS`.
        place: the folder with its files, or the only file.
        way: one of the form's ``openers``; None: the first one.
        threads: of the computation; None: the library's default.

    Attributes:
        metadata: texts that the file holds by key, such as its dictionary.

    Raises:
        MissingPackageError: the library is not installed, or Paddle is older than 3.0.
        WeightsError: a file is missing, damaged, or no recogniser.
    """

    def __init__(
        self,
        name: str,
        place: Path,
        *,
        way: str | None = None,
        threads: int | None = None,
    ) -> None:
        form = FORMATS[name]
        self.name = name
        files = [place / file for file in form.files] if place.is_dir() else [place]
        if missing_packages([form.library]):
            raise MissingPackageError(
                f"The package {form.library} is not installed. Fix: {form.install}", code="missing_package"
            )
        for file in files:
            if not file.is_file():
                raise WeightsError(
                    f"there is no file {file}. Fix: give a folder or an ONNX file that `ppocr-ext export` wrote.",
                    code="missing_file",
                )
        opener = form.openers[way or next(iter(form.openers))]
        try:
            self._runner = opener(files, threads=threads)
        except (MissingPackageError, ImportError):
            raise
        except Exception as error:  # whatever a library makes of a damaged file
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise WeightsError(
                f"{place} cannot be opened, it is truncated or of another kind ({lines[-1] if lines else error}). Fix: "
                f"export it again, or copy it again.",
                code="damaged_file",
            ) from error
        inputs = [len(shape) for shape in self._runner.shapes.values()]
        if (inputs, list(self._runner.outputs)) not in (([4], [3]), ([0], [None])):
            raise WeightsError(
                f"{place}: not a text recogniser (found {len(inputs)} inputs {dict(self._runner.shapes)}, "
                f"{len(self._runner.outputs)} outputs; expected images [B, 3, H, W] and probabilities [B, T, C]). Fix: "
                f"give a file that `ppocr-ext export` wrote.",
                code="not_a_recogniser",
            )
        (self._input,) = self._runner.shapes
        self.metadata = self._runner.metadata

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """See :class:`ppocr_ext.inference.runners.Engine`."""
        return self._runner({self._input: images})[0]
