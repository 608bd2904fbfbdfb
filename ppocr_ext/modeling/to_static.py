"""Compile a model for training, if ``Global.to_static`` is true."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import paddle
from paddle import nn
from paddle.static import InputSpec

from ppocr_ext.errors import ConfigError

WITH_LABELS = ("SVTR_LCNet", "SVTR_HGNet")  # algorithms whose model gets the labels of both branches
WITH_CTC_LABELS = ("SVTR",)


def apply_to_static(model: nn.Layer, config: Mapping[str, Any], logger: logging.Logger) -> nn.Layer:
    """Compile ``model`` if ``Global.to_static`` is true, as PaddleOCR does; otherwise return it as it is.

    Args:
        model: the one to train.
        config: the whole config: ``Global.to_static``, ``Global.d2s_train_image_shape`` [C, H, W],
            ``Global.max_text_length``, ``Architecture.algorithm``.
        logger: logs the input specification.

    Raises:
        ConfigError: the image shape is missing, or the algorithm cannot be compiled this way.
    """
    settings = config["Global"]
    if settings.get("to_static", False) is not True:
        return model
    if "d2s_train_image_shape" not in settings:
        raise ConfigError(
            "Global.to_static: true needs Global.d2s_train_image_shape, such as [3, 48, 320].",
            code="missing_key",
        )
    architecture = config["Architecture"]
    algorithm = architecture["algorithm"]
    if algorithm == "Distillation":
        algorithm = next(iter(architecture["Models"].values()))["algorithm"]
    specs: list[Any] = [InputSpec([None, *settings["d2s_train_image_shape"]], "float32")]
    if algorithm in WITH_LABELS:
        labels = InputSpec([None, settings["max_text_length"]], "int64")
        specs.append([labels, labels, InputSpec([None], "int64"), InputSpec([None], "float64")])
    elif algorithm in WITH_CTC_LABELS:
        labels = InputSpec([None, settings["max_text_length"]], "int64")
        specs.append([labels, InputSpec([None], "int64")])
    else:
        known = ", ".join(WITH_LABELS + WITH_CTC_LABELS)
        raise ConfigError(
            f"Global.to_static: algorithm {algorithm!r} is not supported. Fix: use one of {known}, or set "
            f"Global.to_static: false.",
            code="bad_value",
        )
    # The whole network as one graph, as for export: quicker to compile, and Paddle 2.6 fails with its other method,
    # the bytecode translator.
    model = paddle.jit.to_static(model, input_spec=specs, full_graph=True)
    logger.info("Compiled for training with the inputs %s", specs)
    return model
