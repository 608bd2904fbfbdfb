"""Define layers that several networks share, such as attention in channel-major order.

Heads of attention are ``[B, heads, head_dim, N]``: the tokens of a line are columns. Paddle copies a transposed tensor
when it is read. On a CPU the copy from ``[B, N, heads, head_dim]`` to ``[B, heads, N, head_dim]`` takes longer than the
products, forward and backward. Swapping the last two of three axes is cheap, and the matrix products accept transposed
operands without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Initializer, KaimingUniform, TruncatedNormal

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.recompute import Recomputable

# Largest number of scores in memory at once, without gradients on a CPU: 8 MiB of float32. With more, every product
# needs new memory pages, which took half the time of a full-size SVTRv2 stage.
CPU_SCORES = 2**21
# The score of a hidden place. Its softmax is exactly 0. Minus infinity would be too, but Paddle's check of operators
# (Global.detect_anomaly) reports it.
HIDDEN = -1e30


def eager_on_cpu() -> bool:
    """Return whether operations run at once and on a CPU, where special forms are faster."""
    return paddle.in_dynamic_mode() and paddle.get_device() == "cpu"


def head_dim(dim: int, heads: int) -> int:
    """Return the features of an attention head.

    Raises:
        ModelError: they cannot be divided among the heads.
    """
    if heads < 1 or dim % heads:
        raise ModelError(
            f"{dim} features cannot be divided among {heads} heads of attention. Fix: make the width (dims, "
            f"hidden_dims, embed_dim, d_model) a multiple of num_heads (nhead).",
            code="bad_value",
        )
    return dim // heads


def split_heads(tokens: Tensor, parts: int, heads: int) -> list[Tensor]:
    """Cut ``tokens`` [B, N, parts * C] into ``parts`` tensors [B, heads, C / heads, N]."""
    columns = tokens.transpose([0, 2, 1])
    pieces = columns.split(parts, axis=1) if parts > 1 else [columns]
    size = tokens.shape[-1] // (parts * heads)
    return [piece.reshape([0, heads, size, -1]) for piece in pieces]


def merge_heads(heads: Tensor) -> Tensor:
    """Concatenate ``heads`` [B, heads, head_dim, N] again: [B, N, heads * head_dim]."""
    return heads.reshape([0, heads.shape[1] * heads.shape[2], -1]).transpose([0, 2, 1])


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    training: bool = False,
) -> Tensor:
    """Compute scaled dot-product attention (Vaswani et al., 2017, equation 1).

    Args:
        query: [B, heads, head_dim, Nq], already multiplied by the scale, which is cheaper than
            scaling the scores.
        key: [B, heads, head_dim, Nk].
        value: [B, heads, head_dim, Nk].
        mask: added to the scores, [1, 1, Nq, Nk].
        dropout: probability with which a weight of the attention is dropped.
        training: whether ``dropout`` is active.

    Returns:
        [B, heads, head_dim, Nq].
    """
    if not eager_on_cpu() or paddle.is_grad_enabled():
        return _attend(query, key, value, mask, dropout, training)
    scores_per_line = query.shape[1] * query.shape[-1] * key.shape[-1]
    lines = max(1, CPU_SCORES // max(1, scores_per_line))  # lines of the batch that are computed at once
    if lines >= query.shape[0]:
        return _attend(query, key, value, mask, dropout, training)
    parts = [slice(i, i + lines) for i in range(0, query.shape[0], lines)]
    return paddle.concat([_attend(query[p], key[p], value[p], mask, dropout, training) for p in parts])


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, training: bool
) -> Tensor:
    scores = paddle.matmul(query, key, transpose_x=True)
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)  # mixed precision makes the scores narrower
    weights = F.softmax(scores, axis=-1)
    if dropout > 0.0 and training:
        weights = F.dropout(weights, dropout)
    return paddle.matmul(value, weights, transpose_y=True)


Size = tuple[int, int]
Activation = Callable[[Tensor], Tensor]
# Standard deviation of the first weights of linear layers and position embeddings, as in ViT.
TRUNCATED_STD = 0.02


class Linear(nn.Linear):
    """Compute ``paddle.nn.Linear`` with a fast gradient of the bias on a CPU; same names, same numbers.

    For that gradient, Paddle sums over all tokens, which takes longer than the products on a CPU. Here the bias is the
    weight of one more input, which is always 1, so it is part of the product.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [..., in_features] to [..., out_features]."""
        inputs, outputs = self.weight.shape
        # with narrower outputs or few tokens, copying the input or the weights costs more than it saves
        if self.bias is None or not eager_on_cpu() or inputs > min(outputs, tokens.size // inputs):
            return F.linear(tokens, self.weight, self.bias)
        one = paddle.ones([*tokens.shape[:-1], 1], tokens.dtype)
        weights = paddle.concat([self.weight, self.bias.unsqueeze(0)], axis=0)
        return F.linear(paddle.concat([tokens, one], axis=-1), weights)


def linear(in_features: int, out_features: int, bias: bool = True) -> Linear:
    """Build a linear layer with weights from a truncated normal (std 0.02) and a bias of zeros."""
    attr = ParamAttr(initializer=TruncatedNormal(std=TRUNCATED_STD))
    return Linear(in_features, out_features, weight_attr=attr, bias_attr=None if bias else False)


def per_channel(values: Tensor, images: Tensor) -> Tensor:
    """Shape ``values`` [C] so that they combine with ``images`` [B, C, H, W].

    On a CPU the batch axis is expanded, since Paddle broadcasts [B, C, 1, 1] about ten times faster than [1, C, 1, 1].
    """
    shaped = values.astype(images.dtype).reshape([1, -1, 1, 1])
    if not eager_on_cpu():
        return shaped
    return shaped.expand([images.shape[0], -1, -1, -1])


class Conv2D(nn.Conv2D):
    """Compute ``paddle.nn.Conv2D`` with a fast sum of the bias on a CPU; same names, same numbers."""

    def forward(self, images: Tensor) -> Tensor:
        """Convolve ``images`` [B, C, H, W]."""
        apart = self.bias is not None and eager_on_cpu()
        features = F.conv2d(
            images,
            self.weight,
            None if apart else self.bias,
            stride=self._stride,
            padding=self._padding,
            dilation=self._dilation,
            groups=self._groups,
        )
        return features + per_channel(self.bias, features) if apart else features


class ConvNorm(nn.Layer):
    """Apply convolution, BatchNorm and activation.

    Args:
        in_channels: input channels.
        out_channels: output channels.
        kernel_size: one number or (height, width).
        stride: the stride of the convolution.
        padding: one number or (height, width).
        bias: whether the convolution has one, although BatchNorm follows.
        act: activation.
        kernel: makes the initializer of the kernel.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int] = 1,
        stride: int = 1,
        padding: int | Sequence[int] = 0,
        bias: bool = False,
        act: Activation = F.silu,
        kernel: type[Initializer] = KaimingUniform,
    ) -> None:
        super().__init__()
        self.conv = Conv2D(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            weight_attr=ParamAttr(initializer=kernel()),
            bias_attr=None if bias else False,
        )
        self.norm = nn.BatchNorm2D(out_channels)
        self.act = act

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, out_channels, H', W']."""
        return self.act(self.norm(self.conv(images)))


class Mlp(nn.Layer):
    """Apply two linear layers with an activation between them and dropout after each.

    Args:
        dim: input and output features.
        hidden: features between the layers.
        act: activation.
        drop: dropout probability.
        make_linear: builds a linear layer from (in, out); it decides the initial weights.
    """

    has_dropout = True

    def __init__(
        self,
        dim: int,
        hidden: int,
        act: Activation,
        drop: float = 0.0,
        make_linear: Callable[[int, int], nn.Linear] = linear,
    ) -> None:
        super().__init__()
        self.fc1 = make_linear(dim, hidden)
        self.fc2 = make_linear(hidden, dim)
        self.act = act
        self.drop = drop

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, N, dim] to the same shape."""
        hidden = self._dropped(self.act(self.fc1(tokens)))
        return self._dropped(self.fc2(hidden))

    def _dropped(self, tokens: Tensor) -> Tensor:
        return F.dropout(tokens, self.drop, training=self.training) if self.drop > 0.0 else tokens


class DropPath(nn.Layer):
    """Apply stochastic depth (Huang et al., 2016). In training a line skips the branch with probability ``p``.

    The lines that are kept are divided by 1 - ``p``, so that evaluation needs no scaling.
    """

    has_dropout = True

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = float(p)

    def forward(self, branch: Tensor) -> Tensor:
        """Drop whole lines of ``branch`` [B, N, C]."""
        if self.p == 0.0 or not self.training:
            return branch
        keep = 1.0 - self.p
        drawn = paddle.rand([branch.shape[0], 1, 1])
        return branch * ((drawn < keep).astype("float32") / keep).astype(branch.dtype)


class SelfAttention(nn.Layer):
    """Apply multi-head self-attention over all tokens of a line.

    Args:
        dim: features of a token.
        num_heads: heads; must divide ``dim``.
        qkv_bias: whether query, key and value have a bias.
        scale: factor of the scores; ``head_dim ** -0.5`` by default.
        attn_drop: dropout of the attention weights.
        proj_drop: dropout of the output.
        mask: added to the scores, [1, 1, N, N], if any.
    """

    has_dropout = True

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_bias: bool = True,
        scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        mask: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = scale or head_dim(dim, num_heads) ** -0.5
        self.attn_drop = attn_drop
        self.proj_drop = proj_drop
        self.qkv = linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = linear(dim, dim)
        self._mask = mask

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, N, dim] to the same shape."""
        query, key, value = split_heads(self.qkv(tokens), 3, self.num_heads)
        mixed = attend(query * self.scale, key, value, self._mask, self.attn_drop, self.training)
        mixed = self.proj(merge_heads(mixed))
        return F.dropout(mixed, self.proj_drop, training=self.training) if self.proj_drop > 0.0 else mixed


class MixingBlock(Recomputable):
    """A mixer and an MLP, each with a residual; LayerNorm after both, or before both.

    Attributes:
        mixer_name: the name of the mixer in checkpoints.

    Args:
        mixer: maps tokens, and their (H, W) if it is given, to tokens.
        dim: features of a token.
        mlp_ratio: width of the MLP in multiples of `dim`.
        drop: dropout in the MLP.
        drop_path: probability of skipping a branch.
        epsilon: the epsilon of the LayerNorms.
        norm_after: True normalises the sum, False the input of each branch.
        act: activation of the MLP.
    """

    mixer_name = "mixer"

    def __init__(
        self,
        mixer: nn.Layer,
        dim: int,
        mlp_ratio: float,
        drop: float,
        drop_path: float,
        epsilon: float,
        norm_after: bool,
        act: Activation = F.gelu,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=epsilon)
        self.add_sublayer(self.mixer_name, mixer)
        self.norm2 = nn.LayerNorm(dim, epsilon=epsilon)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act, drop)
        self.drop_path = DropPath(drop_path)
        self._norm_after = norm_after

    def forward(self, tokens: Tensor, *size: Size) -> Tensor:
        """Map [B, N, dim] to the same shape; with (H, W) if the mixer takes it."""
        mixer = getattr(self, self.mixer_name)
        if self._norm_after:
            tokens = self.norm1(tokens + self.drop_path(mixer(tokens, *size)))
            return self.norm2(tokens + self.drop_path(self.mlp(tokens)))
        tokens = tokens + self.drop_path(mixer(self.norm1(tokens), *size))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


def to_images(tokens: Tensor, size: Size) -> Tensor:
    """Reshape [B, H * W, C] to [B, C, H, W]."""
    return tokens.transpose([0, 2, 1]).reshape([0, tokens.shape[-1], size[0], size[1]])


def to_tokens(images: Tensor) -> Tensor:
    """Reshape [B, C, H, W] to [B, H * W, C]."""
    return images.flatten(2).transpose([0, 2, 1])
