"""Several recognisers that see the same images: a teacher and its students."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddle import Tensor, nn

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling.base import BaseModel
from ppocr_ext.modeling.components import plain
from ppocr_ext.modeling.request import BRANCHES
from ppocr_ext.registry import ARCHITECTURES


@ARCHITECTURES.register()
class DistillationModel(nn.Layer):
    """The sub-models of ``Architecture.Models``, by name.

    A sub-model with ``freeze_params: true`` stays in eval mode (BatchNorm, dropout, stochastic depth)
    and without gradients whatever ``train()`` is called, and still returns what the losses read.
    PaddleOCR leaves such a teacher in train mode.

    Args:
        config: ``Models``: name → config of a :class:`BaseModel`, with ``freeze_params`` and
            ``pretrained``. It is not changed.

    Attributes:
        models: the sub-models by name.
        model_name_list: their names; ``model_list``: themselves in that order, both as PaddleOCR's.
        frozen: names of the frozen ones.
        pretrained: path of the weights that each is to start from. They are not loaded here.
        unread: names of those that need not run in train mode, since nothing reads them.

    Raises:
        ConfigError: ``Models`` is missing or empty.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        if not config.get("Models"):
            raise ConfigError("Architecture.Models: a DistillationModel needs at least one sub-model.")
        self.models: dict[str, BaseModel] = {}
        self.pretrained: dict[str, str] = {}
        frozen = []
        for name, options in plain(config["Models"]).items():
            model = BaseModel(options)
            if options.get("pretrained"):
                self.pretrained[name] = options["pretrained"]
            if options.get("freeze_params"):
                model.freeze()
                frozen.append(name)
            self.models[name] = self.add_sublayer(name, model)
        self.frozen: frozenset[str] = frozenset(frozen)
        self.model_name_list = list(self.models)
        self.model_list = list(self.models.values())
        self.unread: frozenset[str] = frozenset()
        self._eval_models: tuple[str, ...] | None = None
        self._callers: dict[str, Callable[..., Any]] = {}  # not sublayers: names in state_dict stay

    @property
    def eval_models(self) -> tuple[str, ...] | None:
        """Names of the sub-models that run in eval mode; None for all."""
        return self._eval_models

    @eval_models.setter
    def eval_models(self, names: Iterable[str] | None) -> None:
        chosen = None if names is None else tuple(names)
        self._check_names(chosen or (), "eval_models")
        self._eval_models = chosen

    def require(self, branches: Mapping[str, Iterable[str]]) -> None:
        """Compute in train mode only what is read.

        Args:
            branches: for a sub-model, those of ``ctc``, ``gtc``, ``sar`` that a loss or hook reads. A
                sub-model that is not named keeps what it has.

        Raises:
            ModelError: a sub-model or a branch is not known.
        """
        self._check_names(branches, "require")
        for name, wanted in branches.items():
            chosen = frozenset(wanted)
            if chosen - BRANCHES:
                raise ModelError(
                    f"DistillationModel.require: {name} has no {sorted(chosen - BRANCHES)}; branches are "
                    f"{sorted(BRANCHES)}."
                )
            model = self.models[name]
            model.train_request = replace(model.train_request, branches=chosen)

    def run_through(self, name: str, caller: Callable[..., Any]) -> None:
        """Call the sub-model ``name`` through ``caller``, a wrapper around it, such as for data parallel.

        Raises:
            ModelError: there is no such sub-model.
        """
        self._check_names((name,), "run_through")
        self._callers[name] = caller

    def train(self) -> None:
        """Train mode, except for the frozen sub-models."""
        super().train()
        for name in self.frozen:
            self.models[name].train()  # which a frozen model refuses

    def forward(self, x: Tensor, data: Sequence[Tensor] | None = None) -> dict[str, Any]:
        """Outputs of the sub-models by name.

        Args:
            x: images [B, C, H, W].
            data: labels, as for :class:`BaseModel`.
        """
        if self.training:
            names: Iterable[str] = [name for name in self.models if name not in self.unread]
        else:
            names = self.models if self._eval_models is None else self._eval_models
        return {name: self._run(name, x, data) for name in names}

    def _run(self, name: str, x: Tensor, data: Sequence[Tensor] | None) -> Any:
        layer = self._callers.get(name, self.models[name])
        if self.training and name in self.frozen:
            return layer(x, data, self.models[name].train_request)
        return layer(x, data)

    def _check_names(self, names: Iterable[str], where: str) -> None:
        unknown = [name for name in names if name not in self.models]
        if unknown:
            raise ModelError(
                f"DistillationModel.{where}: no sub-model {', '.join(unknown)}; there are "
                f"{', '.join(self.models)}."
            )
