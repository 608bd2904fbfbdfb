"""Mixed precision by PaddleOCR's keys: ``use_amp``, ``amp_level``, ``amp_dtype``, ``scale_loss``, …"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import paddle

from ppocr_ext.config import Config

_LOG = logging.getLogger("ppocr_ext")


@dataclass
class Amp:
    """Scaler and settings that the host's loop takes; ``scaler`` is None without AMP."""

    scaler: Any = None
    level: str = "O2"
    dtype: str = "float16"
    black_list: list[str] = field(default_factory=list)
    white_list: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """Plain state of the scaler for a checkpoint; empty without AMP."""
        if self.scaler is None:
            return {}
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in self.scaler.state_dict().items()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on with the scale that a checkpoint kept."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


def build_amp(config: Config) -> Amp:
    """The AMP settings of ``config``; Paddle's AMP does nothing on a CPU, which is said once."""
    use = bool(config.at("Global.use_amp", default=False))
    amp = Amp(
        level=str(config.at("Global.amp_level", default="O2")),
        dtype=str(config.at("Global.amp_dtype", default="float16")),
        black_list=list(config.at("Global.amp_custom_black_list", default=()) or ()),
        white_list=list(config.at("Global.amp_custom_white_list", default=()) or ()),
    )
    if not use:
        return amp
    if paddle.get_device() == "cpu":
        _LOG.warning(
            "Global.use_amp: Paddle's mixed precision does nothing on a CPU; training is in float32."
        )
    amp.scaler = paddle.amp.GradScaler(
        init_loss_scaling=float(config.at("Global.scale_loss", default=1.0)),
        use_dynamic_loss_scaling=bool(config.at("Global.use_dynamic_loss_scaling", default=False)),
    )
    return amp


def decorate(amp: Amp, model: Any, optimizer: Any) -> tuple[Any, Any]:
    """Model and optimizer cast for level O2, with master weights; unchanged otherwise."""
    if amp.scaler is None or amp.level != "O2":
        return model, optimizer
    return paddle.amp.decorate(
        models=model, optimizers=optimizer, level="O2", master_weight=True, dtype=amp.dtype
    )
