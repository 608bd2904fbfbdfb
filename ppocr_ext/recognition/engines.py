"""Run a recogniser: a trained network, an exported Paddle model, or an ONNX file.

Each engine takes a batch and returns its probabilities, and may be called from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ppocr_ext.engine.runners import GRAPH, WEIGHTS, open_predictor, open_session, run_predictor
from ppocr_ext.errors import MissingPackageError, ModelError, WeightsError
from ppocr_ext.messages import INSTALL_ONNX, INSTALL_PADDLE


class Engine(Protocol):
    """What computes the probabilities of a batch.

    Attributes:
        name: ``"network"``, ``"paddle"`` or ``"onnx"``.
    """

    name: str

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes in each frame: float32 [B, T, C].

        Args:
            images: float32 [B, 3, H, W].
        """
        ...


class NetworkEngine:
    """Run a network in eval mode: the probabilities of its CTC branch.

    Args:
        network: a recogniser (no :class:`DistillationModel`), with weights, or what ``compile_network`` made of it. It
            is left in eval mode.
    """

    def __init__(self, network: Any) -> None:
        network.eval()
        self.name = getattr(network, "engine", "network")
        self._network = network
        self._lock = threading.Lock()

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """See :class:`Engine`."""
        output = self._output(images)
        # (features, probabilities) with `return_feats`
        output = output[-1] if isinstance(output, list | tuple) else output
        return output.astype("float32").numpy()

    def _output(self, images: np.ndarray) -> Any:
        import paddle

        with self._lock, paddle.no_grad():
            output = self._network(paddle.to_tensor(images))
        return output["head_out"] if isinstance(output, dict) else output  # a dict with `return_all_feats`


class NrtrEngine(NetworkEngine):
    """Run a network in eval mode: the characters that its NRTR decoder takes, one after the other.

    It has no frames, so it is read by :meth:`decode` and not by ``probabilities``.
    """

    def decode(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of each character and its probability: int64 and float32, [B, L].

        Args:
            images: float32 [B, 3, H, W].

        Raises:
            ModelError: the head returns something else in evaluation.
        """
        output = self._output(images)
        if not isinstance(output, list | tuple) or len(output) != 2:
            raise ModelError(
                f"The head returns {type(output).__name__} in evaluation, but NRTRLabelDecode reads [ids, "
                f"probabilities], each [B, L]. Fix: decode greedily there, as the head Transformer does.",
                code="unsupported_output",
            )
        ids, best = output
        return ids.numpy(), best.astype("float32").numpy()


class PaddleEngine:
    """Run an exported model by Paddle Inference, on the CPU.

    Paddle may not notice that the file of weights is truncated: compare the digests of the files first.

    Args:
        folder: has ``inference.json`` and ``inference.pdiparams``.
        onednn: compute with oneDNN.
        threads: of the computation; None: Paddle's default.

    Raises:
        MissingPackageError: Paddle is not installed, or older than 3.0.
        WeightsError: a file is missing or damaged.
    """

    name = "paddle"

    def __init__(self, folder: str | Path, *, onednn: bool = True, threads: int | None = None) -> None:
        _import("paddle", INSTALL_PADDLE)
        files = [Path(folder) / GRAPH, Path(folder) / WEIGHTS]
        for file in files:
            _require_file(file)
        try:
            self._predictor = open_predictor(*files, onednn=onednn, threads=threads)
        except MissingPackageError:
            raise
        except Exception as error:  # whatever Paddle makes of a damaged file
            raise _damaged(Path(folder), error) from error
        self._lock = threading.Lock()

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """See :class:`Engine`."""
        with self._lock:  # a predictor keeps its tensors
            (name,) = self._predictor.get_input_names()
            return run_predictor(self._predictor, {name: images})[0]


class OnnxEngine:
    """Run an ONNX file by ONNX Runtime, on the CPU.

    Args:
        file: the file.
        threads: of the computation; None: one for each core.

    Attributes:
        metadata: texts that the file holds by key, such as its dictionary.
        input_shape: [B, 3, H, W]; None where a size is not fixed.

    Raises:
        MissingPackageError: ONNX Runtime is not installed.
        WeightsError: the file is missing, damaged, or no recogniser.
    """

    name = "onnx"

    def __init__(self, file: str | Path, *, threads: int | None = None) -> None:
        _import("onnxruntime", INSTALL_ONNX)
        _require_file(Path(file))
        try:
            self._session = open_session(Path(file), threads)
        except Exception as error:  # its exceptions have no common base but this
            raise _damaged(Path(file), error) from error
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        shapes = [len(inputs), len(outputs), len(inputs[0].shape), len(outputs[0].shape)]
        if shapes != [1, 1, 4, 3] or inputs[0].type != "tensor(float)":
            raise WeightsError(
                f"{file}: not a text recogniser (found {len(inputs)} inputs, {len(outputs)} outputs, {inputs[0].name} "
                f"{inputs[0].shape}; expected images [B, 3, H, W] and probabilities [B, T, C]). Fix: give a file "
                f"that `ppocr-ext export` wrote.",
                code="not_a_recogniser",
            )
        self._input = inputs[0].name
        self.input_shape = tuple(size if isinstance(size, int) else None for size in inputs[0].shape)
        self.metadata: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """See :class:`Engine`."""
        return self._session.run(None, {self._input: images})[0]


def _import(name: str, install: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MissingPackageError(
            f"The package {name} is not installed. Fix: {install}", code="missing_package"
        ) from error


def _require_file(file: Path) -> None:
    if not file.is_file():
        raise WeightsError(
            f"there is no file {file}. Fix: give a folder or an ONNX file that `ppocr-ext export` wrote.",
            code="missing_file",
        )


def _damaged(place: Path, error: Exception) -> WeightsError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return WeightsError(
        f"{place} cannot be opened, it is truncated or of another kind ({lines[-1] if lines else error}). Fix: export "
        f"it again, or copy it again.",
        code="damaged_file",
    )
