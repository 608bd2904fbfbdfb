"""PPLCNetV4, the backbone of PP-OCRv6: blocks of a token mixer and a channel mixer, after RepViT (arXiv 2307.09283)."""

from __future__ import annotations

from functools import partial

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling.backbones.conv_parts import (
    TRAIN_FRAMES,
    ChannelGate,
    FramePool,
    NormedConv,
    Stride,
    affine,
    conv_like,
    padded,
    reparameterized,
)
from ppocr_ext.modeling.backbones.pphgnet_v2 import HGStem
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

DecayedConv = partial(
    NormedConv, norm_decay=None
)  # PP-OCRv6 decays its BatchNorms, but for those of the stem
DOWN = (2, 1)  # stride that halves only the height
Block = tuple[int, Stride, bool]  # output channels, stride, squeeze-and-excitation
# channels of the stem, then the blocks of each stage
SIZES: dict[str, tuple[int, dict[str, tuple[Block, ...]]]] = {
    "tiny": (
        48,
        {
            "blocks2": ((48, 1, True),),
            "blocks3": ((48, 1, False),),
            "blocks4": ((96, DOWN, False), (96, 1, True), (96, 1, False)),
            "blocks5": ((160, DOWN, False), (160, 1, True), (160, 1, False), (160, 1, False)),
        },
    ),
    "small": (
        96,
        {
            "blocks2": ((96, 1, True),),
            "blocks3": ((96, 1, False), (96, 1, False)),
            "blocks4": ((192, DOWN, False), *[(192, 1, True), (192, 1, False)] * 3),
            "blocks5": ((384, DOWN, False), (384, 1, True), (384, 1, False)),
        },
    ),
    "medium": (
        128,
        {
            "blocks2": ((128, 1, True),),
            "blocks3": ((256, 1, False), (256, 1, False), (256, 1, True)),
            "blocks4": ((512, DOWN, False), *[(512, 1, True), (512, 1, False)] * 3),
            "blocks5": ((768, DOWN, False), (768, 1, True), (768, 1, False)),
        },
    ),
}


class RepDepthwise(nn.Layer):
    """BatchNorm of a 3x3 and a 1x1 depthwise convolution and the input, summed."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = DecayedConv(dim, dim, 3, groups=dim)
        self.conv1 = nn.Conv2D(dim, dim, 1, groups=dim, bias_attr=False)
        self.bn = nn.BatchNorm2D(dim)

    def forward(self, images: Tensor) -> Tensor:
        """[B, dim, H, W] to the same shape."""
        return self.bn(self.conv(images) + self.conv1(images) + images)

    def fused(self) -> nn.Conv2D:
        """Return one 3x3 depthwise convolution with the numbers of all."""
        kernel, bias = self.conv.kernel_and_bias()
        kernel = kernel + padded(self.conv1.weight + 1.0, 3)
        factor, shift = affine(self.bn)
        return conv_like(self.conv.conv, kernel * factor.reshape([-1, 1, 1, 1]), bias * factor + shift)


class TokenMixer(nn.Layer):
    """Depthwise convolution, with parallel branches where the size stays, then a gate."""

    def __init__(self, in_channels: int, out_channels: int, stride: Stride, gated: bool) -> None:
        super().__init__()
        if stride == 1 and in_channels == out_channels:
            self.rep_dw = RepDepthwise(in_channels)
        else:
            self.dw_conv = DecayedConv(in_channels, in_channels, 3, stride, groups=in_channels)
        self.se = ChannelGate(in_channels) if gated else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C, H', W']."""
        return self.se(self.rep_dw(images) if hasattr(self, "rep_dw") else self.dw_conv(images))


class ChannelMixer(nn.Layer):
    """Two pointwise convolutions with exact GELU between them."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        hidden = 2 * in_channels
        self.expand = DecayedConv(in_channels, hidden)
        self.compress = DecayedConv(hidden, out_channels, scale=0.0 if in_channels == out_channels else 1.0)

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H, W]."""
        return self.compress(F.gelu(self.expand(images)))


class LCNetV4Block(Recomputable):
    """A token mixer, then a channel mixer, whose input is added where channels and size stay."""

    def __init__(self, in_channels: int, out_channels: int, stride: Stride, gated: bool) -> None:
        super().__init__()
        self.token_mixer = TokenMixer(in_channels, out_channels, stride, gated)
        self.channel_mixer = ChannelMixer(in_channels, out_channels)
        self.is_residual = in_channels == out_channels and stride == 1

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        tokens = self.token_mixer(images)
        mixed = self.channel_mixer(tokens)
        return tokens + mixed if self.is_residual else mixed


@BACKBONES.register()
class PPLCNetV4(nn.Layer):
    """Convolutional backbone of PP-OCRv6; images of 48 x W become W / 8 frames.

    Args:
        model_size: `"tiny"`, `"small"` or `"medium"`.
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`; see `FramePool`.

    Raises:
        ConfigError: there is no such size.
        ModelError: images of another height than 48 in eval mode (when called).
    """

    def __init__(
        self, model_size: str = "small", in_channels: int = 3, train_frames: int | str = TRAIN_FRAMES
    ) -> None:
        super().__init__()
        if model_size not in SIZES:
            raise ConfigError(
                f"PPLCNetV4.model_size is {model_size!r}, but must be one of {', '.join(SIZES)}.",
                code="bad_value",
            )
        channels, stages = SIZES[model_size]
        if model_size == "tiny":
            first = DecayedConv(in_channels, channels // 2, 3, 2)
            self.conv1 = nn.Sequential(first, nn.GELU(), DecayedConv(channels // 2, channels, 3, 2))
        else:
            self.conv1 = HGStem(in_channels, channels // 2, channels, 2, F.relu)
        for name, blocks in stages.items():
            layers = []
            for out_channels, stride, gated in blocks:
                layers.append(LCNetV4Block(channels, out_channels, stride, gated))
                channels = out_channels
            self.add_sublayer(name, nn.Sequential(*layers))
        self._stages = tuple(stages)
        self.out_channels = channels
        self.train_frames = train_frames
        self._pool = FramePool(train_frames, type(self).__name__)

    def forward(self, images: Tensor, for_training: bool | None = None) -> Tensor:
        """Images [B, in_channels, H, W] to frames [B, out_channels, 1, T].

        `for_training` chooses the pooling; by default it follows the mode of the network.
        """
        features = self.conv1(images)
        for name in self._stages:
            features = getattr(self, name)(features)
        training = self.training if for_training is None else for_training
        if not training and features.shape[2] < 3:
            raise ModelError(
                f"PPLCNetV4 reads images of height 48 (found {images.shape[2]}: {features.shape[2]} rows of features, "
                f"its pooling needs 3). Fix: RecResizeImg.image_shape: [3, 48, {images.shape[3]}].",
                code="image_size",
            )
        return self._pool(features, training)

    def reparameterize(self) -> PPLCNetV4:
        """Return a copy for inference in which all branches are folded; see `reparameterized`."""
        return reparameterized(self)
