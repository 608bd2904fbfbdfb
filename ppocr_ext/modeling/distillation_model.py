"""Run several recognisers on the same images: a teacher and its students."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddle import Tensor, nn

from ppocr_ext.config import plain_copy
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling.base_model import BaseModel
from ppocr_ext.modeling.head_request import BRANCHES
from ppocr_ext.registry import ARCHITECTURES


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
        unread: names of those that do not run in train mode, since nothing reads them.

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
        self.unread: frozenset[str] = frozenset()
        self._eval_models: tuple[str, ...] | None = None
        self._callers: dict[str, Callable[..., Any]] = {}  # not sublayers: names in state_dict do not change

    @property
    def eval_models(self) -> tuple[str, ...] | None:
        """Return the names of the sub-models that run in eval mode; None for all."""
        return self._eval_models

    @eval_models.setter
    def eval_models(self, names: Iterable[str] | None) -> None:
        chosen = None if names is None else tuple(names)
        self._check_names(chosen or (), "eval_models")
        self._eval_models = chosen

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Return the names of the sub-models that run in eval mode."""
        return tuple(self.models) if self._eval_models is None else self._eval_models

    def require(self, branches: Mapping[str, Iterable[str]]) -> None:
        """Compute only these branches in train mode.

        Args:
            branches: for a sub-model, those of ``ctc``, ``gtc``, ``sar`` that a loss or hook reads. A
                sub-model that is not named does not change.

        Raises:
            ModelError: a sub-model or a branch is not known.
        """
        self._check_names(branches, "require")
        for name, wanted in branches.items():
            chosen = frozenset(wanted)
            if chosen - BRANCHES:
                raise ModelError(
                    f"DistillationModel.require: {name} has no {sorted(chosen - BRANCHES)} (found "
                    f"{sorted(BRANCHES)}).",
                    code="unknown_branch",
                )
            model = self.models[name]
            model.train_request = replace(model.train_request, branches=chosen)

    def set_caller(self, name: str, caller: Callable[..., Any]) -> None:
        """Call ``caller`` in place of the sub-model ``name``, such as its wrapper for data parallel.

        Raises:
            ModelError: there is no such sub-model.
        """
        self._check_names((name,), "set_caller")
        self._callers[name] = caller

    def caller(self, name: str) -> Callable[..., Any]:
        """Return what is called for the sub-model ``name``: itself, or what :meth:`set_caller` has put in its place."""
        self._check_names((name,), "caller")
        return self._callers.get(name, self.models[name])

    def train(self) -> None:
        """Switch to train mode, except for the frozen sub-models."""
        super().train()
        for name in self.frozen:
            self.models[name].train()  # a frozen model stays in eval mode

    def forward(self, x: Tensor, data: Sequence[Tensor] | None = None) -> dict[str, Any]:
        """Return the outputs of the sub-models by name.

        Args:
            x: images [B, C, H, W].
            data: labels, as for :class:`BaseModel`.
        """
        if not self.training:
            return {name: self.caller(name)(x, data) for name in self.evaluated}
        return {name: self._run(name, x, data) for name in self.models if name not in self.unread}

    def _run(self, name: str, x: Tensor, data: Sequence[Tensor] | None) -> Any:
        """Call a sub-model in train mode; a frozen one, which is in eval mode, is told what the losses require."""
        if name in self.frozen:
            return self.caller(name)(x, data, self.models[name].train_request)
        return self.caller(name)(x, data)

    def _check_names(self, names: Iterable[str], where: str) -> None:
        unknown = [name for name in names if name not in self.models]
        if unknown:
            raise ModelError(
                f"DistillationModel.{where}: there is no sub-model {', '.join(unknown)} (found "
                f"{', '.join(self.models)}).",
                code="unknown_sub_model",
            )
