"""MobileNetV1Enhance, the backbone of PP-OCRv2 and v3 mobile: depthwise separable convolutions (arXiv 1704.04861)."""

from __future__ import annotations

from collections.abc import Sequence

import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import KaimingNormal
from paddle.regularizer import L2Decay

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import ChannelGate, Stride
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
LAST = (1024, 1024, 5, True)


class ConvBatchNorm(nn.Layer):
    """Convolution without bias, BatchNorm, Hardswish, named as in PP-OCRv3's checkpoints."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: Stride, groups: int = 1
    ) -> None:
        super().__init__()
        self._conv = nn.Conv2D(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            kernel_size // 2,
            groups=groups,
            weight_attr=ParamAttr(initializer=KaimingNormal()),
            bias_attr=False,
        )
        undecayed = ParamAttr(regularizer=L2Decay(0.0))
        self._batch_norm = nn.BatchNorm2D(out_channels, weight_attr=undecayed, bias_attr=undecayed)

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        return F.hardswish(self._batch_norm(self._conv(images)))


class SeparableConv(Recomputable):
    """Depthwise convolution, gate, pointwise convolution."""

    def __init__(
        self, in_channels: int, out_channels: int, stride: Stride, kernel_size: int, gated: bool
    ) -> None:
        super().__init__()
        self._depthwise_conv = ConvBatchNorm(in_channels, in_channels, kernel_size, stride, in_channels)
        self._se = ChannelGate(in_channels) if gated else nn.Identity()
        self._pointwise_conv = ConvBatchNorm(in_channels, out_channels, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self._pointwise_conv(self._se(self._depthwise_conv(images)))


@BACKBONES.register()
class MobileNetV1Enhance(nn.Layer):
    """Convolutional backbone of PP-OCRv2 (32 x W become W / 4 frames) and v3 (48 x W become W / 8 frames).

    Args:
        in_channels: channels of the image.
        scale: factor of all channels.
        last_conv_stride: stride of the last block.
        last_pool_type: `"max"` or `"avg"`.
        last_pool_kernel_size: window of an average pooling; the maximum is taken over 2 x 2.

    Raises:
        ConfigError: there is no such pooling.
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
            )
        last_in, last_out, last_kernel, last_gated = LAST
        last_stride: Stride = _pair(last_conv_stride)
        blocks = [*BLOCKS, (last_in, last_out, last_stride, last_kernel, last_gated)]
        self.conv1 = ConvBatchNorm(in_channels, int(32 * scale), 3, 2)
        self.block_list = nn.Sequential(
            *[
                SeparableConv(int(ins * scale), int(outs * scale), stride, kernel, gated)
                for ins, outs, stride, kernel, gated in blocks
            ]
        )
        window = list(last_pool_kernel_size)
        self.pool = nn.AvgPool2D(window, window) if last_pool_type == "avg" else nn.MaxPool2D(2, 2)
        self.out_channels = int(last_out * scale)

    def forward(self, images: Tensor) -> Tensor:
        """Images [B, in_channels, H, W] to features [B, out_channels, H', W']."""
        return self.pool(self.block_list(self.conv1(images)))


def _pair(stride: int | Sequence[int]) -> Stride:
    if isinstance(stride, int):
        return stride
    height, width = stride
    return height, width
