"""Networks: backbones, necks, heads, and the models made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import nn

from ppocr_ext.modeling import backbones, heads, necks
from ppocr_ext.modeling.base import BaseModel
from ppocr_ext.modeling.components import build_backbone, build_head, build_neck, build_transform, plain
from ppocr_ext.modeling.distillation import DistillationModel
from ppocr_ext.modeling.request import EVAL, TRAIN, HeadRequest
from ppocr_ext.modeling.static import apply_to_static
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
        config: ``name`` (``BaseModel`` by default, or ``DistillationModel``) and what that model takes.
            It is not changed.

    Raises:
        ConfigError: a key is misspelt or a component unknown.
        ModelError: the parts do not fit together.
    """
    options = plain(config)
    return ARCHITECTURES.get(options.pop("name", "BaseModel"))(options)
