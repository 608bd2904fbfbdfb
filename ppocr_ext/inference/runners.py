"""Run a graph on the CPU with Paddle Inference, ONNX Runtime or OpenVINO, or run the network itself."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from ppocr_ext.config.global_keys import AUTO, BFLOAT16, FLOAT32, NETWORK, ONNXRUNTIME, OPENVINO, PADDLE
from ppocr_ext.errors import MissingPackageError, ModelError
from ppocr_ext.messages import INSTALL_ONNX, INSTALL_OPENVINO, INSTALL_PADDLE, error_text

if TYPE_CHECKING:  # commands that only need names start without NumPy
    import numpy as np

T = TypeVar("T")
STEM = "inference"  # name of a graph's files, as PaddleOCR and PaddleX expect it
GRAPH = f"{STEM}.json"
WEIGHTS = f"{STEM}.pdiparams"
ONNX = f"{STEM}.onnx"  # read by all engines except Paddle
INSTALL = {ONNXRUNTIME: INSTALL_ONNX, OPENVINO: INSTALL_OPENVINO}
_SHOWN = 3  # printed lines that a message shows


@dataclass(frozen=True)
class Runner:
    """A graph that a library has opened; several threads may call it.

    Attributes:
        shapes: the shapes of the inputs by name. A size that is not fixed is None. The shape is empty for ids, or if
            the library does not know it.
        outputs: the number of axes of each output; None if the library does not know it.
        run: maps the inputs by name to the outputs, in the order of ``outputs``.
        metadata: texts in the file by key, such as its dictionary.
    """

    shapes: Mapping[str, Sequence[int | None]]
    outputs: Sequence[int | None]
    run: Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        """Return the outputs; other inputs than those of the graph are ignored."""
        arrays = {name: inputs[name] for name in self.shapes}
        return self.run({name: x if x.flags.c_contiguous else x.copy() for name, x in arrays.items()})


def missing_packages(names: Sequence[str]) -> list[str]:
    """Return the packages that are not installed, without importing them."""
    return [name for name in names if find_spec(name) is None]


def missing_packages_of(engine: str) -> list[str]:
    """Return the packages that ``engine`` needs to run a network and that are not installed."""
    return missing_packages((engine, "paddle2onnx") if engine in INSTALL else ())


def require_engine(engine: str) -> None:
    """Check that the packages of an engine are installed.

    Raises:
        MissingPackageError: one is missing; the message says how to install it.
    """
    if missing := missing_packages_of(engine):
        raise MissingPackageError(
            f"The engine {engine} needs {' and '.join(missing)}. Fix: {INSTALL[engine]}, or use the engine auto.",
            code="missing_package",
        )


def engine_of(asked: str) -> str:
    """Return the engine. ``"auto"`` means OpenVINO if its packages are installed, and Paddle otherwise."""
    if asked != AUTO:
        return asked
    return PADDLE if missing_packages_of(OPENVINO) else OPENVINO


def other_engines(dtype: str) -> list[str]:
    """Return the installed engines except Paddle that can compute in ``dtype``."""
    able = (ONNXRUNTIME, OPENVINO) if dtype == FLOAT32 else (OPENVINO,)
    return [engine for engine in able if not missing_packages_of(engine)]


def has_bfloat16() -> bool:
    """Return True if the processor has instructions for bfloat16; without them Paddle is slower than in float32."""
    import paddle

    return bool(paddle.base.core.supports_bfloat16_fast_performance())


def usual_threads() -> int:
    """Return the number of threads of Paddle's networks (``OMP_NUM_THREADS``)."""
    return int((os.environ.get("OMP_NUM_THREADS") or "1").partition(",")[0])


def open_runner(engine: str, folder: Path, *, threads: int, dtype: str = FLOAT32) -> Runner:
    """Open a graph to run a network.

    Args:
        engine: the library.
        folder: has ``inference.json`` and ``inference.pdiparams``, and ``inference.onnx`` for other engines.
        threads: the number of threads of the computation.
        dtype: the type of products and convolutions; ONNX Runtime has float32 only.

    Raises:
        Exception: an exception of any class, if the library cannot open the file.
    """
    if engine == PADDLE:
        # The shapes include the longest label of a batch, so there are many. What oneDNN keeps for each costs memory,
        # and no shape comes often enough to save time.
        return open_paddle([folder / GRAPH, folder / WEIGHTS], threads=threads, dtype=dtype, kept_shapes=1)
    if engine == OPENVINO:
        return open_openvino([folder / ONNX], threads=threads, dtype=dtype)
    return open_onnxruntime([folder / ONNX], threads=threads)


def open_paddle(
    files: Sequence[Path],
    *,
    threads: int | None = None,
    dtype: str = FLOAT32,
    onednn: bool = True,
    kept_shapes: int | None = None,
) -> Runner:
    """Open a graph with Paddle Inference, which may not notice that the file of weights is truncated.

    Args:
        files: the ``.json`` file and the ``.pdiparams`` file.
        threads: the number of threads of the computation; None for Paddle's default, which is 1.
        dtype: the type of products and convolutions inside oneDNN; inputs and outputs stay float32.
        onednn: compute with oneDNN.
        kept_shapes: shapes of inputs for which oneDNN keeps its own weights and buffers; None for Paddle's default.

    Raises:
        MissingPackageError: Paddle is older than 3.0.
        Exception: an exception of any class, for a damaged file.
    """
    from paddle import inference

    if not hasattr(inference.Config, "enable_new_ir"):
        raise MissingPackageError(
            f"{files[0]} needs Paddle 3. Fix: {INSTALL_PADDLE}, or read inference.onnx with ONNX Runtime.",
            code="unsupported_paddle",
        )
    config = inference.Config(*map(str, files))
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_new_ir(True)
    config.enable_new_executor(True)
    if not onednn:
        config.disable_mkldnn()
    else:
        config.enable_mkldnn()
        if kept_shapes is not None:
            config.set_mkldnn_cache_capacity(kept_shapes)
    if dtype == BFLOAT16:  # captured, since Paddle prints a line here
        captured(config.enable_mkldnn_bfloat16, "Paddle computes no bfloat16", "not_compiled")
    if threads is not None:
        config.set_cpu_math_library_num_threads(threads)
    predictor = inference.create_predictor(config)
    names = predictor.get_output_names()
    lock = threading.Lock()  # a predictor has one set of input and output tensors for all threads

    def run(inputs: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        with lock:
            for name, values in inputs.items():
                predictor.get_input_handle(name).copy_from_cpu(values)
            predictor.run()
            return [predictor.get_output_handle(name).copy_to_cpu() for name in names]

    return Runner(dict.fromkeys(predictor.get_input_names(), ()), [None] * len(names), run)


def open_onnxruntime(files: Sequence[Path], *, threads: int | None = None) -> Runner:
    """Open an ONNX file with ONNX Runtime.

    Args:
        files: one file.
        threads: the number of threads of the computation; None for as many as there are cores.

    Raises:
        Exception: an exception of any class, for a damaged file.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its warnings about the form of the graph are harmless
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(files[0]), options, providers=["CPUExecutionProvider"])
    shapes = {
        each.name: [size if isinstance(size, int) else None for size in each.shape if "float" in each.type]
        for each in session.get_inputs()
    }
    return Runner(
        shapes,
        [len(each.shape) for each in session.get_outputs()],
        lambda inputs: session.run(None, inputs),
        session.get_modelmeta().custom_metadata_map,
    )


@cache
def _openvino_core() -> Any:
    """Return the only core of this process, which is never freed.

    Each core replaces the stack on which signals are handled, and restores the previous stack when it is freed. If
    several cores are freed in another order, that stack is gone, and the next signal ends the process.
    """
    import openvino

    return openvino.Core()


def open_openvino(files: Sequence[Path], *, threads: int, dtype: str = FLOAT32) -> Runner:
    """Open an ONNX file with OpenVINO.

    Args:
        files: one file.
        threads: the number of threads of the computation.
        dtype: the type of products and convolutions.

    Raises:
        Exception: an exception of any class, for a damaged file.
    """
    options = {
        "PERFORMANCE_HINT": "LATENCY",  # one batch at a time, by all threads
        "INFERENCE_NUM_THREADS": threads,
        # Set for float32 too, since OpenVINO would choose bfloat16 on a processor that has it.
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == BFLOAT16 else "f32",
        # With pinning, all processes that have one thread would be bound to the first core.
        "ENABLE_CPU_PINNING": False,
    }
    compiled = _openvino_core().compile_model(str(files[0]), "CPU", options)
    request = compiled.create_infer_request()
    lock = threading.Lock()  # a request has one set of input and output tensors for all threads

    def run(inputs: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        with lock:
            outputs = request.infer(inputs)
            # Copied, since the next batch is written into the same memory.
            return [outputs[output].copy() for output in compiled.outputs]

    return Runner(
        {each.node.friendly_name: () for each in compiled.inputs}, [None] * len(compiled.outputs), run
    )


class Engine(Protocol):
    """An object that computes the probabilities of a batch.

    Attributes:
        name: ``"network"``, or the form of an exported model: ``"paddle"``, ``"onnx"``.
    """

    name: str

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes in each frame: float32 [B, T, C].

        Args:
            images: float32 [B, 3, H, W].
        """
        ...


class Network(Protocol):
    """A network of Paddle, or its compiled form."""

    def eval(self) -> Any:
        """Switch to eval mode."""

    def __call__(self, images: Any) -> Any:
        """Return the outputs for images [B, 3, H, W]."""


class NetworkEngine:
    """Compute the probabilities of a network's CTC branch in eval mode.

    Args:
        network: a recogniser with weights (not a :class:`DistillationModel`), or a ``CompiledNetwork``. It stays in
            eval mode.
    """

    def __init__(self, network: Network) -> None:
        network.eval()
        self.name: str = getattr(network, "engine", NETWORK)
        self._network = network
        self._lock = threading.Lock()

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """See :class:`Engine`."""
        output = self._output(images)
        # With `return_feats` the head returns (features, probabilities).
        output = output[-1] if isinstance(output, list | tuple) else output
        return output.astype("float32").numpy()

    def _output(self, images: np.ndarray) -> Any:
        import paddle

        with self._lock, paddle.no_grad():
            output = self._network(paddle.to_tensor(images))
        # With `return_all_feats` it is a dict.
        return output["head_out"] if isinstance(output, dict) else output


class NrtrEngine(NetworkEngine):
    """Compute the characters of a network's NRTR decoder in eval mode.

    The decoder has no frames, so :meth:`decode` is used in place of ``probabilities``.
    """

    def decode(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of each character and its probability: int64 and float32, [B, L].

        Args:
            images: float32 [B, 3, H, W].

        Raises:
            ModelError: the head returns other outputs in evaluation.
        """
        output = self._output(images)
        if not isinstance(output, list | tuple) or len(output) != 2:
            raise ModelError(
                f"In evaluation, the head returns {type(output).__name__}, but NRTRLabelDecode needs [ids, "
                f"probabilities], each [B, L]. Fix: let it decode greedily, as the head Transformer does.",
                code="unsupported_output",
            )
        ids, best = output
        return ids.numpy(), best.astype("float32").numpy()


def captured(call: Callable[[], T], failure: str, code: str) -> T:
    """Return the result of ``call``, which runs C++ code of Paddle. What it prints is shown only if it fails.

    Args:
        call: takes no arguments.
        failure: the message of the error begins so, such as ``"The network cannot be compiled"``.
        code: the code of the error.

    Raises:
        ModelError: ``call`` raised an exception; the message ends with the last printed lines.
    """
    with tempfile.TemporaryFile() as printed:
        try:
            with _printing_to(printed):
                return call()
        except Exception as error:  # Paddle raises any class
            printed.seek(0)
            lines = printed.read().decode("utf-8", "replace").split("\n")
            last = "\n  ".join([line for line in lines if line.strip()][-_SHOWN:])
            raise ModelError(
                f"{failure}: {error_text(error)}{f' It printed:{chr(10)}  {last}' if last else ''}",
                code=code,
            ) from error


@contextmanager
def _printing_to(file: IO[bytes]) -> Iterator[None]:
    """Inside this context, redirect the descriptors 1 and 2 to ``file``, which C++ code uses, not Python's streams."""
    _flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(file.fileno(), number)
        yield
    finally:
        _flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
