"""The libraries that can run a graph: Paddle Inference, ONNX Runtime, OpenVINO, each on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ppocr_ext.engine.network_graph import Runner
from ppocr_ext.engine.predictor import BFLOAT16, FLOAT32, open_predictor, open_session, run_predictor
from ppocr_ext.engine.request_graph import STEM
from ppocr_ext.errors import MissingPackageError
from ppocr_ext.messages import INSTALL_ONNX

PADDLE, ONNXRUNTIME, OPENVINO = "paddle", "onnxruntime", "openvino"  # names of the engines
NETWORK = "network"  # the network itself computes
AUTO = "auto"  # Paddle, or what is installed and faster
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


def other_engines(dtype: str) -> dict[str, str]:
    """Return the installed engines that can compute in ``dtype``, without Paddle, and their versions."""
    able = (ONNXRUNTIME, OPENVINO) if dtype == FLOAT32 else (OPENVINO,)
    return {
        engine: f"{_version(engine)} {_version('paddle2onnx')}"
        for engine in able
        if not missing_packages_of(engine)
    }


def _version(package: str) -> str:
    for distribution in (package, f"{package}-gpu"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return ""


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
        files = (folder / f"{STEM}.json", folder / f"{STEM}.pdiparams")
        return partial(run_predictor, open_predictor(*files, threads=threads, dtype=dtype))
    if engine == OPENVINO:
        return _openvino_runner(folder / ONNX, threads, dtype)
    session = open_session(folder / ONNX, threads)
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: session.run(None, {name: inputs[name] for name in names})


def _openvino_runner(file: Path, threads: int, dtype: str) -> Runner:
    import openvino

    options = {
        "PERFORMANCE_HINT": "LATENCY",  # one batch at a time, by all threads
        "INFERENCE_NUM_THREADS": threads,
        # where the processor has bfloat16, its own choice for float32 too
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == BFLOAT16 else "f32",
        # processes of one thread each would all be bound to the first core
        "ENABLE_CPU_PINNING": False,
    }
    compiled = openvino.Core().compile_model(str(file), "CPU", options)
    request = compiled.create_infer_request()
    names = [each.get_any_name() for each in compiled.inputs]

    def run(inputs: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        found = request.infer({name: inputs[name] for name in names})
        return [np.array(found[output]) for output in compiled.outputs]  # the next batch takes its memory

    return run
