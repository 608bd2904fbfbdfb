"""Prepare a model for training: compiled (``Global.to_static``), with less memory, and in several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import Tensor, nn

from ppocr_ext.config import Config
from ppocr_ext.errors import ModelError, PPOCRExtError
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import BaseModel, DistillationModel, HeadRequest, networks_of
from ppocr_ext.modeling.recompute import recompute_blocks


def data_parallel(model: nn.Layer, config: Config) -> nn.Layer:
    """Return ``model`` with its gradients averaged over the processes; names in its ``state_dict`` do not change.

    Of a DistillationModel each trained sub-model is averaged by itself; frozen ones are left alone.
    """
    unused = config.settings.find_unused_parameters

    def wrapped(layer: Any) -> Any:
        return paddle.DataParallel(layer, find_unused_parameters=unused)

    if not isinstance(model, DistillationModel):
        return wrapped(model)
    trained = {
        name: wrapped(network)
        for name, network in model.models.items()
        if any(not parameter.stop_gradient for parameter in network.parameters())
    }
    return model.using(callers=trained)


def recompute_activations(model: nn.Layer, config: Config) -> None:
    """Let the blocks of all trained networks compute their activations again, if ``Global.recompute`` is true.

    Raises:
        ModelError: a trained network has no block that can.
    """
    if not config.settings.recompute:
        return
    for name, network in networks_of(model).items():
        is_trained = any(not parameter.stop_gradient for parameter in network.parameters())
        if is_trained and not recompute_blocks(network):
            raise ModelError(
                f"Global.recompute: {name or type(model).__name__} has no block that can be computed again (see "
                f"docs/training.md). Fix: remove Global.recompute.",
                code="unsupported_model",
            )


def share_batch_norm(model: nn.Layer, config: Config) -> nn.Layer:
    """Return ``model`` with BatchNorm over all processes (``Global.use_sync_bn``), except in frozen sub-models.

    Names in its ``state_dict`` stay as they are. With one process, or on a device for which Paddle has no such
    operator, the model does not change, and the log notes it.
    """
    if not config.settings.use_sync_bn:
        return model
    device = paddle.get_device().partition(":")[0]
    if dist.get_world_size() == 1:
        LOG.info("Global.use_sync_bn: one process has nothing to share; BatchNorm is as without it.")
        return model
    if device not in ("gpu", "xpu"):
        LOG.warning(
            "Global.use_sync_bn: Paddle has no BatchNorm over several processes on this device (%s): each process "
            "normalises by its own batch.",
            device,
        )
        return model
    if not isinstance(model, DistillationModel):
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for name, sub_model in model.models.items():
        if name not in model.frozen:
            nn.SyncBatchNorm.convert_sync_batchnorm(sub_model)
    return model


class _Twice(nn.Layer):
    """Gives one tensor under two names, as models that return all features do, and what comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        frames = self.first(x)
        return {"scores": self.second(frames), "frames": frames, "again": frames}


def gradients_are_right() -> bool:
    """Return True if an output with two names gets its gradient once in a compiled network; not so in Paddle 2.6."""
    layer = _Twice()
    paddle.jit.to_static(layer, full_graph=True)(paddle.ones([1, 2]))["scores"].sum().backward()
    return bool(paddle.allclose(layer.first.bias.grad, layer.second.weight.sum(axis=1)))


class _CompiledForward:
    """``forward`` of a model: compiled where it trains or teaches, as it is where it is evaluated.

    A graph is made for each shape of a batch when it is first seen. Which branches it computes is fixed
    then: what the head is asked for must not change later.
    """

    def __init__(self, name: str, model: BaseModel) -> None:
        self._name = name
        self._model = model
        self._dynamic = model.forward
        self._static = paddle.jit.to_static(model.forward, full_graph=True)
        self._shapes: set[tuple[int, ...]] = set()

    def __call__(self, x: Any, data: Sequence[Any] | None = None, request: HeadRequest | None = None) -> Any:
        if not self._model.training and not (request and request.for_training):  # a frozen one that teaches
            return self._dynamic(x, data, request)
        shape = tuple(x.shape)
        if shape in self._shapes:
            return self._static(x, data, request)
        LOG.info("compiling %s for images %s", self._name, list(shape))
        try:
            output = self._static(x, data, request)
        except PPOCRExtError as fault:  # ours, behind lines of Paddle's about transformed code
            full_name = f"{type(fault).__module__}.{type(fault).__name__}"
            raise type(fault)(_last_line(fault).removeprefix(f"{full_name}: "), code=fault.code) from fault
        except Exception as fault:  # whatever Paddle's compiler makes of a part that it cannot compile
            if isinstance(fault, MemoryError) or "ResourceExhausted" in str(fault):
                raise
            raise ModelError(
                f"Global.to_static: {self._name} cannot be compiled ({type(fault).__name__}: {_last_line(fault)}). "
                f"Set -o Global.to_static=false.",
                code="not_compilable",
            ) from fault
        self._shapes.add(shape)
        return output


def compile_model(model: nn.Layer, config: Config) -> nn.Layer:
    """Return ``model``, compiled if ``Global.to_static`` is true; each sub-model is compiled by itself.

    Names in its ``state_dict`` stay as they are. PaddleOCR's ``Global.d2s_train_image_shape`` is not needed.

    Raises:
        ModelError: this Paddle cannot train what it compiles, the model is neither a BaseModel nor a
            DistillationModel, or (at the first step) cannot be compiled.
    """
    if not config.settings.to_static:
        return model
    if not gradients_are_right():
        raise ModelError(
            f"Global.to_static: Paddle {paddle.__version__} computes wrong gradients of networks that it compiles. "
            f"Install Paddle 3, or set -o Global.to_static=false.",
            code="unsupported_paddle",
        )
    if isinstance(model, DistillationModel):
        for name, sub_model in model.models.items():
            object.__setattr__(sub_model, "forward", _CompiledForward(name, sub_model))
    elif isinstance(model, BaseModel):
        object.__setattr__(model, "forward", _CompiledForward("the model", model))
    else:
        raise ModelError(
            f"Global.to_static: {type(model).__name__} cannot be compiled, only models that Architecture builds of "
            f"backbone, neck and head. Set -o Global.to_static=false.",
            code="unsupported_model",
        )
    if config.at("Train.dataset.ds_width", default=False):
        LOG.warning(
            "Global.to_static: with Train.dataset.ds_width images have many widths, and each shape of a batch is "
            "compiled; that may take longer than it saves."
        )
    return model


def _last_line(fault: Exception) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
