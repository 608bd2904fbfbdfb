"""PPLCNetV3, the backbone of PP-OCRv4 and v5 mobile recognisers.

Source: PP-OCRv4 and PP-LCNet (Cui et al., arXiv 2109.15099); parallel branches after RepVGG (Ding et al.,
arXiv 2101.03697), learnable affine blocks after Khan et al., "LCNetV3" in PaddleOCR.
"""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Constant

from ppocr_ext.modeling.attention import eager_on_cpu
from ppocr_ext.modeling.backbones.conv_parts import (
    TRAIN_FRAMES,
    ChannelGate,
    FramePool,
    NormedConv,
    Stride,
    affine,
    check_length,
    conv_like,
    identity_kernel,
    multiple_of,
    padded,
    reparameterized,
)
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

# kernel, input channels, output channels, stride, squeeze-and-excitation of each block, by stage
STAGES: dict[str, tuple[tuple[int, int, int, Stride, bool], ...]] = {
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
    """One learned factor and one learned shift for all channels.

    Args:
        lr_mult: learning rate multiplier of both.
    """

    def __init__(self, lr_mult: float) -> None:
        super().__init__()
        self.scale = self.create_parameter([1], ParamAttr(initializer=Constant(1.0), learning_rate=lr_mult))
        self.bias = self.create_parameter([1], ParamAttr(initializer=Constant(0.0), learning_rate=lr_mult))

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        if not eager_on_cpu():
            return self.scale * images + self.bias
        # Summing the gradient over all axes at once takes Paddle seven times as long on a CPU.
        shape = [*images.shape[:2], 1, 1]
        return self.scale.astype(images.dtype).expand(shape) * images + self.bias.astype(images.dtype).expand(
            shape
        )


class AffineHardswish(nn.Layer):
    """Hardswish, then a learnable affine."""

    def __init__(self, lr_mult: float) -> None:
        super().__init__()
        self.lab = LearnableAffine(lr_mult)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] to the same shape."""
        return self.lab(F.hardswish(images))


class RepConv(nn.Layer):
    """Sum of parallel convolutions, which fold into one for inference, then affine and activation.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: of the `branches` convolutions; above 1 a 1x1 convolution joins them.
        stride: of all; with 1 and equal channels a BatchNorm of the input joins them. No activation where it is 2.
        groups: of all convolutions.
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
            return NormedConv(
                in_channels, out_channels, size, stride, groups, lr_mult=lr_mult, norm_decay=0.0
            )

        self.conv_kxk = nn.LayerList([conv(kernel_size) for _ in range(branches)])
        self.conv_1x1 = conv(1) if kernel_size > 1 else None
        self.lab = LearnableAffine(lr_mult * affine_lr)
        self.act = None if stride == 2 else AffineHardswish(lr_mult * affine_lr)

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        features = sum(branch(images) for branch in self._branches())
        features = self.lab(features)
        return features if self.act is None else self.act(features)

    def _branches(self) -> list[nn.Layer]:
        others = [branch for branch in (self.identity, self.conv_1x1) if branch is not None]
        return [*others, *self.conv_kxk]

    def fused(self) -> nn.Layer:
        """Return one convolution with the numbers of all branches and the affine, and the activation behind it."""
        model = self.conv_kxk[0].conv
        size, groups = model._kernel_size[0], model._groups
        kernel, bias = paddle.zeros_like(model.weight), paddle.zeros([model._out_channels])
        for branch in self._branches():
            if branch is self.identity:
                factor, shift = affine(branch)
                one = identity_kernel(model._in_channels, groups, size) * factor.reshape([-1, 1, 1, 1])
            else:
                one, shift = branch.kernel_and_bias()
            kernel, bias = kernel + padded(one, size), bias + shift
        fused = conv_like(model, kernel * self.lab.scale, bias * self.lab.scale + self.lab.bias)
        return fused if self.act is None else nn.Sequential(fused, self.act)


class LCNetV3Block(Recomputable):
    """Depthwise convolution, gate, pointwise convolution."""

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
        """[B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self.pw_conv(self.se(self.dw_conv(images)))


@BACKBONES.register()
class PPLCNetV3(nn.Layer):
    """Convolutional backbone of PP-OCRv4 and v5 mobile; images of 48 x W become W / 8 frames.

    Args:
        scale: factor of all channels.
        conv_kxk_num: parallel convolutions of each layer.
        lr_mult_list: learning rate multipliers of the stem and the five stages.
        lab_lr: further multiplier of the affine blocks.
        in_channels: channels of the image.
        train_frames: frames in train mode, or `"width"`; see `FramePool`.
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
        super().__init__()
        check_length(lr_mult_list, 1 + len(STAGES), "PPLCNetV3.lr_mult_list")

        def width(channels: int) -> int:
            return multiple_of(channels * scale, CHANNEL_STEP)

        stem_lr, *stage_lrs = lr_mult_list
        self.conv1 = NormedConv(in_channels, width(16), 3, 2, lr_mult=stem_lr)
        for (name, blocks), lr_mult in zip(STAGES.items(), stage_lrs, strict=True):
            layers = [
                LCNetV3Block(width(ins), width(outs), kernel, stride, gated, conv_kxk_num, lr_mult, lab_lr)
                for kernel, ins, outs, stride, gated in blocks
            ]
            self.add_sublayer(name, nn.Sequential(*layers))
        self.out_channels = width(512)
        self.train_frames = train_frames
        self._pool = FramePool(train_frames, type(self).__name__)

    def forward(self, images: Tensor, for_training: bool | None = None) -> Tensor:
        """Images [B, in_channels, H, W] to frames [B, out_channels, 1, T].

        `for_training` chooses the pooling; by default it follows the mode of the network.
        """
        features = self.conv1(images)
        for name in STAGES:
            features = getattr(self, name)(features)
        return self._pool(features, self.training if for_training is None else for_training)

    def reparameterize(self) -> PPLCNetV3:
        """Return a copy for inference in which all branches are folded; see `reparameterized`."""
        return reparameterized(self)
