"""Freeze the parts of a run's networks that the config names, and those that no loss can train.

A sub-model with ``freeze_params: true`` is frozen when it is built (:meth:`ppocr_ext.modeling.BaseModel.freeze`). A
parameter that never gets a gradient must be frozen, since a data-parallel reducer would wait for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import Tensor, nn

from ppocr_ext.config import Config
from ppocr_ext.data.batches import images_of, labels_of
from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import FEATURES, OutputRef
from ppocr_ext.messages import LOG, shortened
from ppocr_ext.modeling import TRAIN, BaseModel, DistillationModel, networks_of
from ppocr_ext.modeling.head_request import BRANCH_LAYERS, understands_requests
from ppocr_ext.optim.optimizers import match_patterns, named_weights
from ppocr_ext.run.frame_counts import left_as_it_was
from ppocr_ext.run.host_config import decoder_models
from ppocr_ext.run.inference_models import inference_models

_BRANCH_OF = {"ctc": "ctc", "neck": "ctc", "gtc": "gtc", "sar": "sar"}
_BEHIND_GUIDE = {"ctc", "neck", "features"}  # with `use_guide`, their gradient does not reach the backbone

# Layers that behave differently in train mode. Only these are switched to eval mode, since the mode of a container
# decides about outputs and number of frames. Our own layers with dropout have an attribute `has_dropout`.
_SWITCHED = (
    nn.BatchNorm,
    nn.BatchNorm1D,
    nn.BatchNorm2D,
    nn.BatchNorm3D,
    nn.SyncBatchNorm,
    nn.Dropout,
    nn.Dropout2D,
    nn.Dropout3D,
    nn.AlphaDropout,
    nn.RNNBase if hasattr(nn, "RNNBase") else nn.LSTM,
)


def frozen_models(model: nn.Layer) -> frozenset[str]:
    """Return the names of the sub-models that are not trained."""
    return model.frozen if isinstance(model, DistillationModel) else frozenset()


def unsaved_models(model: nn.Layer, save_teacher: bool) -> frozenset[str]:
    """Return the names of the sub-models that a checkpoint does not store."""
    return frozenset(inference_models(model)) if save_teacher else frozen_models(model)


def choose_trained(model: nn.Layer, config: Config, reads: Iterable[OutputRef] | None) -> nn.Layer:
    """Return ``model`` restricted to the outputs that are read, with all parameters frozen that must be.

    Args:
        model: with its final BatchNorm; not yet wrapped for several processes.
        config: the config of the run.
        reads: the outputs that the losses read; None if a loss of another package does not declare them.

    Raises:
        ConfigError: see :func:`freeze_parts`.
    """
    model = restrict_outputs(model, reads, config)
    if patterns := config.settings.freeze:
        freeze_parts(model, patterns)
    freeze_guided(model, reads)
    return model


def _stop(parameters: Iterable[Tensor]) -> None:
    for parameter in parameters:
        parameter.stop_gradient = True


def restrict_outputs(model: nn.Layer, reads: Iterable[OutputRef] | None, config: Config) -> nn.Layer:
    """Return a model that computes only the branches and features that are read, and freeze the other branches.

    With ``reads`` None, all is computed.
    """
    if reads is None:
        return model
    reads = set(reads)
    if config.settings.cal_metric_during_train:
        reads |= {(name, "ctc") for name in decoder_models(config) or (None,)}
    outputs: dict[str | None, set[str]] = {name: set() for name, _ in reads}
    for name, output in reads:
        outputs[name].add(output)
    networks = networks_of(model)
    requests = {}
    for name, names in outputs.items():
        branches = frozenset(_BRANCH_OF[output] for output in names & _BRANCH_OF.keys())
        requests[name] = replace(TRAIN, branches=branches, features=True if FEATURES in names else None)
    if isinstance(model, DistillationModel):
        model = model.using(train={str(name): request for name, request in requests.items()})
    elif isinstance(model, BaseModel):
        model = model.using(train=requests.get(None, replace(TRAIN, branches=frozenset())))
    for name, network in networks.items():
        if name is None or name in requests:
            _freeze_unread(network, requests[name].branches if name in requests else frozenset())
        elif not network.frozen:
            LOG.warning("Loss: no loss reads the sub-model %s, so it is not trained.", name)
            _stop(network.parameters())
    return model


def with_features(model: nn.Layer, outputs: Iterable[OutputRef]) -> nn.Layer:
    """Return a model that also returns those features of CTC heads that are among ``outputs``."""
    request = replace(TRAIN, features=True)
    names = [name for name, output in outputs if output == FEATURES]
    if isinstance(model, DistillationModel):
        return model.using(train={**model.train_requests, **{str(name): request for name in names}})
    return model.using(train=request) if names and isinstance(model, BaseModel) else model


def _freeze_unread(model: nn.Layer, wanted: Set[str]) -> None:
    head = getattr(model, "head", None)
    for branch in BRANCH_LAYERS.keys() - wanted:
        for layer in BRANCH_LAYERS[branch]:
            if hasattr(head, layer):
                _stop(getattr(head, layer).parameters())


def freeze_parts(model: nn.Layer, patterns: Sequence[str]) -> list[str]:
    """Freeze the parameters that match a pattern, keep their BatchNorms and dropout in eval mode; return the names.

    Args:
        model: its parameters have the names of ``state_dict``.
        patterns: shell patterns, such as ``backbone.*``, or ``Student.backbone.*`` in a distillation.

    Raises:
        ConfigError: a pattern matches nothing, or parts of this kind of model cannot be frozen.
    """
    networks = networks_of(model).values()
    if not all(isinstance(network, BaseModel) for network in networks):
        raise ConfigError(
            f"Global.freeze: {type(model).__name__} has no backbone, neck and head that could be frozen.",
            code="unsupported_key",
        )
    matched = match_patterns(model, patterns, "Global.freeze")
    _stop(parameter for name, parameter in named_weights(model) if name in matched)
    for network in networks:
        network.hold_in_eval(layers_held_in_eval(network))
    LOG.info("Global.freeze: %d parameters are frozen", len(matched))
    return list(matched)


def layers_held_in_eval(network: nn.Layer) -> list[nn.Layer]:
    """Return the BatchNorm, dropout and stochastic-depth layers that are frozen.

    A layer without parameters is frozen if all parameters of its parent are.
    """
    parents = {
        id(child): layer for layer in network.sublayers(include_self=True) for child in layer.children()
    }
    held = []
    for layer in network.sublayers():
        if not isinstance(layer, _SWITCHED) and not getattr(layer, "has_dropout", False):
            continue
        owner: Any = layer if layer.parameters() else parents.get(id(layer), layer)
        parameters = owner.parameters()
        if parameters and all(parameter.stop_gradient for parameter in parameters):
            held.append(layer)
    return held


def freeze_guided(model: nn.Layer, reads: Iterable[OutputRef] | None) -> None:
    """Log what ``use_guide`` means for the backbone of each trained network, and freeze a backbone without gradient.

    ``use_guide`` of the necks `svtr` and `lightsvtr` detaches the features that the CTC branch reads.

    Args:
        model: one network, or several.
        reads: the outputs that the losses read; None if they are not known.
    """
    for name, network in networks_of(model).items():
        backbone = getattr(network, "backbone", None)
        if backbone is None or getattr(network, "frozen", False):
            continue
        if not any(getattr(layer, "use_guide", False) for layer in network.sublayers()):
            continue
        who = f"{name}: " if name else ""
        read = None if reads is None else {output for of, output in reads if of == name}
        if all(parameter.stop_gradient for parameter in backbone.parameters()):
            LOG.info(
                "%sthe backbone is frozen, so only the heads are trained. With use_guide the CTC loss does not train "
                "the backbone, frozen or not.",
                who,
            )
        elif read and read <= _BEHIND_GUIDE:
            _stop(backbone.parameters())
            LOG.warning(
                "%sno loss trains the backbone: use_guide keeps the gradient of the CTC branch from it. Fix: train the "
                "second head too (MultiLoss, or a loss with dis_head: gtc), or set use_guide: false.",
                who,
            )


def says_what_it_reads(model: nn.Layer, reads: Any) -> bool:
    """Return True if it is known which parameters get a gradient.

    That needs a loss that declares its outputs, and heads of ours.
    """
    if reads is None or any(output == "backbone" for _, output in reads):
        return False
    heads = [getattr(network, "head", None) for network in networks_of(model).values()]
    return all(head is not None and understands_requests(head) for head in heads)


def freeze_untouched(model: nn.Layer, loss: Callable[..., Mapping[str, Any]], batch: Sequence[Any]) -> None:
    """Freeze the parameters that get no gradient from the loss of one batch in any process.

    This is for a loss that does not declare its outputs. Statistics that the trial changes are restored.

    Args:
        model: not yet wrapped; its gradients are cleared.
        loss: as the host calls it.
        batch: a batch of this process's loader.
    """
    named = [(name, p) for name, p in model.named_parameters() if not p.stop_gradient]
    with left_as_it_was(model):
        model.train()
        loss(model(images_of(batch), data=labels_of(batch)), batch)["loss"].backward()
    touched = paddle.to_tensor([int(p.grad is not None) for _, p in named])
    dist.all_reduce(touched, op=dist.ReduceOp.MAX)
    for _, parameter in named:
        parameter.clear_gradient(set_to_zero=False)
    untouched = {name: p for (name, p), used in zip(named, touched.numpy(), strict=True) if not used}
    _stop(untouched.values())
    if untouched:
        LOG.warning(
            "the loss gives no gradient to %d of %d parameters (%s): they are not trained",
            len(untouched),
            len(named),
            shortened(list(untouched), 3),
        )
