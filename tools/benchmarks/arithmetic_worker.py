"""What the networks of a distillation need at least, and how fast this machine multiplies, in a process of its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import paddle

from benchmarks.limits import multiply_adds, product_speed
from benchmarks.step_data import batch_of_run, config_of
from ppocr_ext.engine.request_graph import inference_copy
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model
from ppocr_ext.run.device import tune_cpu
from ppocr_ext.run.model_setup import restrict_outputs

_MOMENTS = 2  # of AdamW, for each trained weight
_FLOAT32 = 4  # bytes


def measure(folder: str) -> dict[str, Any]:
    """Count the arithmetic of one image of a batch, and time products of matrices.

    Args:
        folder: as :func:`benchmarks.step_data.prepare` leaves it.

    Returns:
        Multiply-adds of one image: ``teacher`` and ``student`` in a forward pass with all that the losses read,
        and ``reading``, the student with its CTC branch alone, folded as it is compiled. ``speed``: floating-point
        operations a second. ``weights``: bytes of all weights, and of
        gradients and moments of those that are trained.
    """
    tune_cpu()
    config = config_of(Path(folder))
    images, *labels = [each[:1] for each in batch_of_run(Path(folder))]
    paddle.seed(0)
    model = build_model(config.at("Architecture").thaw())
    restrict_outputs(model, build_loss(config.at("Loss").thaw()).required_outputs(), config)
    model.train()
    found: dict[str, Any] = {}
    for name, network in (("teacher", model.Teacher), ("student", model.Student)):
        request = network.train_request
        found[name] = multiply_adds([network], partial(network, images, labels, request))
    request = model.Student.eval_request
    reader = inference_copy(model.Student, request)
    found["reading"] = multiply_adds([reader], partial(reader, images, labels, request))
    trained = sum(each.size for each in model.parameters() if not each.stop_gradient)
    weights = sum(each.size for each in model.state_dict().values())
    found["weights"] = _FLOAT32 * (weights + (1 + _MOMENTS) * trained)
    return {**found, "speed": product_speed()}
