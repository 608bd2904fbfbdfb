"""Networks: backbones, necks, heads, and the models that connect them.

Keys of ``Architecture``:
    model_type: ``rec``.
    algorithm: used by the host's loop. With ``SVTR_LCNet`` it passes the labels to the model, which a MultiHead needs.
        A DistillationModel has ``Distillation``, and each of its sub-models has its own.
    Transform, Backbone, Neck, Head: the parts; each has a ``name``.
    in_channels: channels of the image (3).
    return_all_feats: return ``backbone_out``, ``neck_out`` and ``head_out``; losses with a ``key`` need them.
    fused: train with convolutions in one piece, as inference models have them: no parallel branches, no BatchNorm in
        the backbone (false; true if the weights are a released inference model).
    pretrained_dict: dictionary of ``Global.pretrained_model``, if it differs.
    Models: the sub-models of a DistillationModel: name → the keys above and below.
    Models.NAME.freeze_params: the sub-model stays in evaluation mode and is not trained (false).
    Models.NAME.pretrained: weights of the sub-model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import paddle
from paddle import nn
from paddle.static import InputSpec

from ppocr_ext.config import plain_copy
from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import backbones, heads, necks, transforms
from ppocr_ext.modeling.head_request import EVAL, TRAIN, HeadRequest
from ppocr_ext.modeling.models import (
    BaseModel,
    DistillationModel,
    build_backbone,
    build_head,
    build_neck,
    build_transform,
    networks_of,
)
from ppocr_ext.registry import ARCHITECTURES

__all__ = [
    "EVAL",
    "TRAIN",
    "BaseModel",
    "DistillationModel",
    "HeadRequest",
    "apply_to_static",
    "backbones",
    "build_backbone",
    "build_head",
    "build_model",
    "build_neck",
    "build_transform",
    "heads",
    "necks",
    "networks_of",
    "transforms",
]
WITH_LABELS = ("SVTR_LCNet", "SVTR_HGNet")  # algorithms whose model gets the labels of both branches
WITH_CTC_LABELS = ("SVTR",)


def build_model(config: Mapping[str, Any]) -> nn.Layer:
    """Build the model of a config's section ``Architecture``.

    Args:
        config: ``name`` (``BaseModel`` by default, or ``DistillationModel``) and its options; not changed.

    Raises:
        ConfigError: a key or a component is unknown.
        ModelError: the parts cannot be connected.
    """
    options = plain_copy(config)
    return ARCHITECTURES.get(options.pop("name", "BaseModel"))(options)


def apply_to_static(model: nn.Layer, config: Mapping[str, Any], logger: logging.Logger) -> nn.Layer:
    """Compile ``model`` if ``Global.to_static`` is true, as PaddleOCR does; otherwise return it unchanged.

    Args:
        model: the one to train.
        config: the whole config: ``Global.to_static``, ``Global.d2s_train_image_shape`` [C, H, W],
            ``Global.max_text_length``, ``Architecture.algorithm``.
        logger: logs the input specification.

    Raises:
        ConfigError: the image shape is missing, or the algorithm cannot be compiled this way.
    """
    # PaddleOCR's own scripts call this; a run compiles without that key (run/model_wrappers.py).
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
    labels = InputSpec([None, settings["max_text_length"]], "int64")
    lengths = InputSpec([None], "int64")
    if algorithm in WITH_LABELS:
        data = [labels, labels, lengths, InputSpec([None], "float64")]
    elif algorithm in WITH_CTC_LABELS:
        data = [labels, lengths]
    else:
        raise ConfigError(
            f"Global.to_static: algorithm {algorithm!r} is not supported. Fix: use one of "
            f"{', '.join(WITH_LABELS + WITH_CTC_LABELS)}, or set Global.to_static: false.",
            code="bad_value",
        )
    specs = [InputSpec([None, *settings["d2s_train_image_shape"]], "float32"), data]
    # one graph of the whole network, as for export: it compiles faster, and Paddle 2.6 fails with the other method, the
    # bytecode translator
    model = paddle.jit.to_static(model, input_spec=specs, full_graph=True)
    logger.info("Compiled for training with the inputs %s", specs)
    return model
