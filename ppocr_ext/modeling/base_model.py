"""Build a recogniser (transform, backbone, neck and head in a row) and its parts, with PaddleOCR's signatures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import paddle
from paddle import Tensor, nn

from ppocr_ext.config import plain_copy
from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import (
    EVAL,
    TRAIN,
    HeadRequest,
    call_backbone,
    call_head,
    is_for_losses,
    understands_requests,
)
from ppocr_ext.modeling.necks.sequence_encoder import ENCODERS
from ppocr_ext.registry import ARCHITECTURES, BACKBONES, HEADS, NECKS, TRANSFORMS, Registry, known_options


@ARCHITECTURES.register()
class BaseModel(nn.Layer):
    """Run what ``Architecture`` describes, or one entry of ``Architecture.Models``.

    Args:
        config: ``Transform``, ``Backbone``, ``Neck`` and ``Head`` (each may be absent or null),
            ``in_channels`` of the image (3), ``return_all_feats``. It is not changed.

    Attributes:
        train_request: what the head returns in train mode; see :meth:`using`.
        eval_request: what the head returns in eval mode.
        frozen: see :meth:`freeze`.

    Raises:
        ModelError: a part cannot be connected, such as a backbone without ``out_channels``.
        ConfigError: a key is misspelt, or a component is unknown.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        parts = known_options(model_keys, plain_copy(config), "Architecture")
        channels = parts.get("in_channels", 3)
        self.transform = self.backbone = self.neck = self.head = None
        for part, build in (
            ("Transform", build_transform),
            ("Backbone", partial(build_backbone, model_type=parts.get("model_type", "rec"))),
            ("Neck", build_neck),
            ("Head", build_head),
        ):
            if not parts.get(part):
                continue
            layer = build({**parts[part], "in_channels": channels})
            setattr(self, part.lower(), layer)
            if part != "Head" and not hasattr(layer, "out_channels"):
                raise ModelError(
                    f"{part} {parts[part].get('name')}: the layer has no attribute out_channels, which the next part "
                    f"needs. Fix: set it in the constructor of {type(layer).__name__}.",
                    code="missing_attribute",
                )
            channels = getattr(layer, "out_channels", None)
        self.return_all_feats = bool(parts.get("return_all_feats", False))
        self.train_request: HeadRequest = TRAIN
        self.eval_request: HeadRequest = EVAL
        self.frozen = False
        self._held_in_eval: tuple[nn.Layer, ...] = ()

    def using(self, train: HeadRequest | None = None, evaluate: HeadRequest | None = None) -> BaseModel:
        """Return a model of the same layers that returns something else in train or in eval mode."""
        other = copy(self)
        other.train_request = train or self.train_request
        other.eval_request = evaluate or self.eval_request
        return other

    def freeze(self) -> None:
        """Switch gradients off and stay in eval mode, even if ``train()`` is called."""
        self.frozen = True
        for parameter in self.parameters():
            parameter.stop_gradient = True
        self._hold_in_eval()

    def hold_in_eval(self, layers: Iterable[nn.Layer]) -> None:
        """Keep some layers in eval mode, since everything in them is frozen."""
        self._held_in_eval = tuple(layers)

    def train(self) -> None:
        """Switch to train mode, unless frozen."""
        super().train()
        self._hold_in_eval()

    def _hold_in_eval(self) -> None:
        # Not self.eval(): that also switches Paddle's tracer, which all networks share.
        for layer in self.sublayers(include_self=True) if self.frozen else self._held_in_eval:
            layer.training = False

    def forward(
        self, x: Tensor, data: Sequence[Tensor] | None = None, request: HeadRequest | None = None
    ) -> Any:
        """Read text lines.

        Args:
            x: images [B, in_channels, H, W].
            data: labels for heads that need them, in the order of PaddleOCR's loader, after the image.
            request: what the head should return; by default ``train_request`` in train mode and
                ``eval_request`` otherwise. A frozen model follows it too, but stays in eval mode.

        Returns:
            What the head returns. With ``return_all_feats``: ``{"backbone_out", "neck_out", "head_out"}``
            for losses; otherwise ``{"head_out"}``, or the head's own dict.
        """
        # One return at the end: Paddle 2.6 cannot compile a return inside a `with`.
        if self.training:  # the train() of a wrapper sets the flags directly
            self._hold_in_eval()
        run = self._run_frozen if self.frozen else self._run
        return run(x, data, request or (self.train_request if self.training else self.eval_request))

    def _run_frozen(self, x: Any, data: Sequence[Tensor] | None, request: HeadRequest) -> Any:
        with paddle.no_grad():
            return self._run(x, data, request)

    def _run(self, x: Any, data: Sequence[Tensor] | None, request: HeadRequest) -> Any:
        features: dict[str, Any] = {}
        last = "backbone_out"
        if self.transform is not None:
            x = self.transform(x)
        if self.backbone is not None:
            x = call_backbone(self.backbone, x, request)
        features.update(x if isinstance(x, dict) else {last: x})
        if self.neck is not None:
            x = self.neck(x)
            last = "neck_out"
            features.update(x if isinstance(x, dict) else {last: x})
        if self.head is not None:
            x = call_head(self.head, x, data, request)
            last = "head_out"
            if not isinstance(x, dict) or "ctc_neck" in x or understands_requests(self.head):
                features[last] = x
                if isinstance(x, dict) and "ctc_neck" in x:
                    features["neck_out"] = x["ctc_neck"]
            else:  # the named outputs of a head of PaddleOCR's own
                features.update(x)
        if not self.return_all_feats:
            return x
        if is_for_losses(request):
            return features
        return x if isinstance(x, dict) else {last: x}


def model_keys(
    model_type: Any = None,
    algorithm: Any = None,
    in_channels: Any = None,
    Transform: Any = None,  # noqa: N803
    Backbone: Any = None,  # noqa: N803
    Neck: Any = None,  # noqa: N803
    Head: Any = None,  # noqa: N803
    return_all_feats: Any = None,
    name: Any = None,
    freeze_params: Any = None,
    pretrained: Any = None,
    pretrained_dict: Any = None,
) -> None:
    """List the keys of ``Architecture`` and of an entry of ``Architecture.Models``."""


def build_transform(config: Mapping[str, Any]) -> nn.Layer:
    """Build the layer before the backbone: ``name`` and its options, ``in_channels`` among them."""
    return _build(TRANSFORMS, config)


def build_backbone(config: Mapping[str, Any], model_type: str = "rec") -> nn.Layer:
    """Build the backbone: ``name`` and its options, ``in_channels`` among them.

    ``model_type`` is PaddleOCR's argument; our backbones are for recognisers.
    """
    return _build(BACKBONES, config, model_type=model_type)


def build_neck(config: Mapping[str, Any]) -> nn.Layer:
    """Build the neck: ``name`` and its options, ``in_channels`` among them.

    A ``SequenceEncoder`` with an encoder that ours does not have (``cascadernn``) is the host's, if it has one.
    """
    if config.get("name") == "SequenceEncoder" and config.get("encoder_type") not in ENCODERS:
        theirs = NECKS.of_host("SequenceEncoder")
        if theirs is not None:
            options = plain_copy(config)
            del options["name"]
            return theirs(**options)
    return _build(NECKS, config)


def build_head(config: Mapping[str, Any]) -> nn.Layer:
    """Build the head: ``name`` and its options, ``in_channels`` among them."""
    return _build(HEADS, config)


def _build(registry: Registry, config: Mapping[str, Any], **injected: Any) -> nn.Layer:
    options = plain_copy(config)
    name = options.pop("name", None)
    if name is None:
        raise ModelError(
            f"The {registry.kind} has no name (found {options}). Fix: give one of {', '.join(registry.names())}.",
            code="missing_key",
        )
    if "in_channels" in options:
        injected["in_channels"] = options.pop("in_channels")
    try:
        return registry.build(name, options, **injected)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise ModelError(
            f"the {registry.kind} {name} does not take these options ({type(error).__name__}: {error}). "
            f"Fix: compare their types with docs/weights.md.",
            code="bad_value",
        ) from error
