"""Open a graph that ``paddle.jit.save`` wrote in Paddle Inference, or an ONNX file in ONNX Runtime, on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.engine.captured import captured
from ppocr_ext.errors import MissingPackageError
from ppocr_ext.messages import INSTALL_PADDLE

FLOAT32, BFLOAT16 = "float32", "bfloat16"


def has_bfloat16() -> bool:
    """Return True if the processor has instructions for bfloat16; Paddle would compute without them, but slower."""
    import paddle

    return bool(paddle.base.core.supports_bfloat16_fast_performance())


def open_predictor(
    graph: Path, weights: Path, *, onednn: bool = True, threads: int | None = None, dtype: str = FLOAT32
) -> Any:
    """Return Paddle's predictor; it keeps its tensors, so one thread at a time may use it.

    Paddle may not notice that the file of weights is truncated.

    Args:
        graph: the ``.json`` file.
        weights: the ``.pdiparams`` file.
        onednn: compute with oneDNN.
        threads: of the computation; None: Paddle's default, which is 1.
        dtype: of products and convolutions inside oneDNN; inputs and outputs stay float32.

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
