"""The models: one recogniser (transform, backbone, neck and head in a row), or several on the same images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import paddle
from paddle import Tensor, nn

from ppocr_ext.config import plain_copy
from ppocr_ext.errors import ConfigError, ModelError, PPOCRExtError, SubModelsError, error_below
from ppocr_ext.modeling.backbones.conv_parts import fuse_in_place
from ppocr_ext.modeling.head_request import (
    EVAL,
    TRAIN,
    HeadRequest,
    call_backbone,
    call_head,
    is_for_losses,
    understands_requests,
)
from ppocr_ext.modeling.necks import ENCODERS
from ppocr_ext.registry import (
    ARCHITECTURES,
    BACKBONES,
    HEADS,
    NECKS,
    TRANSFORMS,
    ComponentKeys,
    Registry,
    known_options,
)

# of ``Architecture``, and of an entry of ``Architecture.Models``
MODEL_KEYS = ComponentKeys(
    frozenset(
        [
            "model_type",
            "algorithm",
            "in_channels",
            "Transform",
            "Backbone",
            "Neck",
            "Head",
            "return_all_feats",
            "fused",
            "name",
            "freeze_params",
            "pretrained",
            "pretrained_dict",
        ]
    )
)


@ARCHITECTURES.register()
class BaseModel(nn.Layer):
    """Run transform, backbone, neck and head in a row: the model of ``Architecture``, or of an entry of its ``Models``.

    Args:
        config: ``Transform``, ``Backbone``, ``Neck`` and ``Head`` (each may be missing or null), ``in_channels`` of the
            image (3), ``return_all_feats``, ``fused``; not changed.

    Attributes:
        train_request: the outputs of the head in train mode; see :meth:`using`.
        eval_request: the outputs of the head in eval mode.
        frozen: see :meth:`freeze`.

    Raises:
        ModelError: a part cannot be connected, such as a backbone without ``out_channels``.
        ConfigError: a key or a component is unknown.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        parts = known_options(MODEL_KEYS, plain_copy(config), "Architecture")
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
            with error_below(part):
                layer = build({**parts[part], "in_channels": channels})
            setattr(self, part.lower(), layer)
            if part != "Head" and not hasattr(layer, "out_channels"):
                raise ModelError(
                    f"{part} {parts[part].get('name')}: the layer has no attribute out_channels, which the next part "
                    f"needs. Fix: set it in the constructor of {type(layer).__name__}.",
                    code="missing_attribute",
                )
            channels = getattr(layer, "out_channels", None)
        if parts.get("fused", False):
            fuse_in_place(self)
        self.return_all_feats = bool(parts.get("return_all_feats", False))
        self.train_request: HeadRequest = TRAIN
        self.eval_request: HeadRequest = EVAL
        self.frozen = False
        self._held_in_eval: tuple[nn.Layer, ...] = ()

    def using(self, train: HeadRequest | None = None, evaluate: HeadRequest | None = None) -> BaseModel:
        """Return a model with the same layers and other requests."""
        other = copy(self)
        other.train_request = train or self.train_request
        other.eval_request = evaluate or self.eval_request
        return other

    def freeze(self) -> None:
        """Switch off gradients, and stay in eval mode even if ``train()`` is called."""
        self.frozen = True
        for parameter in self.parameters():
            parameter.stop_gradient = True
        self._hold_in_eval()

    def hold_in_eval(self, layers: Iterable[nn.Layer]) -> None:
        """Keep ``layers`` in eval mode; a run does so with layers in which everything is frozen."""
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
            request: the outputs of the head; by default ``train_request`` in train mode and ``eval_request``
                otherwise. A frozen model uses it too, but stays in eval mode.

        Returns:
            The outputs of the head. With ``return_all_feats``: ``{"backbone_out", "neck_out", "head_out"}`` if the
            request is for losses; otherwise ``{"head_out"}``, or the dict of the head.
        """
        # Paddle 2.6 cannot compile a return inside a `with`, so there is one return at the end
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
            else:  # the named outputs of one of PaddleOCR's heads
                features.update(x)
        if not self.return_all_feats:
            return x
        if is_for_losses(request):
            return features
        return x if isinstance(x, dict) else {last: x}


def build_transform(config: Mapping[str, Any]) -> nn.Layer:
    """Build the layer before the backbone from its ``name``, ``in_channels`` and other options."""
    return _build(TRANSFORMS, config)


def build_backbone(config: Mapping[str, Any], model_type: str = "rec") -> nn.Layer:
    """Build the backbone from its ``name``, ``in_channels`` and other options.

    ``model_type`` is PaddleOCR's argument; our backbones are all for recognisers.
    """
    return _build(BACKBONES, config, model_type=model_type)


def build_neck(config: Mapping[str, Any]) -> nn.Layer:
    """Build the neck from its ``name``, ``in_channels`` and other options.

    A ``SequenceEncoder`` with an encoder that this package lacks (``cascadernn``) is taken from the host.
    """
    if config.get("name") == "SequenceEncoder" and config.get("encoder_type") not in ENCODERS:
        theirs = NECKS.of_host("SequenceEncoder")
        if theirs is not None:
            options = plain_copy(config)
            del options["name"]
            return theirs(**options)
    return _build(NECKS, config)


def build_head(config: Mapping[str, Any]) -> nn.Layer:
    """Build the head from its ``name``, ``in_channels`` and other options."""
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
            f"the {registry.kind} {name} cannot be built with these options ({type(error).__name__}: {error}). "
            f"Fix: compare their types with docs/weights.md.",
            code="bad_value",
        ) from error


Caller = Callable[..., Any]  # (images, labels, request) → outputs of the sub-model


@ARCHITECTURES.register()
class DistillationModel(nn.Layer):
    """Run the sub-models of ``Architecture.Models``.

    A sub-model with ``freeze_params: true`` has no gradients, and stays in eval mode (BatchNorm, dropout, stochastic
    depth) even if ``train()`` is called. It still returns all outputs that the losses require. PaddleOCR keeps a frozen
    teacher in train mode.

    Args:
        config: ``Models``: name → config of a :class:`BaseModel`, ``freeze_params`` and ``pretrained``; not changed.

    Attributes:
        models: the sub-models by name.
        model_name_list: their names (PaddleOCR's attribute).
        model_list: the sub-models in the order of ``model_name_list`` (PaddleOCR's attribute).
        frozen: names of the frozen ones.
        train_requests: outputs of the sub-models in train mode; a sub-model without a request does not run.
        eval_requests: outputs of the sub-models in eval mode; a sub-model without a request does not run.
        callers: what is called in place of a sub-model: its data-parallel wrapper, a compiled engine, or a cache.

    Raises:
        ConfigError: ``Models`` is missing or empty.
        PPOCRExtError: sub-models cannot be built; the ``key`` of the error is that of the part below ``Architecture``.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        if not config.get("Models"):
            raise ConfigError(
                "Architecture.Models: a DistillationModel needs at least one sub-model.", code="missing_key"
            )
        self.models: dict[str, BaseModel] = {}
        frozen = []
        errors: list[PPOCRExtError] = []
        for name, options in plain_copy(config["Models"]).items():
            try:
                with error_below("Models", str(name)):
                    model = BaseModel(options)
            except PPOCRExtError as error:
                errors.append(error)
                continue
            if options.get("freeze_params"):
                model.freeze()
                frozen.append(name)
            self.models[name] = self.add_sublayer(name, model)
        if errors:
            raise errors[0] if len(errors) == 1 else SubModelsError(errors)
        self.frozen: frozenset[str] = frozenset(frozen)
        self.model_name_list = list(self.models)
        self.model_list = list(self.models.values())
        self.train_requests: Mapping[str, HeadRequest] = dict.fromkeys(self.models, TRAIN)
        self.eval_requests: Mapping[str, HeadRequest] = dict.fromkeys(self.models, EVAL)
        self.callers: Mapping[str, Caller] = {}  # not sublayers: names in state_dict do not change

    def using(
        self,
        train: Mapping[str, HeadRequest] | None = None,
        evaluate: Mapping[str, HeadRequest] | None = None,
        callers: Mapping[str, Caller] | None = None,
    ) -> DistillationModel:
        """Return a model with the same sub-models and other requests or callers.

        Args:
            train: the new ``train_requests``.
            evaluate: the new ``eval_requests``.
            callers: added to the existing ones.

        Raises:
            ModelError: a sub-model is unknown.
        """
        unknown = [name for name in {**(train or {}), **(evaluate or {})} if name not in self.models]
        if unknown:
            raise ModelError(
                f"DistillationModel: there is no sub-model {', '.join(unknown)} (found {', '.join(self.models)}).",
                code="unknown_sub_model",
            )
        other = copy(self)
        other.train_requests = self.train_requests if train is None else dict(train)
        other.eval_requests = self.eval_requests if evaluate is None else dict(evaluate)
        other.callers = {**self.callers, **(callers or {})}
        return other

    def caller(self, name: str) -> Caller:
        """Return the caller of the sub-model ``name``, or the sub-model itself."""
        return self.callers.get(name, self.models[name])

    def train(self) -> None:
        """Switch to train mode, except for the frozen sub-models."""
        super().train()
        for name in self.frozen:
            self.models[name].train()  # its own `train` leaves it in eval mode

    def forward(self, x: Tensor, data: Sequence[Tensor] | None = None) -> dict[str, Any]:
        """Return the outputs of the sub-models by name.

        Args:
            x: images [B, C, H, W].
            data: labels, as for :class:`BaseModel`.
        """
        requests = self.train_requests if self.training else self.eval_requests
        return {name: self.caller(name)(x, data, request) for name, request in requests.items()}


def networks_of(model: nn.Layer) -> dict[str | None, nn.Layer]:
    """Return the sub-models by name; for another model, the model itself under the name None."""
    return dict(model.models.items()) if isinstance(model, DistillationModel) else {None: model}
