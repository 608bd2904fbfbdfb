"""The libraries that can run a graph: Paddle Inference, ONNX Runtime, OpenVINO, each on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.config.global_keys import DTYPES, ENGINES
from ppocr_ext.engine.captured import captured
from ppocr_ext.errors import MissingPackageError
from ppocr_ext.messages import INSTALL_ONNX, INSTALL_PADDLE

Runner = Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]  # inputs by name to the outputs in order
# `auto`: see `engine_of`; `network`: the network itself computes
AUTO, PADDLE, ONNXRUNTIME, OPENVINO, NETWORK = ENGINES
FLOAT32, BFLOAT16 = DTYPES
STEM = "inference"  # of the files of a graph
GRAPH, WEIGHTS = f"{STEM}.json", f"{STEM}.pdiparams"
ONNX = f"{STEM}.onnx"  # what the engines other than Paddle read
INSTALL = {
    ONNXRUNTIME: INSTALL_ONNX,
    OPENVINO: "pip install 'ppocr-ext[openvino]'",
}


def missing_packages_of(engine: str) -> list[str]:
    """Return the packages that ``engine`` needs and that are not installed; they are not imported."""
    needed = (engine, "paddle2onnx") if engine in INSTALL else ()
    return [package for package in needed if find_spec(package) is None]


def require_engine(engine: str) -> None:
    """Check that the packages of an engine are installed.

    Raises:
        MissingPackageError: one is not; the message says what to install.
    """
    if missing := missing_packages_of(engine):
        raise MissingPackageError(
            f"The engine {engine} needs {' and '.join(missing)}. Fix: {INSTALL[engine]}, or take the engine auto.",
            code="missing_package",
        )


def engine_of(asked: str) -> str:
    """Return the engine that computes: of ``"auto"`` OpenVINO if its packages are installed, else Paddle."""
    if asked != AUTO:
        return asked
    return PADDLE if missing_packages_of(OPENVINO) else OPENVINO


def other_engines(dtype: str) -> list[str]:
    """Return the installed engines that can compute in ``dtype``, without Paddle."""
    able = (ONNXRUNTIME, OPENVINO) if dtype == FLOAT32 else (OPENVINO,)
    return [engine for engine in able if not missing_packages_of(engine)]


def open_runner(engine: str, folder: Path, *, threads: int, dtype: str = FLOAT32) -> Runner:
    """Open a graph.

    Args:
        engine: the library.
        folder: has ``inference.json`` and ``inference.pdiparams``; for other engines than Paddle ``inference.onnx``.
        threads: of the computation.
        dtype: of products and convolutions; ONNX Runtime has float32 only.

    Raises:
        Exception: whatever the library makes of the file.
    """
    if engine == PADDLE:
        # a batch's longest label is part of its shape, so there are many: kept, each would cost memory and save no time
        files = folder / GRAPH, folder / WEIGHTS
        predictor = open_predictor(*files, threads=threads, dtype=dtype, shapes=1)
        return partial(run_predictor, predictor)
    if engine == OPENVINO:
        return _openvino_runner(folder / ONNX, threads, dtype)
    session = open_session(folder / ONNX, threads)
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: session.run(None, {name: inputs[name] for name in names})


@cache
def _openvino_core() -> Any:
    """Return the only core of this process, which lives as long as the process.

    Each core replaces the stack that signals are handled on, and puts back the one before when it is freed. Of several,
    freed in another order, that stack is gone, and the next signal ends the process.
    """
    import openvino

    return openvino.Core()


def _openvino_runner(file: Path, threads: int, dtype: str) -> Runner:
    options = {
        "PERFORMANCE_HINT": "LATENCY",  # one batch at a time, by all threads
        "INFERENCE_NUM_THREADS": threads,
        # where the processor has bfloat16, its own choice for float32 too
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == BFLOAT16 else "f32",
        # processes of one thread each would all be bound to the first core
        "ENABLE_CPU_PINNING": False,
    }
    compiled = _openvino_core().compile_model(str(file), "CPU", options)
    request = compiled.create_infer_request()
    names = [each.get_any_name() for each in compiled.inputs]

    def run(inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        found = request.infer({name: inputs[name] for name in names})
        return [np.array(found[output]) for output in compiled.outputs]  # the next batch takes its memory

    return run


def has_bfloat16() -> bool:
    """Return True if the processor has instructions for bfloat16; Paddle would compute without them, but slower."""
    import paddle

    return bool(paddle.base.core.supports_bfloat16_fast_performance())


def open_predictor(
    graph: Path,
    weights: Path,
    *,
    onednn: bool = True,
    threads: int | None = None,
    dtype: str = FLOAT32,
    shapes: int | None = None,
) -> Any:
    """Return Paddle's predictor; it keeps its tensors, so one thread at a time may use it.

    Paddle may not notice that the file of weights is truncated.

    Args:
        graph: the ``.json`` file.
        weights: the ``.pdiparams`` file.
        onednn: compute with oneDNN.
        threads: of the computation; None: Paddle's default, which is 1.
        dtype: of products and convolutions inside oneDNN; inputs and outputs stay float32.
        shapes: of inputs for which oneDNN keeps its own weights and buffers; None: Paddle's default.

    Raises:
        MissingPackageError: Paddle is older than 3.0.
        Exception: whatever Paddle makes of a damaged file.
    """
    from paddle import inference

    if not hasattr(inference.Config, "enable_new_ir"):
        raise MissingPackageError(
            f"{graph} needs Paddle 3. Fix: {INSTALL_PADDLE}, or read inference.onnx with ONNX Runtime.",
            code="unsupported_paddle",
        )
    config = inference.Config(str(graph), str(weights))
    config.disable_gpu()
    config.disable_glog_info()
    config.enable_new_ir(True)
    config.enable_new_executor(True)
    if onednn:
        config.enable_mkldnn()
        if shapes is not None:
            config.set_mkldnn_cache_capacity(shapes)
    else:
        config.disable_mkldnn()
    if dtype == BFLOAT16:  # Paddle prints a line
        captured(config.enable_mkldnn_bfloat16, "Paddle computes no bfloat16", "not_compiled")
    if threads is not None:
        config.set_cpu_math_library_num_threads(threads)
    return inference.create_predictor(config)


def run_predictor(predictor: Any, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a graph in its order.

    Args:
        predictor: from :func:`open_predictor`.
        inputs: by name; those that the graph does not read are left out.
    """
    for name in predictor.get_input_names():
        predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(inputs[name]))
    predictor.run()
    return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]


def open_session(file: Path, threads: int | None) -> Any:
    """Return ONNX Runtime's session of a file, on the CPU.

    Args:
        file: an ONNX file.
        threads: of the computation; None: one for each core.

    Raises:
        Exception: whatever ONNX Runtime makes of a damaged file; its exceptions have no common base but this.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its warnings are of the graph's form, and harmless
    if threads is not None:
        options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
