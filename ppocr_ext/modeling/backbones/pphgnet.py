"""PPHGNet_small, the backbone of PP-OCRv4 server: blocks that join the outputs of all their layers, with a gate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.modeling.backbones.conv_parts import TRAIN_FRAMES, FramePool, NormedConv, Stride
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

STEM = (64, 64, 128)
# input, hidden and output channels, blocks, stride
STAGES: tuple[tuple[int, int, int, int, Stride], ...] = (
    (128, 128, 256, 1, (2, 1)),
    (256, 160, 512, 1, (1, 2)),
    (512, 192, 768, 2, (2, 1)),
    (768, 224, 1024, 1, (2, 1)),
)
LAYERS = 6  # of a block


class ChannelAttention(nn.Layer):
    """Each channel times a sigmoid gate computed from the mean of all channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv2D(dim, dim, 1)

    def forward(self, images: Tensor) -> Tensor:
        """[B, dim, H, W] to the same shape."""
        return images * F.sigmoid(self.conv(F.adaptive_avg_pool2d(images, 1)))


class HGBlock(Recomputable):
    """3x3 convolutions in a row, whose input and outputs are joined, squeezed and gated."""

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
        """[B, in_channels, H, W] to [B, out_channels, H, W]."""
        outputs = [images]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        joined = self.att(self.aggregation_conv(paddle.concat(outputs, axis=1)))
        return joined + images if self.is_residual else joined


class HGStage(nn.Layer):
    """A strided depthwise convolution, then blocks; all but the first add their input.

    Args:
        block: makes a block of input, hidden and output channels, whether it adds its input, and `options`.
        in_channels: channels of the input.
        mid_channels: channels inside a block.
        out_channels: channels of the output.
        blocks: how many blocks.
        stride: of the first convolution.
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
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self.blocks(self.downsample(images))


class HGNet(nn.Layer):
    """First layers, stages, and the pooling into frames.

    Args:
        stem: the first layers.
        stages: the stages.
        out_channels: of the last stage.
        train_frames: frames in train mode, or `"width"`; see `FramePool`.
    """

    def __init__(
        self, stem: nn.Layer, stages: Sequence[HGStage], out_channels: int, train_frames: int | str
    ) -> None:
        super().__init__()
        self.stem, self.stages = stem, nn.LayerList(stages)
        self.out_channels, self.train_frames = out_channels, train_frames
        self._pool = FramePool(train_frames, type(self).__name__)

    def forward(self, images: Tensor, for_training: bool | None = None) -> Tensor:
        """Images [B, in_channels, H, W] to frames [B, out_channels, 1, T].

        `for_training` chooses the pooling; by default it follows the mode of the network.
        """
        features = self.stem(images)
        for stage in self.stages:
            features = stage(features)
        return self._pool(features, self.training if for_training is None else for_training)


@BACKBONES.register()
class PPHGNet_small(HGNet):  # noqa: N801 - PaddleOCR's name
    """Convolutional backbone of PP-OCRv4 server; images of 48 x W become W / 8 frames.

    Args:
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`; see `FramePool`.
    """

    def __init__(self, in_channels: int = 3, train_frames: int | str = TRAIN_FRAMES) -> None:
        channels = [in_channels, *STEM]
        stem = nn.Sequential(
            *[
                NormedConv(before, after, 3, 1 if index else 2, act=F.relu)
                for index, (before, after) in enumerate(zip(channels, STEM, strict=False))
            ]
        )
        stages = [HGStage(HGBlock, *stage) for stage in STAGES]
        super().__init__(stem, stages, STAGES[-1][2], train_frames)
