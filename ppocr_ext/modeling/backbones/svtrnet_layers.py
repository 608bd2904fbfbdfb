"""Layers of SVTR: patches, mixers over the grid of tokens, and merging of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import KaimingNormal

from ppocr_ext.modeling.attention import HIDDEN
from ppocr_ext.modeling.layers import Size, to_images, to_tokens


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


def window_mask(grid: Size, window: Sequence[int]) -> np.ndarray:
    """Return [1, 1, N, N] with 0 where a token is within the window of another, ``HIDDEN`` elsewhere."""
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    near = np.ones((rows.size, rows.size), bool)
    for places, size in ((rows, window[0]), (columns, window[1])):
        offset = places[None, :] - places[:, None] + size // 2
        near &= (offset >= 0) & (offset < size)
    return np.where(near, 0.0, HIDDEN).astype(np.float32)[None, None]


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
