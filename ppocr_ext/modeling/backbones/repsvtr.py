"""Define RepSVTR, the small backbone of PaddleOCR's recognisers: RepViT (Wang et al., arXiv 2307.09283) for lines.

Its depthwise branches and BatchNorms fold into single convolutions for inference.
"""

from __future__ import annotations

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.modeling.backbones.conv_parts import (
    ChannelGate,
    FoldableBackbone,
    NormedConv,
    Stride,
    SummedDepthwise,
)
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

# channels, squeeze-and-excitation, stride of each block
BLOCKS: tuple[tuple[int, bool, Stride], ...] = (
    (96, True, 1),
    (96, False, 1),
    (96, False, 1),
    (192, False, (2, 1)),
    (192, True, 1),
    (192, False, 1),
    (192, True, 1),
    (192, False, 1),
    (192, True, 1),
    (192, False, 1),
    (384, False, (2, 1)),
    (384, True, 1),
    (384, False, 1),
)


class FusableConvNorm(NormedConv):
    """Convolution and BatchNorm with the names of RepViT's checkpoints, and Paddle's own first weights."""

    names = ("c", "bn")
    first_kernel = staticmethod(lambda: None)
    norm_decay = None


class Residual(nn.Layer):
    """Add ``m`` of an image to the image."""

    def __init__(self, m: nn.Layer) -> None:
        super().__init__()
        self.m = m

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, C, H, W] to the same shape."""
        return images + self.m(images)


class RepBlock(Recomputable):
    """Apply a depthwise mixer over pixels, then a residual MLP over channels."""

    def __init__(self, in_channels: int, out_channels: int, squeeze: bool, stride: Stride) -> None:
        super().__init__()
        gate = ChannelGate(in_channels, F.sigmoid, names=("fc1", "fc2")) if squeeze else nn.Identity()
        if stride == 1:
            self.token_mixer = nn.Sequential(SummedDepthwise(in_channels, FusableConvNorm, bias=True), gate)
        else:
            self.token_mixer = nn.Sequential(
                FusableConvNorm(in_channels, in_channels, 3, stride, groups=in_channels),
                gate,
                FusableConvNorm(in_channels, out_channels),
            )
        self.channel_mixer = Residual(
            nn.Sequential(
                FusableConvNorm(out_channels, 2 * out_channels),
                nn.GELU(),
                FusableConvNorm(2 * out_channels, out_channels, scale=0.0),
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W]."""
        return self.channel_mixer(self.token_mixer(images))


@BACKBONES.register()
class RepSVTR(FoldableBackbone):
    """Extract features with 13 convolutional blocks of 96, 192 and 384 channels.

    Args:
        in_channels: channels of the image.
    """

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        channels = BLOCKS[0][0]
        stem = nn.Sequential(
            FusableConvNorm(in_channels, channels // 2, 3, 2),
            nn.GELU(),
            FusableConvNorm(channels // 2, channels, 3, 2),
        )
        layers: list[nn.Layer] = [stem]
        for out_channels, squeeze, stride in BLOCKS:
            layers.append(RepBlock(channels, out_channels, squeeze, stride))
            channels = out_channels
        self.features = nn.LayerList(layers)
        self.out_channels = channels

    def forward(self, images: Tensor) -> Tensor:
        """Map images of text lines [B, in_channels, H, W] to [B, 384, 1, W / 8]."""
        for layer in self.features:
            images = layer(images)
        return F.avg_pool2d(images, [images.shape[2], 2])
