"""ResNet31, the backbone of SAR (Li et al., "Show, Attend and Read", arXiv 1811.00751)."""

from __future__ import annotations

from collections.abc import Sequence

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.modeling.backbones.conv_parts import check_length
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
