"""PPLCNet, the backbones of PP-OCRv4 to v6 mobile recognisers."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Constant

from ppocr_ext.base.parts import TRAIN_FRAMES
from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.backbones.conv_parts import (
    ChannelGate,
    DecayedConv,
    FoldableBackbone,
    FrameBackbone,
    NormedConv,
    Stride,
    SummedDepthwise,
    affine,
    check_length,
    conv_like,
    identity_kernel,
    multiple_of,
    padded,
)
from ppocr_ext.modeling.backbones.pphgnet import HGStem
from ppocr_ext.modeling.layers import eager_on_cpu
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

# kernel, input channels, output channels, stride, squeeze-and-excitation of each block, by stage
V3_STAGES: dict[str, tuple[tuple[int, int, int, Stride, bool], ...]] = {
    "blocks2": ((3, 16, 32, 1, False),),
    "blocks3": ((3, 32, 64, 1, False), (3, 64, 64, 1, False)),
    "blocks4": ((3, 64, 128, (2, 1), False), (3, 128, 128, 1, False)),
    "blocks5": ((3, 128, 256, (1, 2), False), *[(5, 256, 256, 1, False)] * 4),
    "blocks6": (
        (5, 256, 512, (2, 1), True),
        (5, 512, 512, 1, True),
        (5, 512, 512, (2, 1), False),
        (5, 512, 512, 1, False),
    ),
}
CHANNEL_STEP = 16  # channels are multiples of it


class LearnableAffine(nn.Layer):
    """Apply one learned factor and one learned shift to all channels.

    Args:
        lr_mult: learning rate multiplier of both.
    """

    def __init__(self, lr_mult: float) -> None:
        super().__init__()
        self.scale = self.create_parameter([1], ParamAttr(initializer=Constant(1.0), learning_rate=lr_mult))
        self.bias = self.create_parameter([1], ParamAttr(initializer=Constant(0.0), learning_rate=lr_mult))

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, C, H, W] to the same shape."""
        if not eager_on_cpu():
            return self.scale * images + self.bias
        # in the type of mixed precision
        return self.scale.astype(images.dtype) * images + self.bias.astype(images.dtype)


class AffineHardswish(nn.Layer):
    """Apply Hardswish, then a learnable affine."""

    def __init__(self, lr_mult: float) -> None:
        super().__init__()
        self.lab = LearnableAffine(lr_mult)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, C, H, W] to the same shape."""
        return self.lab(F.hardswish(images))


class RepConv(nn.Layer):
    """Sum up parallel convolutions, which fold into one for inference; then apply affine and activation.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the kernel size of the `branches` convolutions; above 1, a 1x1 convolution is added.
        stride: the stride of all convolutions. With 1 and equal channels, a BatchNorm of the input is added. With 2
            there is no activation.
        groups: the number of groups of all convolutions.
        branches: convolutions of `kernel_size`.
        lr_mult: learning rate multiplier.
        affine_lr: further multiplier of the affine blocks.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: Stride,
        groups: int,
        branches: int,
        lr_mult: float,
        affine_lr: float,
    ) -> None:
        super().__init__()
        norm = ParamAttr(learning_rate=lr_mult)
        self.identity = None
        if in_channels == out_channels and stride == 1:
            self.identity = nn.BatchNorm2D(in_channels, weight_attr=norm, bias_attr=norm)

        def conv(size: int) -> NormedConv:
            return NormedConv(in_channels, out_channels, size, stride, groups, lr_mult=lr_mult)

        self.conv_kxk = nn.LayerList([conv(kernel_size) for _ in range(branches)])
        self.conv_1x1 = conv(1) if kernel_size > 1 else None
        self.lab = LearnableAffine(lr_mult * affine_lr)
        self.act = None if stride == 2 else AffineHardswish(lr_mult * affine_lr)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        features = sum(branch(images) for branch in self._branches())
        features = self.lab(features)
        return features if self.act is None else self.act(features)

    def _branches(self) -> list[nn.Layer]:
        others = [branch for branch in (self.identity, self.conv_1x1) if branch is not None]
        return [*others, *self.conv_kxk]

    def fused(self) -> nn.Layer:
        """Return one convolution that equals all branches and the affine, followed by the activation."""
        model = self.conv_kxk[0].conv
        size = model._kernel_size[0]
        groups = model._groups
        kernel = paddle.zeros_like(model.weight)
        bias = paddle.zeros([model._out_channels])
        for branch in self._branches():
            if branch is self.identity:
                factor, shift = affine(branch)
                one = identity_kernel(model._in_channels, groups, size) * factor.reshape([-1, 1, 1, 1])
            else:
                one, shift = branch.kernel_and_bias()
            kernel = kernel + padded(one, size)
            bias = bias + shift
        fused = conv_like(model, kernel * self.lab.scale, bias * self.lab.scale + self.lab.bias)
        return fused if self.act is None else nn.Sequential(fused, self.act)


class LCNetV3Block(Recomputable):
    """Apply a depthwise convolution, a gate and a pointwise convolution."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: Stride,
        gated: bool,
        branches: int,
        lr_mult: float,
        affine_lr: float,
    ) -> None:
        super().__init__()
        shared = (branches, lr_mult, affine_lr)
        self.dw_conv = RepConv(in_channels, in_channels, kernel_size, stride, in_channels, *shared)
        self.se = ChannelGate(in_channels, lr_mult=lr_mult) if gated else nn.Identity()
        self.pw_conv = RepConv(in_channels, out_channels, 1, 1, 1, *shared)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self.pw_conv(self.se(self.dw_conv(images)))


@BACKBONES.register()
class PPLCNetV3(FoldableBackbone, FrameBackbone):
    """Convolutional backbone of PP-OCRv4 and v5 mobile; images of 48 x W become W / 8 frames.

    Args:
        scale: factor of all channels.
        conv_kxk_num: parallel convolutions of each layer.
        lr_mult_list: learning rate multipliers of the stem and the five stages.
        lab_lr: further multiplier of the affine blocks.
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`: one for 8 pixels, as in eval mode.
    """

    def __init__(
        self,
        scale: float = 1.0,
        conv_kxk_num: int = 4,
        lr_mult_list: Sequence[float] = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        lab_lr: float = 0.1,
        in_channels: int = 3,
        train_frames: int | str = TRAIN_FRAMES,
    ) -> None:
        super().__init__(train_frames)
        check_length(lr_mult_list, 1 + len(V3_STAGES), "PPLCNetV3.lr_mult_list")

        def width(channels: int) -> int:
            return multiple_of(channels * scale, CHANNEL_STEP)

        stem_lr, *stage_lrs = lr_mult_list
        self.conv1 = NormedConv(in_channels, width(16), 3, 2, lr_mult=stem_lr)
        for (name, blocks), lr_mult in zip(V3_STAGES.items(), stage_lrs, strict=True):
            layers = [
                LCNetV3Block(width(ins), width(outs), kernel, stride, gated, conv_kxk_num, lr_mult, lab_lr)
                for kernel, ins, outs, stride, gated in blocks
            ]
            self.add_sublayer(name, nn.Sequential(*layers))
        self.out_channels = width(512)


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


class TokenMixer(nn.Layer):
    """Apply a depthwise convolution (with parallel branches if the size stays), then a gate."""

    def __init__(self, in_channels: int, out_channels: int, stride: Stride, gated: bool) -> None:
        super().__init__()
        if stride == 1 and in_channels == out_channels:
            self.rep_dw = SummedDepthwise(in_channels, DecayedConv, bias=False)
        else:
            self.dw_conv = DecayedConv(in_channels, in_channels, 3, stride, groups=in_channels)
        self.se = ChannelGate(in_channels) if gated else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, C, H, W] to [B, C, H', W']."""
        return self.se(self.rep_dw(images) if hasattr(self, "rep_dw") else self.dw_conv(images))


class ChannelMixer(nn.Layer):
    """Apply two pointwise convolutions with exact GELU between them."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        hidden = 2 * in_channels
        self.expand = DecayedConv(in_channels, hidden)
        self.compress = DecayedConv(hidden, out_channels, scale=0.0 if in_channels == out_channels else 1.0)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H, W]."""
        return self.compress(F.gelu(self.expand(images)))


class LCNetV4Block(Recomputable):
    """Apply a token mixer, then a channel mixer, whose input is added if channels and size stay."""

    def __init__(self, in_channels: int, out_channels: int, stride: Stride, gated: bool) -> None:
        super().__init__()
        self.token_mixer = TokenMixer(in_channels, out_channels, stride, gated)
        self.channel_mixer = ChannelMixer(in_channels, out_channels)
        self.is_residual = in_channels == out_channels and stride == 1

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        tokens = self.token_mixer(images)
        mixed = self.channel_mixer(tokens)
        return tokens + mixed if self.is_residual else mixed


@BACKBONES.register()
class PPLCNetV4(FoldableBackbone, FrameBackbone):
    """Convolutional backbone of PP-OCRv6; images of 48 x W become W / 8 frames.

    Args:
        model_size: `"tiny"`, `"small"` or `"medium"`.
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`: one for 8 pixels, as in eval mode.

    Raises:
        ConfigError: there is no such size.
        ModelError: images of another height than 48 in eval mode (when called).
    """

    least_rows = 3

    def __init__(
        self, model_size: str = "small", in_channels: int = 3, train_frames: int | str = TRAIN_FRAMES
    ) -> None:
        super().__init__(train_frames)
        if model_size not in SIZES:
            raise ConfigError(
                f"PPLCNetV4.model_size is {model_size!r}, but must be one of {', '.join(SIZES)}.",
                code="bad_value",
                key=("model_size",),
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
        self.out_channels = channels
