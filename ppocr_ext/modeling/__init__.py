"""Networks: backbones, necks, heads, and the models that connect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import nn

from ppocr_ext.config import plain_copy
from ppocr_ext.modeling import backbones, heads, necks
from ppocr_ext.modeling.base_model import BaseModel, build_backbone, build_head, build_neck, build_transform
from ppocr_ext.modeling.distillation_model import DistillationModel
from ppocr_ext.modeling.head_request import EVAL, TRAIN, HeadRequest
from ppocr_ext.modeling.to_static import apply_to_static
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
]


def build_model(config: Mapping[str, Any]) -> nn.Layer:
    """Build what ``Architecture`` describes.

    Args:
        config: ``name`` (``BaseModel`` by default, or ``DistillationModel``) and the options of that model.
            It is not changed.

    Raises:
        ConfigError: a key is misspelt or a component unknown.
        ModelError: the parts cannot be connected.
    """
    options = plain_copy(config)
    return ARCHITECTURES.get(options.pop("name", "BaseModel"))(options)
