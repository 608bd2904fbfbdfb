"""MobileNets: v1 of PP-OCRv2 and v3 mobile (arXiv 1704.04861), v3 of the CRNN and SRN configs (arXiv 1905.02244)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import (
    Activation,
    ChannelGate,
    DecayedConv,
    NormedConv,
    Stride,
    check_length,
    multiple_of,
)
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

# input and output channels, stride, kernel, squeeze-and-excitation; the last stride is an option
BLOCKS: tuple[tuple[int, int, Stride, int, bool], ...] = (
    (32, 64, 1, 3, False),
    (64, 128, 1, 3, False),
    (128, 128, 1, 3, False),
    (128, 256, (2, 1), 3, False),
    (256, 256, 1, 3, False),
    (256, 512, (2, 1), 3, False),
    *[(512, 512, 1, 5, False)] * 5,
    (512, 1024, (2, 1), 5, True),
)


class ConvBatchNorm(NormedConv):
    """A convolution with the names of PP-OCRv3's checkpoints."""

    names = ("_conv", "_batch_norm")


class SeparableConv(Recomputable):
    """Apply a depthwise convolution, a gate and a pointwise convolution."""

    def __init__(
        self, in_channels: int, out_channels: int, stride: Stride, kernel_size: int, gated: bool
    ) -> None:
        super().__init__()
        self._depthwise_conv = ConvBatchNorm(
            in_channels, in_channels, kernel_size, stride, in_channels, F.hardswish
        )
        self._se = ChannelGate(in_channels) if gated else nn.Identity()
        self._pointwise_conv = ConvBatchNorm(in_channels, out_channels, act=F.hardswish)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self._pointwise_conv(self._se(self._depthwise_conv(images)))


@BACKBONES.register()
class MobileNetV1Enhance(nn.Layer):
    """Convolutional backbone of PP-OCRv2 (32 x W become W / 4 frames) and v3 (48 x W become W / 8 frames).

    Args:
        in_channels: channels of the image.
        scale: factor of all channels.
        last_conv_stride: stride of the last block.
        last_pool_type: `"max"` or `"avg"`.
        last_pool_kernel_size: window of an average pooling; that of a maximum is 2 x 2.

    Raises:
        ConfigError: the pooling is unknown.
    """

    def __init__(
        self,
        in_channels: int = 3,
        scale: float = 0.5,
        last_conv_stride: int | Sequence[int] = 1,
        last_pool_type: str = "max",
        last_pool_kernel_size: Sequence[int] = (3, 2),
    ) -> None:
        super().__init__()
        if last_pool_type not in ("max", "avg"):
            raise ConfigError(
                f"MobileNetV1Enhance.last_pool_type is {last_pool_type!r}, but must be 'max' or 'avg'.",
                code="bad_value",
                key=("last_pool_type",),
            )
        stride: Stride = (
            last_conv_stride
            if isinstance(last_conv_stride, int)
            else (last_conv_stride[0], last_conv_stride[1])
        )
        blocks = [*BLOCKS, (1024, 1024, stride, 5, True)]
        self.conv1 = ConvBatchNorm(in_channels, int(32 * scale), 3, 2, act=F.hardswish)
        self.block_list = nn.Sequential(
            *[
                SeparableConv(int(ins * scale), int(outs * scale), stride, kernel, gated)
                for ins, outs, stride, kernel, gated in blocks
            ]
        )
        window = list(last_pool_kernel_size)
        self.pool = nn.AvgPool2D(window, window) if last_pool_type == "avg" else nn.MaxPool2D(2, 2)
        self.out_channels = int(1024 * scale)

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to features [B, out_channels, H', W']."""
        return self.pool(self.block_list(self.conv1(images)))


CHANNEL_STEP = 8  # channels are multiples of it
SCALES = (0.35, 0.5, 0.75, 1.0, 1.25)
GATE = partial(F.hardsigmoid, slope=0.2)
RELU = F.relu
SWISH = F.hardswish
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
    """Apply a pointwise expansion, a depthwise convolution, a gate and a pointwise projection."""

    def __init__(self, in_channels: int, row: tuple[int, int, int, bool, Activation], stride: Stride) -> None:
        super().__init__()
        kernel, hidden, out_channels, gated, act = row
        self.expand_conv = DecayedConv(in_channels, hidden, act=act)
        self.bottleneck_conv = DecayedConv(hidden, hidden, kernel, stride, groups=hidden, act=act)
        self.mid_se = ChannelGate(hidden, GATE) if gated else nn.Identity()
        self.linear_conv = DecayedConv(hidden, out_channels)
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
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
        disable_se: True removes all squeeze-and-excitation.

    Raises:
        ConfigError: the name or the scale is unknown.
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
                f"MobileNetV3.model_name is {model_name!r}, but must be 'small' or 'large'.",
                code="bad_value",
                key=("model_name",),
            )
        if scale not in SCALES:
            raise ConfigError(
                f"MobileNetV3.scale is {scale}, but must be one of {SCALES}.",
                code="bad_value",
                key=("scale",),
            )
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
        """Map images [B, in_channels, H, W] to features [B, out_channels, H', W']."""
        return F.max_pool2d(self.conv2(self.blocks(self.conv1(images))), 2, 2)
