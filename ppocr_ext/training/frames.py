"""How many frames a model's CTC output has, so that labels which do not fit are seen before training.

On a CPU, Paddle's CTC loss of such a label is 0, and so is its gradient: it trains nothing, in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import paddle

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError

_CTC_DECODERS = ("CTCLabelDecode", "DistillationCTCLabelDecode")
_RESIZING = ("RecResizeImg", "CTCRecResizeImg")


def image_shapes(config: Config, mode: str) -> list[tuple[int, int, int]]:
    """Shapes [3, H, W] of the images of ``Train`` or ``Eval``; empty where their widths vary."""
    scales = config.at(f"{mode}.sampler.scales", default=None)
    if scales:
        if config.at(f"{mode}.dataset.ds_width", default=False):
            return []
        across, down = config.at(f"{mode}.sampler.divided_factor", default=(8, 16))
        return [
            (3, int(s[1]) // down * down, int(s[0]) // across * across)
            for s in scales
            if not isinstance(s, int)
        ]
    for entry in config.at(f"{mode}.dataset.transforms", default=None) or ():
        name, options = next(iter(entry.items())) if isinstance(entry, Mapping) else (entry, None)
        shape = (options or {}).get("image_shape")
        if name in _RESIZING and shape is not None:
            if len(shape) != 3:
                raise ConfigError(
                    f"{mode}.dataset.transforms.{name}.image_shape: {list(shape)} is not [channels, height, width], "
                    f"such as [3, 48, 320]."
                )
            return [(int(shape[0]), int(shape[1]), int(shape[2]))]
    return []


def ctc_frames(model: Any, config: Config, mode: str) -> int | None:
    """T of the CTC output for the images of ``mode``: the least of the sub-models that are decoded.

    None where it cannot be told: another decoder than CTC, images of several widths, or a model whose
    output is not [B, T, C].
    """
    if config.at("PostProcess.name", default=None) not in _CTC_DECODERS:
        return None
    frames = [_frames(model, shape) for shape in image_shapes(config, mode)]
    known = [count for count in frames if count is not None]
    return min(known) if known and len(known) == len(frames) else None


def _frames(model: Any, shape: tuple[int, int, int]) -> int | None:
    training = model.training
    model.eval()
    try:
        with paddle.no_grad():
            outputs = model(paddle.zeros([1, *shape]))
    finally:
        if training:
            model.train()
    counts = [_length(output) for output in _ctc_outputs(outputs)]
    return None if not counts or None in counts else min(count for count in counts if count is not None)


def _ctc_outputs(outputs: Any) -> list[Any]:
    """The CTC output, or that of each sub-model."""
    if not isinstance(outputs, Mapping):
        return [outputs]
    for key in ("ctc", "head_out"):
        if key in outputs:
            return _ctc_outputs(outputs[key])
    return [found for value in outputs.values() for found in _ctc_outputs(value)]


def _length(output: Any) -> int | None:
    if isinstance(output, tuple | list):  # return_feats: (features, probabilities)
        output = output[-1] if output else None
    shape = list(getattr(output, "shape", []))
    return int(shape[1]) if len(shape) == 3 else None
