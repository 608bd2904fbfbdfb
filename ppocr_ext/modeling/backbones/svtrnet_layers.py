"""Layers of SVTR: patches, mixers over the grid of tokens, and merging of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import KaimingNormal

from ppocr_ext.modeling.attention import attend, merge_heads, split_heads
from ppocr_ext.modeling.layers import DropPath, Mlp, Size, linear, to_images, to_tokens


class PatchConv(nn.Layer):
    """A 3x3 convolution of stride 2 with bias, BatchNorm, GELU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2D(
            in_channels, out_channels, 3, 2, 1, weight_attr=ParamAttr(initializer=KaimingNormal())
        )
        self.norm = nn.BatchNorm2D(out_channels)

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to [B, out_channels, H / 2, W / 2]."""
        return F.gelu(self.norm(self.conv(images)))


class PatchEmbedding(nn.Layer):
    """Convolutions that turn an image into tokens of patches of 4 x 4 or 8 x 8 pixels."""

    def __init__(self, in_channels: int, dim: int, convolutions: int) -> None:
        super().__init__()
        widths = [in_channels, *(dim // 2 ** (convolutions - 1 - index) for index in range(convolutions))]
        self.proj = nn.Sequential(
            *[PatchConv(before, after) for before, after in zip(widths, widths[1:], strict=False)]
        )

    def forward(self, images: Tensor) -> Tensor:
        """[B, in_channels, H, W] to tokens [B, H' * W', dim]."""
        return to_tokens(self.proj(images))


class GridAttention(nn.Layer):
    """Self-attention of all tokens, or of those within a window of the grid around each.

    Args:
        dim: features of a token.
        heads: attention heads.
        grid: rows and columns of the tokens, for a window.
        window: rows and columns that a token attends to; None for all.
        qkv_bias: whether query, key and value have a bias.
        scale: of the scores; None for `head_dim ** -0.5`.
        attn_drop: dropout of the attention weights.
        drop: dropout of the output.
    """

    has_dropout = True

    def __init__(
        self,
        dim: int,
        heads: int,
        grid: Size,
        window: Sequence[int] | None,
        qkv_bias: bool,
        scale: float | None,
        attn_drop: float,
        drop: float,
    ) -> None:
        super().__init__()
        self.qkv = linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = linear(dim, dim)
        self._heads, self._scale = heads, scale or (dim // heads) ** -0.5
        self._attn_drop, self._drop = attn_drop, drop
        self._mask = None if window is None else paddle.to_tensor(_window_mask(grid, window))

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, dim] to the same shape."""
        query, key, value = split_heads(self.qkv(tokens), 3, self._heads)
        mixed = attend(query * self._scale, key, value, self._mask, self._attn_drop, self.training)
        return F.dropout(self.proj(merge_heads(mixed)), self._drop, training=self.training)


def _window_mask(grid: Size, window: Sequence[int]) -> np.ndarray:
    """Return [1, 1, N, N] with 0 where a token is within the window of another, minus infinity elsewhere."""
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    near = np.ones((rows.size, rows.size), bool)
    for places, size in ((rows, window[0]), (columns, window[1])):
        offset = places[None, :] - places[:, None] + size // 2
        near &= (offset >= 0) & (offset < size)
    return np.where(near, 0.0, -np.inf).astype(np.float32)[None, None]


class GridConv(nn.Layer):
    """Grouped convolution over the grid of tokens."""

    def __init__(self, dim: int, groups: int, grid: Size, window: Sequence[int]) -> None:
        super().__init__()
        self.local_mixer = nn.Conv2D(
            dim,
            dim,
            tuple(window),
            padding=(window[0] // 2, window[1] // 2),
            groups=groups,
            weight_attr=ParamAttr(initializer=KaimingNormal()),
        )
        self._grid = grid

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, dim] to the same shape."""
        return to_tokens(self.local_mixer(to_images(tokens, self._grid)))


class MixingBlock(nn.Layer):
    """A mixer and an MLP, each with a residual; LayerNorm after both, or before both.

    Args:
        mixer: maps tokens to tokens.
        dim: features of a token.
        mlp_ratio: width of the MLP in multiples of `dim`.
        drop: dropout in the MLP.
        drop_path: probability of skipping a branch.
        epsilon: of the LayerNorms.
        norm_after: True normalises the sum, False the input of each branch.
    """

    def __init__(
        self,
        mixer: nn.Layer,
        dim: int,
        mlp_ratio: float,
        drop: float,
        drop_path: float,
        epsilon: float,
        norm_after: bool,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=epsilon)
        self.mixer = mixer
        self.norm2 = nn.LayerNorm(dim, epsilon=epsilon)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), F.gelu, drop)
        self.drop_path = DropPath(drop_path)
        self._norm_after = norm_after

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, dim] to the same shape."""
        if self._norm_after:
            tokens = self.norm1(tokens + self.drop_path(self.mixer(tokens)))
            return self.norm2(tokens + self.drop_path(self.mlp(tokens)))
        tokens = tokens + self.drop_path(self.mixer(self.norm1(tokens)))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


class Merging(nn.Layer):
    """Halve the rows between two stages: by a convolution, or by pooling and a linear layer."""

    def __init__(self, kind: str, in_dim: int, out_dim: int, grid: Size) -> None:
        super().__init__()
        if kind == "Pool":
            self.proj = nn.Linear(in_dim, out_dim)
        else:
            self.conv = nn.Conv2D(
                in_dim, out_dim, 3, (2, 1), 1, weight_attr=ParamAttr(initializer=KaimingNormal())
            )
        self.norm = nn.LayerNorm(out_dim)
        self._pools, self._grid = kind == "Pool", grid

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, H * W, in_dim] to [B, H / 2 * W, out_dim]."""
        images = to_images(tokens, self._grid)
        if not self._pools:
            return self.norm(to_tokens(self.conv(images)))
        window = {"kernel_size": (3, 5), "stride": (2, 1), "padding": (1, 2)}
        pooled = 0.5 * (F.avg_pool2d(images, **window) + F.max_pool2d(images, **window))
        return self.norm(self.proj(to_tokens(pooled)))
