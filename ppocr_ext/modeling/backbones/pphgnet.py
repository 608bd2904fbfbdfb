"""PPHGNet, the backbones of PP-OCRv4 and v5 server, whose blocks concatenate the outputs of all their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.base.parts import TRAIN_FRAMES
from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import (
    Activation,
    FrameBackbone,
    NormedConv,
    Stride,
)
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

STEM = (64, 64, 128)
# input, hidden and output channels, blocks, stride
SMALL_STAGES: tuple[tuple[int, int, int, int, Stride], ...] = (
    (128, 128, 256, 1, (2, 1)),
    (256, 160, 512, 1, (1, 2)),
    (512, 192, 768, 2, (2, 1)),
    (768, 224, 1024, 1, (2, 1)),
)


class ChannelAttention(nn.Layer):
    """Multiply each channel by a sigmoid gate, computed from the means of all channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2D(dim, dim, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, dim, H, W] to the same shape."""
        return images * F.sigmoid(self.conv(F.adaptive_avg_pool2d(images, 1)))


class HGBlock(Recomputable):
    """Apply 3x3 convolutions in a row; concatenate their input and outputs, squeeze and gate them."""

    def __init__(self, in_channels: int, mid_channels: int, out_channels: int, is_residual: bool) -> None:
        super().__init__()
        self.layers = nn.LayerList(
            [
                NormedConv(mid_channels if index else in_channels, mid_channels, 3, act=F.relu)
                for index in range(LAYERS)
            ]
        )
        self.aggregation_conv = NormedConv(in_channels + LAYERS * mid_channels, out_channels, act=F.relu)
        self.att = ChannelAttention(out_channels)
        self.is_residual = is_residual

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H, W]."""
        outputs = [images]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        joined = self.att(self.aggregation_conv(paddle.concat(outputs, axis=1)))
        return joined + images if self.is_residual else joined


class HGStage(nn.Layer):
    """Apply a strided depthwise convolution, then blocks; all blocks except the first add their input.

    Args:
        block: makes a block of input, hidden and output channels, whether it adds its input, and `options`.
        in_channels: channels of the input.
        mid_channels: channels inside a block.
        out_channels: channels of the output.
        blocks: how many blocks.
        stride: the stride of the first convolution.
        options: further arguments of `block`.
    """

    def __init__(
        self,
        block: Callable[..., nn.Layer],
        in_channels: int,
        mid_channels: int,
        out_channels: int,
        blocks: int,
        stride: Stride,
        *options: object,
    ) -> None:
        super().__init__()
        self.downsample = NormedConv(in_channels, in_channels, 3, stride, groups=in_channels)
        self.blocks = nn.Sequential(
            *[
                block(out_channels if index else in_channels, mid_channels, out_channels, index > 0, *options)
                for index in range(blocks)
            ]
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self.blocks(self.downsample(images))


class HGNet(FrameBackbone):
    """First layers, stages, and the pooling into frames.

    Args:
        stem: the first layers.
        stages: the stages.
        out_channels: the output channels of the last stage.
        train_frames: frames in train mode, or `"width"`: one for 8 pixels, as in eval mode.
    """

    def __init__(
        self, stem: nn.Layer, stages: Sequence[HGStage], out_channels: int, train_frames: int | str
    ) -> None:
        super().__init__(train_frames)
        self.stem = stem
        self.stages = nn.Sequential(*stages)
        self.out_channels = out_channels

    def features(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to features [B, out_channels, H / 16, W / 4]."""
        return self.stages(self.stem(images))


@BACKBONES.register()
class PPHGNet_small(HGNet):  # noqa: N801 - PaddleOCR's name
    """Convolutional backbone of PP-OCRv4 server; images of 48 x W become W / 8 frames.

    Args:
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`: one for 8 pixels, as in eval mode.
    """

    def __init__(self, in_channels: int = 3, train_frames: int | str = TRAIN_FRAMES) -> None:
        channels = [in_channels, *STEM]
        stem = nn.Sequential(
            *[
                NormedConv(before, after, 3, 1 if index else 2, act=F.relu)
                for index, (before, after) in enumerate(zip(channels, STEM, strict=False))
            ]
        )
        stages = [HGStage(HGBlock, *stage) for stage in SMALL_STAGES]
        super().__init__(stem, stages, SMALL_STAGES[-1][2], train_frames)


# input, hidden and output channels, blocks, stride of the first layer (None: there is none), light layers, kernel
B4_STAGES: tuple[tuple[int, int, int, int, Stride, bool, int], ...] = (
    (48, 48, 128, 1, (2, 1), False, 3),
    (128, 96, 512, 1, (1, 2), False, 3),
    (512, 192, 1024, 3, (2, 1), True, 5),
    (1024, 384, 2048, 1, (2, 1), True, 5),
)
LAYERS = 6  # number of layers of a block
CLASSES = 1000  # outputs of the ImageNet layer, which official weights have


class HGStem(nn.Layer):
    """Apply the first layers: a strided convolution, a pooled and a convolved branch, and two convolutions.

    Args:
        in_channels: channels of the image.
        mid_channels: channels inside.
        out_channels: channels of the output.
        last_stride: stride of `stem3`; the size is divided by 2 times it.
        act: activation of each convolution.
    """

    def __init__(
        self, in_channels: int, mid_channels: int, out_channels: int, last_stride: int, act: Activation
    ) -> None:
        super().__init__()
        half = mid_channels // 2
        self.stem1 = NormedConv(in_channels, mid_channels, 3, 2, act=act)
        self.stem2a = NormedConv(mid_channels, half, 2, act=act, padding="SAME")
        self.stem2b = NormedConv(half, mid_channels, 2, act=act, padding="SAME")
        self.stem3 = NormedConv(2 * mid_channels, mid_channels, 3, last_stride, act=act)
        self.stem4 = NormedConv(mid_channels, out_channels, act=act)
        self.pool = nn.MaxPool2D(kernel_size=2, stride=1, ceil_mode=True, padding="SAME")

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        features = self.stem1(images)
        convolved = self.stem2b(self.stem2a(features))
        joined = paddle.concat([self.pool(features), convolved], axis=1)
        return self.stem4(self.stem3(joined))


class LightConv(nn.Layer):
    """Apply a pointwise convolution, then a depthwise one with activation."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv1 = NormedConv(in_channels, out_channels)
        self.conv2 = NormedConv(out_channels, out_channels, kernel_size, groups=out_channels, act=F.relu)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H, W]."""
        return self.conv2(self.conv1(images))


class HGV2Block(Recomputable):
    """Apply layers in a row; concatenate their input and outputs, and squeeze them by two pointwise convolutions."""

    def __init__(
        self,
        in_channels: int,
        mid_channels: int,
        out_channels: int,
        is_residual: bool,
        light: bool,
        kernel_size: int,
    ) -> None:
        super().__init__()
        convolution: Callable[..., nn.Layer] = LightConv if light else partial(NormedConv, act=F.relu)
        self.layers = nn.LayerList(
            [
                convolution(mid_channels if index else in_channels, mid_channels, kernel_size)
                for index in range(LAYERS)
            ]
        )
        joined = in_channels + LAYERS * mid_channels
        self.aggregation_squeeze_conv = NormedConv(joined, out_channels // 2, act=F.relu)
        self.aggregation_excitation_conv = NormedConv(out_channels // 2, out_channels, act=F.relu)
        self.is_residual = is_residual

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H, W]."""
        outputs = [images]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        joined = self.aggregation_squeeze_conv(paddle.concat(outputs, axis=1))
        joined = self.aggregation_excitation_conv(joined)
        return joined + images if self.is_residual else joined


@BACKBONES.register()
class PPHGNetV2_B4(HGNet):  # noqa: N801 - PaddleOCR's name
    """Convolutional backbone of PP-OCRv5 server; images of 48 x W become W / 8 frames.

    Args:
        text_rec: must be True; text recognition needs a network without the last two halvings of the width.
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`: one for 8 pixels, as in eval mode.

    Raises:
        ConfigError: `text_rec` is false.
    """

    def __init__(
        self, text_rec: bool = False, in_channels: int = 3, train_frames: int | str = TRAIN_FRAMES
    ) -> None:
        if not text_rec:
            raise ConfigError(
                "PPHGNetV2_B4.text_rec is false, which is for text detection. Fix: text_rec: true.",
                code="bad_value",
                key=("text_rec",),
            )
        stem = HGStem(in_channels, 32, B4_STAGES[0][0], 1, F.relu)
        super().__init__(
            stem, [HGStage(HGV2Block, *stage) for stage in B4_STAGES], B4_STAGES[-1][2], train_frames
        )
        # no output depends on these two layers, but official weights have them, and a checkpoint must load completely
        self.last_conv = nn.Conv2D(self.out_channels, 2048, 1, bias_attr=False)
        self.fc = nn.Linear(2048, CLASSES)
        for parameter in [*self.last_conv.parameters(), *self.fc.parameters()]:
            parameter.stop_gradient = True
