"""Train a model in several processes: average gradients, share BatchNorm, freeze what gets no gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import nn

from ppocr_ext.config import Config
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.head_request import understands_requests

_LOG = logging.getLogger("ppocr_ext")


def data_parallel(model: Any, config: Config) -> Any:
    """Return ``model`` with its gradients averaged over the processes; names in its ``state_dict`` do not change.

    Of a DistillationModel each trained sub-model is averaged by itself; frozen ones are left alone.
    """
    unused = bool(config.at("Global.find_unused_parameters", default=False))

    def wrapped(layer: Any) -> Any:
        return paddle.DataParallel(layer, find_unused_parameters=unused)

    if not isinstance(model, DistillationModel):
        return wrapped(model)
    for name, sub_model in model.models.items():
        if any(not parameter.stop_gradient for parameter in sub_model.parameters()):
            model.set_caller(name, wrapped(sub_model))
    return model


def says_what_it_reads(model: Any, reads: Any) -> bool:
    """Return True if it is known what gets a gradient: the loss names what it reads, and the heads are ours."""
    if reads is None or any(output == "backbone" for _, output in reads):
        return False
    heads = [getattr(m, "head", None) for m in getattr(model, "model_list", [model])]
    return all(head is not None and understands_requests(head) for head in heads)


def freeze_untouched(model: Any, loss: Callable[..., Mapping[str, Any]], batch: Sequence[Any]) -> list[str]:
    """Stop training the parameters that the loss of one batch gives no gradient, in any process.

    A data-parallel reducer waits for the gradient of every parameter. A loss that does not say what it reads
    is therefore tried once. Statistics that the trial changes are put back.

    Args:
        model: not yet wrapped; its gradients are cleared.
        loss: as the host calls it.
        batch: one of this process's batches, as the loader gives it.

    Returns:
        Names of the parameters that are no longer trained.
    """
    named = [(name, p) for name, p in model.named_parameters() if not p.stop_gradient]
    # BatchNorm's statistics are parameters to Paddle, and no buffers
    statistics = [p for p in model.parameters() if p.stop_gradient] + list(model.buffers())
    before = [tensor.clone() for tensor in statistics]
    model.train()
    loss(model(batch[0], data=batch[1:]), batch)["loss"].backward()
    touched = paddle.to_tensor([int(p.grad is not None) for _, p in named])
    dist.all_reduce(touched, op=dist.ReduceOp.MAX)
    untouched = []
    for (name, parameter), used in zip(named, touched.numpy(), strict=True):
        parameter.clear_gradient(set_to_zero=False)
        if not used:
            parameter.stop_gradient = True
            untouched.append(name)
    for tensor, value in zip(statistics, before, strict=True):
        tensor.set_value(value)
    if untouched:
        _LOG.warning(
            "the loss gives no gradient to %d of %d parameters (%s%s): they are not trained",
            len(untouched),
            len(named),
            ", ".join(untouched[:3]),
            ", …" if len(untouched) > 3 else "",
        )
    return untouched


def share_batch_norm(model: Any, config: Config) -> Any:
    """Return ``model`` with BatchNorm over all processes (``Global.use_sync_bn``), except in frozen sub-models.

    Names in its ``state_dict`` stay as they are. Where there is one process, or a device whose Paddle has no
    such operator, the model is as it was, which is said.
    """
    if not config.at("Global.use_sync_bn", default=False):
        return model
    device = paddle.get_device().partition(":")[0]
    if dist.get_world_size() == 1:
        _LOG.info("Global.use_sync_bn: one process has nothing to share; BatchNorm is as without it.")
        return model
    if device not in ("gpu", "xpu"):
        _LOG.warning(
            "Global.use_sync_bn: Paddle has no BatchNorm over several processes on this device (%s): each process "
            "normalises by its own batch.",
            device,
        )
        return model
    frozen = model.frozen if isinstance(model, DistillationModel) else frozenset()
    if not isinstance(model, DistillationModel):
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for name, sub_model in model.models.items():
        if name not in frozen:
            nn.SyncBatchNorm.convert_sync_batchnorm(sub_model)
    return model
