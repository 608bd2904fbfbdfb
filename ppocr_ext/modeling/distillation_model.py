"""Run several recognisers on the same images: a teacher and its students."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from paddle import Tensor, nn

from ppocr_ext.config import plain_copy
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling.base_model import BaseModel
from ppocr_ext.modeling.head_request import EVAL, TRAIN, HeadRequest
from ppocr_ext.registry import ARCHITECTURES

Caller = Callable[..., Any]  # (images, labels, request) → what the sub-model returns


@ARCHITECTURES.register()
class DistillationModel(nn.Layer):
    """Run the sub-models of ``Architecture.Models``.

    A sub-model with ``freeze_params: true`` stays in eval mode (BatchNorm, dropout, stochastic depth)
    and without gradients even if ``train()`` is called, and still returns what the losses require.
    PaddleOCR keeps such a teacher in train mode.

    Args:
        config: ``Models``: name → config of a :class:`BaseModel`, with ``freeze_params`` and
            ``pretrained``. It is not changed.

    Attributes:
        models: the sub-models by name.
        model_name_list: their names; ``model_list``: the sub-models in that order; both are PaddleOCR's names.
        frozen: names of the frozen ones.
        pretrained: path of the weights that each starts from. They are not loaded here.
        train_requests: what each sub-model returns in train mode; one without a request does not run.
        eval_requests: what each sub-model returns in eval mode; one without a request does not run.
        callers: what computes in place of a sub-model: its wrapper for data parallel, a compiled engine, a cache.

    Raises:
        ConfigError: ``Models`` is missing or empty.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        if not config.get("Models"):
            raise ConfigError(
                "Architecture.Models: a DistillationModel needs at least one sub-model.", code="missing_key"
            )
        self.models: dict[str, BaseModel] = {}
        self.pretrained: dict[str, str] = {}
        frozen = []
        for name, options in plain_copy(config["Models"]).items():
            try:
                model = BaseModel(options)
            except ModelError as error:
                error.sub_model = str(name)
                raise
            if options.get("pretrained"):
                self.pretrained[name] = options["pretrained"]
            if options.get("freeze_params"):
                model.freeze()
                frozen.append(name)
            self.models[name] = self.add_sublayer(name, model)
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
        """Return a model of the same sub-models that runs others of them, for other outputs, or by other callers.

        Args:
            train: becomes ``train_requests``.
            evaluate: becomes ``eval_requests``.
            callers: join those that there are.

        Raises:
            ModelError: a sub-model is not known.
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
        """Return what computes for the sub-model ``name``: itself, unless ``callers`` has another."""
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
    """Return the sub-models by name; of another model the model itself, without a name."""
    return dict(model.models.items()) if isinstance(model, DistillationModel) else {None: model}
