"""Parts of the convolutional backbones: a convolution with BatchNorm, gates, pooling into frames, folding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Constant, Initializer, KaimingNormal
from paddle.regularizer import L2Decay

from ppocr_ext.base.parts import TRAIN_FRAMES
from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.layers import Conv2D, per_channel

Activation = Callable[[Tensor], Tensor]
Stride = int | tuple[int, int]
Network = TypeVar("Network", bound=nn.Layer)
EVAL_WINDOW = [3, 2]  # rows and columns that become one frame: an image of height 48 has 3 rows of features


class NormedConv(nn.Layer):
    """Apply a convolution without bias, BatchNorm and an activation.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the kernel size of the convolution, which is padded so that stride 1 keeps the size, unless
            `padding` is given.
        stride: the stride of the convolution, a number or (height, width).
        groups: the number of groups of the convolution.
        act: activation; None for none.
        padding: the padding of the convolution; `"SAME"` pads an even kernel on the right and below.
        lr_mult: learning rate multiplier of all parameters.
        scale: initial value of BatchNorm's weight; with 0 a residual branch starts at zero.

    Attributes:
        names: the names of convolution and BatchNorm in checkpoints.
        first_kernel: makes the initializer of the kernel.
        norm_decay: weight decay of the BatchNorm, 0 in most of PP-OCR's networks; None for the optimizer's.
    """

    names = ("conv", "bn")
    first_kernel: Callable[[], Initializer | None] = KaimingNormal
    norm_decay: float | None = 0.0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: Stride = 1,
        groups: int = 1,
        act: Activation | None = None,
        padding: int | str | None = None,
        lr_mult: float = 1.0,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        of_conv, of_norm = self.names
        conv = nn.Conv2D(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            (kernel_size - 1) // 2 if padding is None else padding,
            groups=groups,
            weight_attr=ParamAttr(initializer=self.first_kernel(), learning_rate=lr_mult),
            bias_attr=False,
        )
        self.add_sublayer(of_conv, conv)
        decay = None if self.norm_decay is None else L2Decay(self.norm_decay)
        norm = nn.BatchNorm2D(
            out_channels,
            weight_attr=ParamAttr(initializer=Constant(scale), learning_rate=lr_mult, regularizer=decay),
            bias_attr=ParamAttr(learning_rate=lr_mult, regularizer=decay),
        )
        self.add_sublayer(of_norm, norm)
        self.act = act

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        of_conv, of_norm = self.names
        features = getattr(self, of_norm)(getattr(self, of_conv)(images))
        return features if self.act is None else self.act(features)

    def kernel_and_bias(self) -> tuple[Tensor, Tensor]:
        """Return the kernel [O, I, k, k] and bias [O] of one convolution that equals both layers in eval mode."""
        conv, norm = (getattr(self, name) for name in self.names)
        factor, shift = affine(norm)
        return conv.weight * factor.reshape([-1, 1, 1, 1]), shift

    def fused(self) -> nn.Layer:
        """Return one convolution, followed by the activation."""
        conv = conv_like(getattr(self, self.names[0]), *self.kernel_and_bias())
        return conv if self.act is None else nn.Sequential(conv, _Function(self.act))


class DecayedConv(NormedConv):
    """A :class:`NormedConv` whose BatchNorm has the optimizer's weight decay."""

    norm_decay = None


class _Function(nn.Layer):
    def __init__(self, function: Activation) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)


class ChannelGate(nn.Layer):
    """Multiply each channel by a gate, computed from the means of all channels (Hu et al., 2018).

    Args:
        dim: channels.
        gate: hard sigmoid max(0, min(1, x / 6 + 0.5)) by default.
        lr_mult: learning rate multiplier of all parameters.
        names: the names of both convolutions in checkpoints.
    """

    def __init__(
        self,
        dim: int,
        gate: Activation = F.hardsigmoid,
        lr_mult: float = 1.0,
        names: Sequence[str] = ("conv1", "conv2"),
    ) -> None:
        super().__init__()
        attr = ParamAttr(learning_rate=lr_mult)
        self._names = tuple(names)
        self._gate = gate
        for name, sizes in zip(names, ((dim, dim // 4), (dim // 4, dim)), strict=True):
            self.add_sublayer(name, nn.Conv2D(*sizes, 1, weight_attr=attr, bias_attr=attr))

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, dim, H, W] to the same shape."""
        first, second = self._names
        mean = F.adaptive_avg_pool2d(images, 1)  # its gradient costs less on a CPU than that of mean()
        return images * self._gate(getattr(self, second)(F.relu(getattr(self, first)(mean))))


class FrameBackbone(nn.Layer):
    """Base of backbones that average features [B, C, H, W] into frames [B, C, 1, T].

    In eval mode 3 rows and 2 columns become one frame, so T = W / 2. In train mode PaddleOCR always makes 40 frames;
    with `"width"` there are W / 2 frames of all rows there too, so that long lines keep their frames. For images of
    48 x 320, both modes agree.

    Args:
        train_frames: frames in train mode, or `"width"`.

    Attributes:
        least_rows: the smallest number of rows of features in eval mode.

    Raises:
        ModelError: `train_frames` has another value; or, when called in eval mode, the features have too few rows.
    """

    least_rows = 1

    def __init__(self, train_frames: int | str) -> None:
        super().__init__()
        whole = isinstance(train_frames, int) and not isinstance(train_frames, bool) and train_frames > 0
        if not whole and train_frames != "width":
            raise ModelError(
                f"{type(self).__name__}: train_frames is {train_frames!r}, but must be a number of frames or `width`. "
                f"Fix: {TRAIN_FRAMES} is PaddleOCR's, `width` makes one frame for 8 pixels.",
                code="bad_value",
                key=("train_frames",),
            )
        self.train_frames = train_frames

    def features(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to features [B, C, H / 16, W / 4]: by all layers in a row."""
        for layer in self._sub_layers.values():
            images = layer(images)
        return images

    def forward(self, images: Tensor, for_training: bool | None = None) -> Tensor:
        """Map images [B, in_channels, H, W] to frames [B, out_channels, 1, T].

        `for_training` chooses the pooling, independent of the mode of BatchNorm and dropout; by default, the mode of
        the network does.
        """
        features = self.features(images)
        if self.training if for_training is None else for_training:
            if self.train_frames == "width":
                return F.avg_pool2d(features, [features.shape[2], 2])
            return F.adaptive_avg_pool2d(features, [1, self.train_frames])
        if features.shape[2] < self.least_rows:
            raise ModelError(
                f"{type(self).__name__} reads images of height 48 (found {images.shape[2]}, which gives "
                f"{features.shape[2]} rows of features; the pooling needs {self.least_rows}). Fix: "
                f"RecResizeImg.image_shape: [3, 48, {images.shape[3]}].",
                code="image_size",
            )
        return F.avg_pool2d(features, EVAL_WINDOW)


def affine(norm: nn.Layer) -> tuple[Tensor, Tensor]:
    """Return the factor and shift [C] that a BatchNorm applies in eval mode."""
    factor = norm.weight / paddle.sqrt(norm._variance + norm._epsilon)
    return factor, norm.bias - norm._mean * factor


def conv_like(conv: nn.Conv2D, kernel: Tensor, bias: Tensor) -> nn.Conv2D:
    """Return a convolution like `conv` with another kernel and bias."""
    fused = Conv2D(
        conv._in_channels,
        conv._out_channels,
        conv._kernel_size,
        conv._stride,
        conv._padding,
        groups=conv._groups,
    )
    fused.weight.set_value(kernel)
    fused.bias.set_value(bias)
    return fused


def padded(kernel: Tensor, size: int) -> Tensor:
    """Return a kernel [O, I, k, k] padded with zeros: [O, I, size, size]."""
    margin = (size - kernel.shape[-1]) // 2
    return F.pad(kernel, [margin] * 4) if margin else kernel


def identity_kernel(channels: int, groups: int, size: int) -> Tensor:
    """Return the kernel [channels, channels / groups, size, size] of the identity."""
    kernel = paddle.zeros([channels, channels // groups, size, size])
    for channel in range(channels):
        kernel[channel, channel % (channels // groups), size // 2, size // 2] = 1.0
    return kernel


class SummedDepthwise(nn.Layer):
    """Apply BatchNorm to the sum of a 3x3 and a 1x1 depthwise convolution and the image itself.

    Args:
        dim: channels.
        conv: builds the 3x3 convolution.
        bias: whether the 1x1 convolution has one.
    """

    def __init__(self, dim: int, conv: type[NormedConv], bias: bool) -> None:
        super().__init__()
        self.conv = conv(dim, dim, 3, groups=dim)
        # Holds the weights under PaddleOCR's names; a depthwise 1x1 convolution is a factor and a shift
        # for each channel, which takes a tenth of the time on a CPU.
        self.conv1 = nn.Conv2D(dim, dim, 1, groups=dim, bias_attr=None if bias else False)
        self.bn = nn.BatchNorm2D(dim)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, dim, H, W] to the same shape."""
        scaled = images * per_channel(self.conv1.weight.reshape([-1]) + 1.0, images)
        if self.conv1.bias is not None:
            scaled = scaled + per_channel(self.conv1.bias, images)
        return self.bn(self.conv(images) + scaled)

    def fused(self) -> nn.Conv2D:
        """Return one 3x3 depthwise convolution that is equal to all of it in eval mode."""
        kernel, bias = self.conv.kernel_and_bias()
        kernel = kernel + padded(self.conv1.weight + 1.0, 3)
        if self.conv1.bias is not None:
            bias = bias + self.conv1.bias
        factor, shift = affine(self.bn)
        conv = getattr(self.conv, self.conv.names[0])
        return conv_like(conv, kernel * factor.reshape([-1, 1, 1, 1]), bias * factor + shift)


def reparameterized(network: Network) -> Network:
    """Return a copy in eval mode, in which every layer with a method `fused` is replaced by its result.

    Outputs equal those of `network` in eval mode to about 1e-5. The copy has other names, so it is for inference only.
    """
    fused = copy.deepcopy(network)
    fuse_in_place(fused)
    fused.eval()
    return fused


def fused_network(network: Network) -> Network:
    """Return :func:`reparameterized` of a network, or the network itself in eval mode if it has nothing to fuse."""
    network.eval()
    return (
        reparameterized(network) if any(hasattr(each, "fused") for each in network.sublayers()) else network
    )


def fuse_in_place(layer: nn.Layer) -> None:
    """Replace every layer below ``layer`` that has a method `fused` by its result."""
    for name, child in list(layer.named_children()):
        if hasattr(child, "fused"):
            with paddle.no_grad():  # not a decorator, whose state a recursive call would overwrite
                layer.add_sublayer(name, child.fused())  # takes the child's place under its name
        else:
            fuse_in_place(child)


class FoldableBackbone(nn.Layer):
    """A backbone whose branches and BatchNorms fold into single convolutions for inference.

    Attributes:
        is_repped: whether :meth:`rep` was called.
    """

    is_repped = False

    def rep(self) -> None:
        """Fold the branches of this network in place; PaddleOCR's export calls this method."""
        if not self.is_repped:
            fuse_in_place(self)
            self.is_repped = True


def multiple_of(channels: float, step: int) -> int:
    """Round `channels` to a multiple of `step` that is at least 90 % of it, as MobileNets do."""
    rounded = max(step, int(channels + step / 2) // step * step)
    return rounded + step if rounded < 0.9 * channels else rounded


def check_length(values: Sequence[object], count: int, where: str) -> None:
    """Raise a ModelError unless `values`, the key `where` of a part, has `count` entries."""
    if len(values) != count:
        key = where.rpartition(".")[2]
        raise ModelError(
            f"{where} has {len(values)} entries, but must have {count}.", code="bad_value", key=(key,)
        )
