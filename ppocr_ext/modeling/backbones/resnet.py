"""ResNets: 31 of SAR ("Show, Attend and Read", arXiv 1811.00751), 18 to 200 of CRNN and STAR-Net (arXiv 1812.01187)."""

from __future__ import annotations

from collections.abc import Sequence

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling.backbones.conv_parts import DecayedConv, Stride, check_length
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

POOLS = ((2, 2), (2, 2), (2, 1), None)  # windows before the stages; the last stage keeps the size


class BasicBlock(Recomputable):
    """Add two 3x3 convolutions with BatchNorm to their input."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(in_channels, out_channels, 3, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(out_channels)
        self.conv2 = nn.Conv2D(out_channels, out_channels, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(out_channels)
        self.downsample = None
        if in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2D(in_channels, out_channels, 1, bias_attr=False), nn.BatchNorm2D(out_channels)
            )

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H, W]."""
        features = F.relu(self.bn1(self.conv1(images)))
        features = self.bn2(self.conv2(features))
        shortcut = images if self.downsample is None else self.downsample(images)
        return F.relu(features + shortcut)


@BACKBONES.register()
class ResNet31(nn.Layer):
    """Convolutional backbone of SAR: images [B, 3, H, W] become features [B, C, H / 8, W / 4].

    Args:
        in_channels: channels of the image.
        layers: blocks of the four stages.
        channels: the channels of the two first convolutions, the four stages, and the last one.
    """

    def __init__(
        self,
        in_channels: int = 3,
        layers: Sequence[int] = (1, 2, 5, 3),
        channels: Sequence[int] = (64, 128, 256, 256, 512, 512, 512),
    ) -> None:
        super().__init__()
        check_length(layers, 4, "ResNet31.layers")
        check_length(channels, 7, "ResNet31.channels")
        self.conv1_1 = nn.Conv2D(in_channels, channels[0], 3, padding=1)
        self.bn1_1 = nn.BatchNorm2D(channels[0])
        self.conv1_2 = nn.Conv2D(channels[0], channels[1], 3, padding=1)
        self.bn1_2 = nn.BatchNorm2D(channels[1])
        before = channels[1]
        for stage, count in enumerate(layers, start=2):
            after = channels[stage]
            blocks = [BasicBlock(before if index == 0 else after, after) for index in range(count)]
            self.add_sublayer(f"block{stage}", nn.Sequential(*blocks))
            self.add_sublayer(f"conv{stage}", nn.Conv2D(after, after, 3, padding=1))
            self.add_sublayer(f"bn{stage}", nn.BatchNorm2D(after))
            before = after
        self.out_channels = channels[-1]

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to features [B, C, H / 8, W / 4]."""
        features = F.relu(self.bn1_1(self.conv1_1(images)))
        features = F.relu(self.bn1_2(self.conv1_2(features)))
        for stage, window in enumerate(POOLS, start=2):
            if window is not None:
                features = F.max_pool2d(features, window, window, ceil_mode=True)
            features = getattr(self, f"block{stage}")(features)
            features = F.relu(getattr(self, f"bn{stage}")(getattr(self, f"conv{stage}")(features)))
        return features


# blocks of the four stages
DEPTHS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 12, 48, 3),
}
WIDTHS = (64, 128, 256, 512)  # of the stages; a bottleneck gives four times as many channels
BOTTLENECKS_FROM = 50  # layers


class ResNetConv(DecayedConv):
    """A convolution with the names of PaddleOCR's checkpoints."""

    names = ("_conv", "_batch_norm")


class ResidualBlock(Recomputable):
    """Add convolutions to their input, which an average pooling makes smaller (variant D of arXiv 1812.01187).

    Args:
        in_channels: channels of the input.
        width: channels of the first convolution.
        stride: the stride of the 3x3 convolution that is the first or, in a bottleneck, the second one.
        bottleneck: convolutions of 1x1, 3x3 and 1x1, the last with four times the channels; otherwise, two of 3x3.
        first: whether the block is the first of its stage, where a convolution fits the input to the sum.
    """

    def __init__(self, in_channels: int, width: int, stride: Stride, bottleneck: bool, first: bool) -> None:
        super().__init__()
        rows = ((1, 1, 1), (3, stride, 1), (1, 1, 4)) if bottleneck else ((3, stride, 1), (3, 1, 1))
        channels = in_channels
        for index, (kernel, step, factor) in enumerate(rows):
            act = None if index == len(rows) - 1 else F.relu
            self.add_sublayer(f"conv{index}", ResNetConv(channels, width * factor, kernel, step, act=act))
            channels = width * factor
        self._convolutions = len(rows)
        self._stride = stride
        self.short = ResNetConv(in_channels, channels) if first else None
        self.out_channels = channels

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        features = images
        for index in range(self._convolutions):
            features = getattr(self, f"conv{index}")(features)
        if self.short is not None:
            if self._stride != 1:
                images = F.avg_pool2d(images, self._stride, self._stride, ceil_mode=True)
            images = self.short(images)
        return F.relu(features + images)


@BACKBONES.register()
class ResNet(nn.Layer):
    """Convolutional backbone of CRNN and STAR-Net; images of height 17 to 48 become W / 4 frames.

    Args:
        in_channels: channels of the image.
        layers: 18, 34, 50, 101, 152 or 200.

    Raises:
        ConfigError: PaddleOCR has no ResNet with this number of layers.
        ModelError: the images are too low (when called).
    """

    def __init__(self, in_channels: int = 3, layers: int = 50) -> None:
        super().__init__()
        if layers not in DEPTHS:
            raise ConfigError(
                f"ResNet.layers is {layers!r}, but must be one of {', '.join(map(str, DEPTHS))}.",
                code="bad_value",
                key=("layers",),
            )
        self.conv1_1 = ResNetConv(in_channels, 32, 3, act=F.relu)
        self.conv1_2 = ResNetConv(32, 32, 3, act=F.relu)
        self.conv1_3 = ResNetConv(32, 64, 3, act=F.relu)
        self.out_channels = 64
        for stage, (count, width) in enumerate(zip(DEPTHS[layers], WIDTHS, strict=True)):
            for index in range(count):
                stride: Stride = (2, 1) if stage and not index else 1
                block = ResidualBlock(self.out_channels, width, stride, layers >= BOTTLENECKS_FROM, not index)
                self.add_sublayer(f"bb_{stage}_{index}", block)
                self.out_channels = block.out_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to features [B, out_channels, H / 32, W / 4]."""
        features = self.conv1_3(self.conv1_2(self.conv1_1(images)))
        features = F.max_pool2d(features, 3, 2, 1)
        for name, block in self._sub_layers.items():
            if name.startswith("bb_"):
                features = block(features)
        if features.shape[2] == 1:
            raise ModelError(
                f"ResNet reads images of height 17 or more (found {images.shape[2]}). Fix: "
                f"RecResizeImg.image_shape: [3, 32, {images.shape[3]}].",
                code="image_size",
            )
        return F.max_pool2d(features, 2, 2)
