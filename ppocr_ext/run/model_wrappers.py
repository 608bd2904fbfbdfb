"""Prepare a model for training: mixed precision, compilation, less memory, several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import Tensor, nn

from ppocr_ext.checkpoint.optimizer_state import HALF
from ppocr_ext.config.global_keys import Settings
from ppocr_ext.errors import ConfigError, ModelError, PPOCRExtError
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import BaseModel, DistillationModel, HeadRequest, networks_of
from ppocr_ext.modeling.recompute import recompute_blocks
from ppocr_ext.run.inference_models import inference_models

_CUDA_FLAGS = {  # PaddleOCR sets these two for mixed precision
    "FLAGS_cudnn_batchnorm_spatial_persistent": 1,
    "FLAGS_gemm_use_half_precision_compute_type": 0,
}


@dataclass
class Amp:
    """Mixed precision by PaddleOCR's keys (``use_amp``, ``amp_level``, …), as the host's loop takes it.

    Attributes:
        scaler: Paddle's; None without mixed precision.
    """

    scaler: Any = None
    level: str = "O2"
    dtype: str = "float16"
    black_list: list[str] = field(default_factory=list)
    white_list: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """Return the state of the scaler for a checkpoint in plain values; empty without a scaler."""
        if self.scaler is None:
            return {}
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in self.scaler.state_dict().items()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the scale of a checkpoint if it was dynamic and still is; a fixed scale comes from the config."""
        if all(each.get("use_dynamic_loss_scaling") for each in (self.state(), state)):
            self.scaler.load_state_dict(state)


def build_amp(settings: Settings) -> Amp:
    """Return what the settings say; on a CPU, where Paddle has no mixed precision, warn and use no scaler.

    Raises:
        ConfigError: both lists of operators name the same one.
    """
    amp = Amp(
        level=settings.amp_level,
        dtype=settings.amp_dtype,
        black_list=list(settings.amp_custom_black_list or ()),
        white_list=list(settings.amp_custom_white_list or ()),
    )
    both = sorted(set(amp.black_list) & set(amp.white_list))
    if both:
        raise ConfigError(
            f"Global.amp_custom_black_list and Global.amp_custom_white_list both name {', '.join(both)}. Leave each "
            f"operator in one of them.",
            code="conflicting_keys",
        )
    if not settings.use_amp:
        return amp
    if not works_here():
        LOG.warning("Global.use_amp: Paddle's mixed precision does nothing on a CPU; training is in float32.")
        return amp
    if paddle.is_compiled_with_cuda():
        paddle.set_flags(_CUDA_FLAGS)
    amp.scaler = paddle.amp.GradScaler(
        init_loss_scaling=float(settings.scale_loss),
        use_dynamic_loss_scaling=settings.use_dynamic_loss_scaling,
    )
    return amp


def works_here() -> bool:
    """Return True if Paddle has mixed precision on the device in use."""
    return bool(paddle.get_device() != "cpu")


def decorate(amp: Amp, model: nn.Layer, optimizer: Any) -> tuple[Any, Any]:
    """Return model and optimizer for ``amp``: cast at level O2, with master weights; outputs are float32.

    Frozen sub-models are cast too. Names of parameters do not change.
    """
    if amp.scaler is None:
        return model, optimizer
    if amp.level == "O2":
        model, optimizer = paddle.amp.decorate(
            models=model, optimizers=optimizer, level="O2", master_weight=True, dtype=amp.dtype
        )
    model.register_forward_post_hook(lambda layer, inputs, outputs: in_float32(outputs))
    return model, optimizer


def in_float32(outputs: Any) -> Any:
    """Return ``outputs`` with 16-bit floats as float32, also in tuples, which PaddleOCR's loop skips.

    Otherwise losses would add up in 16 bits, and decoders would read bfloat16 as integers.
    """

    def cast(value: Any) -> Any:
        half = isinstance(value, paddle.Tensor) and value.dtype in HALF
        return value.astype("float32") if half else value

    return paddle.utils.map_structure(cast, outputs)


def without_wrapper(model: nn.Layer) -> nn.Layer:
    """Return a model without the wrapper of :func:`data_parallel`."""
    return getattr(model, "_layers", model)


def data_parallel(model: nn.Layer, find_unused_parameters: bool) -> nn.Layer:
    """Return ``model`` with its gradients averaged over the processes; names in its ``state_dict`` do not change.

    In a DistillationModel, each trained sub-model is wrapped separately, and frozen ones are not.
    """

    def wrapped(layer: Any) -> Any:
        return paddle.DataParallel(layer, find_unused_parameters=find_unused_parameters)

    if not isinstance(model, DistillationModel):
        return wrapped(model)
    trained = {
        name: wrapped(network)
        for name, network in model.models.items()
        if any(not parameter.stop_gradient for parameter in network.parameters())
    }
    return model.using(callers=trained)


def recompute_activations(model: nn.Layer) -> None:
    """Make the blocks of trained networks compute their activations again (``Global.recompute``), to save memory.

    Raises:
        ModelError: a trained network has no such block.
    """
    for name, network in networks_of(model).items():
        is_trained = any(not parameter.stop_gradient for parameter in network.parameters())
        if is_trained and not recompute_blocks(network):
            raise ModelError(
                f"Global.recompute: {name or type(model).__name__} has no block that can be computed again (see "
                f"docs/training.md). Fix: remove Global.recompute.",
                code="unsupported_model",
            )


def share_batch_norm(model: nn.Layer) -> nn.Layer:
    """Return ``model`` with BatchNorm over all processes (``Global.use_sync_bn``), except in frozen sub-models.

    Names in its ``state_dict`` do not change. With one process, or on a device for which Paddle lacks the operator, the
    model does not change, and the log says so.
    """
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
    """Return one tensor under two names, as models that return all features do, and a result of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.second = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        frames = self.first(x)
        return {"scores": self.second(frames), "frames": frames, "again": frames}


def gradients_are_right() -> bool:
    """Return True if an output with two names gets its gradient once in a compiled network; Paddle 2.6 fails here."""
    layer = _Twice()
    paddle.jit.to_static(layer, full_graph=True)(paddle.ones([1, 2]))["scores"].sum().backward()
    return bool(paddle.allclose(layer.first.bias.grad, layer.second.weight.sum(axis=1)))


class _CompiledForward:
    """The ``forward`` of a model, which is compiled when it trains or teaches, and unchanged when it is evaluated.

    A graph is compiled for each new shape of a batch. It computes the branches of the first request, so requests must
    not change later.
    """

    def __init__(self, name: str, model: BaseModel) -> None:
        self._name = name
        self._model = model
        self._dynamic = model.forward
        self._static = paddle.jit.to_static(model.forward, full_graph=True)
        self._shapes: set[tuple[int, ...]] = set()

    def __call__(self, x: Any, data: Sequence[Any] | None = None, request: HeadRequest | None = None) -> Any:
        # A teacher is in eval mode too, but its request is for training.
        if not self._model.training and not (request and request.for_training):
            return self._dynamic(x, data, request)
        shape = tuple(x.shape)
        if shape in self._shapes:
            return self._static(x, data, request)
        LOG.info("compiling %s for images %s", self._name, list(shape))
        try:
            output = self._static(x, data, request)
        except PPOCRExtError as fault:  # Paddle puts lines about transformed code before our message
            full_name = f"{type(fault).__module__}.{type(fault).__name__}"
            raise type(fault)(_last_line(fault).removeprefix(f"{full_name}: "), code=fault.code) from fault
        except Exception as fault:  # Paddle's compiler may raise anything
            if isinstance(fault, MemoryError) or "ResourceExhausted" in str(fault):
                raise
            raise ModelError(
                f"Global.to_static: {self._name} cannot be compiled ({type(fault).__name__}: {_last_line(fault)}). "
                f"Set -o Global.to_static=false.",
                code="not_compilable",
            ) from fault
        self._shapes.add(shape)
        return output


def compile_model(model: nn.Layer) -> nn.Layer:
    """Compile ``model`` (``Global.to_static``), each sub-model separately, and return it.

    Names in its ``state_dict`` do not change. PaddleOCR's ``Global.d2s_train_image_shape`` is not needed.

    Raises:
        ModelError: this Paddle computes wrong gradients of compiled networks, the model is neither a BaseModel nor a
            DistillationModel, or (at the first step) it cannot be compiled.
    """
    if not gradients_are_right():
        raise ModelError(
            f"Global.to_static: Paddle {paddle.__version__} computes wrong gradients of networks that it compiles. "
            f"Install Paddle 3, or set -o Global.to_static=false.",
            code="unsupported_paddle",
        )
    if isinstance(model, DistillationModel):
        inference = inference_models(model)
        for name, sub_model in ((name, each) for name, each in model.models.items() if name not in inference):
            object.__setattr__(sub_model, "forward", _CompiledForward(name, sub_model))
    elif isinstance(model, BaseModel):
        object.__setattr__(model, "forward", _CompiledForward("the model", model))
    else:
        raise ModelError(
            f"Global.to_static: {type(model).__name__} cannot be compiled, only models that Architecture builds of "
            f"backbone, neck and head. Set -o Global.to_static=false.",
            code="unsupported_model",
        )
    return model


def _last_line(fault: Exception) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
