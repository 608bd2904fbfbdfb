"""Mixed precision by PaddleOCR's keys: ``use_amp``, ``amp_level``, ``amp_dtype``, ``scale_loss``, …"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import paddle
from paddle import nn

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import LOG

_HALF = (paddle.float16, paddle.bfloat16)
_CUDA_FLAGS = {  # PaddleOCR's
    "FLAGS_cudnn_batchnorm_spatial_persistent": 1,
    "FLAGS_gemm_use_half_precision_compute_type": 0,
}


@dataclass
class Amp:
    """Scaler and settings that the host's loop takes; ``scaler`` is None without mixed precision.

    Attributes:
        adapts: whether the scale of the loss does (``Global.use_dynamic_loss_scaling``).
    """

    scaler: Any = None
    adapts: bool = False
    level: str = "O2"
    dtype: str = "float16"
    black_list: list[str] = field(default_factory=list)
    white_list: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """Return the plain state of the scaler for a checkpoint; empty without a scaler."""
        if self.scaler is None:
            return {}
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in self.scaler.state_dict().items()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the scale of a checkpoint, if it was dynamic and still is.

        A fixed scale is what the config now says.
        """
        if self.scaler is not None and self.adapts and state.get("use_dynamic_loss_scaling"):
            self.scaler.load_state_dict(state)


def build_amp(config: Config) -> Amp:
    """Return the settings of ``config``; on a CPU, where Paddle has no mixed precision, warn and use no scaler.

    Raises:
        ConfigError: an unknown level or type, a scale that is no positive number, or lists of operators
            that cannot be used.
    """
    amp = Amp(
        level=config.settings.amp_level,
        dtype=config.settings.amp_dtype,
        black_list=list(config.settings.amp_custom_black_list or ()),
        white_list=list(config.settings.amp_custom_white_list or ()),
    )
    both = sorted(set(amp.black_list) & set(amp.white_list))
    if both:
        raise ConfigError(
            f"Global.amp_custom_black_list and Global.amp_custom_white_list both name {', '.join(both)}. Leave each "
            f"operator in one of them.",
            code="conflicting_keys",
        )
    scale = config.settings.scale_loss
    if not config.settings.use_amp:
        return amp
    if not works_here():
        LOG.warning("Global.use_amp: Paddle's mixed precision does nothing on a CPU; training is in float32.")
        return amp
    if paddle.is_compiled_with_cuda():
        paddle.set_flags(_CUDA_FLAGS)
    amp.adapts = config.settings.use_dynamic_loss_scaling
    amp.scaler = paddle.amp.GradScaler(init_loss_scaling=float(scale), use_dynamic_loss_scaling=amp.adapts)
    return amp


def works_here() -> bool:
    """Return True if Paddle has mixed precision on the device in use."""
    return bool(paddle.get_device() != "cpu")


def decorate(amp: Amp, model: nn.Layer, optimizer: Any) -> tuple[Any, Any]:
    """Return model and optimizer prepared for ``amp``: cast at level O2, with master weights; outputs are float32.

    Frozen sub-models are cast as well. Names of parameters stay as they are.
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

    Losses would add up in 16 bits, and decoders would read bfloat16 as whole numbers.
    """

    def cast(value: Any) -> Any:
        half = isinstance(value, paddle.Tensor) and value.dtype in _HALF
        return value.astype("float32") if half else value

    return paddle.utils.map_structure(cast, outputs)


def untrained(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the values without master weights; call it before :func:`decorate` casts them."""
    return {name: value.numpy().copy() for name, value in state.items() if value.stop_gradient}


def full_precision(
    state: Mapping[str, Any], optimizer: Any, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return ``state`` in float32 for a checkpoint, with the optimizer's master weights where it has them.

    PaddleOCR saves level O2 in 16 bits; bfloat16 then comes back from the file as whole numbers.

    Args:
        state: of the model.
        optimizer: with masters, or without.
        kept: what :func:`untrained` gave.
    """
    masters = getattr(optimizer, "_master_weights", None) or {}
    exact = kept or {}
    full = {}
    for name, value in state.items():
        if isinstance(value, paddle.Tensor) and value.dtype in _HALF:
            if value.name in masters:
                value = masters[value.name]
            elif name in exact:
                value = paddle.to_tensor(exact[name], place=paddle.CPUPlace())
            value = value.astype("float32")
        full[name] = value
    return full
