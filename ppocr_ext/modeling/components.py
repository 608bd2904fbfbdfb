"""Builders of the parts of a network, with PaddleOCR's signatures; none changes its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import nn

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.necks.sequence import ENCODERS
from ppocr_ext.registry import BACKBONES, HEADS, NECKS, TRANSFORMS, Registry


def plain(config: Any) -> Any:
    """A deep copy of dicts and lists, which a component of the host may take apart."""
    if isinstance(config, Mapping):
        return {key: plain(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [plain(value) for value in config]
    return config


def build_transform(config: Mapping[str, Any]) -> nn.Layer:
    """The layer before the backbone: ``name`` and its options, ``in_channels`` among them."""
    return _build(TRANSFORMS, config)


def build_backbone(config: Mapping[str, Any], model_type: str = "rec") -> nn.Layer:
    """The backbone: ``name`` and its options, ``in_channels`` among them.

    ``model_type`` is PaddleOCR's; ours are recognisers.
    """
    return _build(BACKBONES, config, model_type=model_type)


def build_neck(config: Mapping[str, Any]) -> nn.Layer:
    """The neck: ``name`` and its options, ``in_channels`` among them.

    A ``SequenceEncoder`` with an encoder that ours lacks (``rnn``) is the host's, if it has one.
    """
    if config.get("name") == "SequenceEncoder" and config.get("encoder_type") not in ENCODERS:
        theirs = NECKS.of_host("SequenceEncoder")
        if theirs is not None:
            options = plain(config)
            del options["name"]
            return theirs(**options)
    return _build(NECKS, config)


def build_head(config: Mapping[str, Any]) -> nn.Layer:
    """The head: ``name`` and its options, ``in_channels`` among them."""
    return _build(HEADS, config)


def _build(registry: Registry, config: Mapping[str, Any], **injected: Any) -> nn.Layer:
    options = plain(config)
    name = options.pop("name", None)
    if name is None:
        raise ModelError(f"The {registry.kind} has no name: {options}. Choose one of {registry.names()}.")
    if "in_channels" in options:
        injected["in_channels"] = options.pop("in_channels")
    return registry.build(name, options, **injected)
