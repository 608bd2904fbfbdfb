"""MobileNetV3 (Howard et al., arXiv 1905.02244) for text lines, the backbone of the CRNN and SRN configs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import (
    Activation,
    ChannelGate,
    NormedConv,
    Stride,
    check_length,
    multiple_of,
)
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

DecayedConv = partial(NormedConv, norm_decay=None)
CHANNEL_STEP = 8  # channels are multiples of it
SCALES = (0.35, 0.5, 0.75, 1.0, 1.25)
GATE_SLOPE = 0.2  # of the hard sigmoid
RELU, SWISH = F.relu, F.hardswish
# kernel, expanded and output channels, squeeze-and-excitation, activation, which option gives the stride (None: 1)
Row = tuple[int, int, int, bool, Activation, int | None]
LARGE: tuple[Row, ...] = (
    (3, 16, 16, False, RELU, 0),
    (3, 64, 24, False, RELU, 1),
    (3, 72, 24, False, RELU, None),
    (5, 72, 40, True, RELU, 2),
    (5, 120, 40, True, RELU, None),
    (5, 120, 40, True, RELU, None),
    (3, 240, 80, False, SWISH, None),
    (3, 200, 80, False, SWISH, None),
    (3, 184, 80, False, SWISH, None),
    (3, 184, 80, False, SWISH, None),
    (3, 480, 112, True, SWISH, None),
    (3, 672, 112, True, SWISH, None),
    (5, 672, 160, True, SWISH, 3),
    (5, 960, 160, True, SWISH, None),
    (5, 960, 160, True, SWISH, None),
)
SMALL: tuple[Row, ...] = (
    (3, 16, 16, True, RELU, 0),
    (3, 72, 24, False, RELU, 1),
    (3, 88, 24, False, RELU, None),
    (5, 96, 40, True, SWISH, 2),
    (5, 240, 40, True, SWISH, None),
    (5, 240, 40, True, SWISH, None),
    (5, 120, 48, True, SWISH, None),
    (5, 144, 48, True, SWISH, None),
    (5, 288, 96, True, SWISH, 3),
    (5, 576, 96, True, SWISH, None),
    (5, 576, 96, True, SWISH, None),
)


class InvertedResidual(Recomputable):
    """Pointwise expansion, depthwise convolution, gate, pointwise projection."""

    def __init__(self, in_channels: int, row: tuple[int, int, int, bool, Activation], stride: Stride) -> None:
        super().__init__()
        kernel, hidden, out_channels, gated, act = row
        self.expand_conv = DecayedConv(in_channels, hidden, act=act)
        self.bottleneck_conv = DecayedConv(hidden, hidden, kernel, stride, groups=hidden, act=act)
        self.mid_se = ChannelGate(hidden, GATE_SLOPE) if gated else nn.Identity()
        self.linear_conv = DecayedConv(hidden, out_channels)
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        features = self.mid_se(self.bottleneck_conv(self.expand_conv(images)))
        features = self.linear_conv(features)
        return features + images if self.is_residual else features


@BACKBONES.register()
class MobileNetV3(nn.Layer):
    """Convolutional backbone; images of height 32 become W / 4 frames with the strides of the official configs.

    Args:
        in_channels: channels of the image.
        model_name: `"small"` or `"large"`.
        scale: factor of all channels: 0.35, 0.5, 0.75, 1.0 or 1.25.
        large_stride: four strides of the large network.
        small_stride: four strides of the small network.
        disable_se: True leaves out all squeeze-and-excitation.

    Raises:
        ConfigError: there is no such name or scale.
    """

    def __init__(
        self,
        in_channels: int = 3,
        model_name: str = "small",
        scale: float = 0.5,
        large_stride: Sequence[int] | None = None,
        small_stride: Sequence[int] | None = None,
        disable_se: bool = False,
    ) -> None:
        super().__init__()
        if model_name not in ("small", "large"):
            raise ConfigError(
                f"MobileNetV3.model_name is {model_name!r}, but must be 'small' or 'large'.", code="bad_value"
            )
        if scale not in SCALES:
            raise ConfigError(f"MobileNetV3.scale is {scale}, but must be one of {SCALES}.", code="bad_value")
        large = model_name == "large"
        strides = (large_stride or (1, 2, 2, 2)) if large else (small_stride or (2, 2, 2, 2))
        check_length(strides, 4, f"MobileNetV3.{model_name}_stride")

        def width(channels: int) -> int:
            return multiple_of(channels * scale, CHANNEL_STEP)

        channels = width(16)
        self.conv1 = DecayedConv(in_channels, channels, 3, 2, act=SWISH)
        blocks = []
        for kernel, hidden, outs, gated, act, option in LARGE if large else SMALL:
            row = (kernel, width(hidden), width(outs), gated and not disable_se, act)
            stride: Stride = 1 if option is None else (strides[option], 1)
            if large and option == 0:
                stride = strides[0]  # the one stride of both axes
            blocks.append(InvertedResidual(channels, row, stride))
            channels = width(outs)
        self.blocks = nn.Sequential(*blocks)
        self.out_channels = width(960 if large else 576)
        self.conv2 = DecayedConv(channels, self.out_channels, act=SWISH)

    def forward(self, images: Tensor) -> Tensor:
        """Images [B, in_channels, H, W] to features [B, out_channels, H', W']."""
        return F.max_pool2d(self.conv2(self.blocks(self.conv1(images))), 2, 2)
