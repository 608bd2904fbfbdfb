"""Define the layers of SVTRv2. All of them take tokens [B, H * W, C]; a convolution takes them as an image."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import KaimingNormal, TruncatedNormal

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.layers import (
    TRUNCATED_STD,
    Conv2D,
    ConvNorm,
    MixingBlock,
    Size,
    linear,
    to_images,
    to_tokens,
)


class ConvMixer(Conv2D):
    """Apply a grouped convolution to a line's tokens, as an image."""

    def __init__(self, dim: int, groups: int, kernel_size: Sequence[int], padding: Sequence[int]) -> None:
        super().__init__(
            dim,
            dim,
            tuple(kernel_size),
            padding=tuple(padding),
            groups=groups,
            weight_attr=ParamAttr(initializer=KaimingNormal()),
        )

    # a convolution itself, not a layer that has one: PaddleOCR's checkpoints have its weights under its own name
    def forward(self, tokens: Tensor, size: Size) -> Tensor:  # type: ignore[override]
        """Map [B, H * W, dim] to the same shape; ``size`` is (H, W)."""
        return to_tokens(super().forward(to_images(tokens, size)))


class SubSample(nn.Layer):
    """Apply a 3×3 convolution with a stride and a LayerNorm, between two stages."""

    def __init__(self, in_channels: int, out_channels: int, stride: Sequence[int]) -> None:
        super().__init__()
        self.conv = Conv2D(
            in_channels,
            out_channels,
            3,
            stride=tuple(stride),
            padding=1,
            weight_attr=ParamAttr(initializer=KaimingNormal()),
        )
        self.norm = nn.LayerNorm(out_channels)

    def forward(self, tokens: Tensor, size: Size) -> tuple[Tensor, Size]:
        """Map [B, H * W, in_channels] to [B, H' * W', out_channels] and (H', W')."""
        images = self.conv(to_images(tokens, size))
        return self.norm(to_tokens(images)), (images.shape[2], images.shape[3])


class Stage(nn.Layer):
    """Apply blocks of one width, then the convolution to the next stage.

    A stage that changes from Conv to Global skips one number at the change: PaddleOCR has a
    layer without weights there, which counts in the names of its checkpoints.
    """

    def __init__(self, blocks: Sequence[MixingBlock], downsample: SubSample | None) -> None:
        super().__init__()
        self.blocks = nn.LayerDict()
        first = _mixes_images(blocks[0])
        for index, block in enumerate(blocks):
            skipped = 1 if first and not _mixes_images(block) else 0
            self.blocks[str(index + skipped)] = block
        self.downsample = downsample

    def forward(self, tokens: Tensor, size: Size) -> tuple[Tensor, Size]:
        """Map [B, H * W, C] and (H, W) to those of the next stage."""
        for block in self.blocks.values():
            tokens = block(tokens, size) if _mixes_images(block) else block(tokens)
        return (tokens, size) if self.downsample is None else self.downsample(tokens, size)


def _mixes_images(block: MixingBlock) -> bool:
    return isinstance(block.mixer, ConvMixer)


class PositionEmbedding(nn.Layer):
    """Add a learned value to every position of the patch grid.

    Args:
        dim: features.
        grid: largest (rows, columns).
    """

    def __init__(self, dim: int, grid: Size) -> None:
        super().__init__()
        self.grid = grid
        self.pos_embed = self.create_parameter(
            [1, dim, *grid], default_initializer=TruncatedNormal(std=TRUNCATED_STD)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Add the embedding to ``images`` [B, dim, H, W].

        Raises:
            ModelError: the image has more patches than ``max_sz`` allows.
        """
        height, width = images.shape[2], images.shape[3]
        if paddle.in_dynamic_mode() and (height > self.grid[0] or width > self.grid[1]):
            raise ModelError(
                f"SVTRv2 with use_pos_embed: the image has {height}x{width} patches, but max_sz allows "
                f"{self.grid[0]}x{self.grid[1]}. Fix: increase Backbone.max_sz or use smaller images.",
                code="image_too_large",
            )
        return images + self.pos_embed[:, :, :height, :width]


class PatchEmbedding(nn.Layer):
    """Apply two convolutions of stride 2, which map an image to a grid of patches, a quarter as high and wide."""

    def __init__(self, in_channels: int, dim: int, grid: Size | None) -> None:
        super().__init__()
        self.patch_embed = nn.Sequential(
            ConvNorm(in_channels, dim // 2, 3, stride=2, padding=1, bias=True, act=F.gelu),
            ConvNorm(dim // 2, dim, 3, stride=2, padding=1, bias=True, act=F.gelu),
        )
        if grid is not None:
            self.patch_embed.add_sublayer("2", PositionEmbedding(dim, grid))

    def forward(self, images: Tensor) -> tuple[Tensor, Size]:
        """Map [B, in_channels, H, W] to tokens [B, H / 4 * W / 4, dim] and (H / 4, W / 4)."""
        patches = self.patch_embed(images)
        return to_tokens(patches), (patches.shape[2], patches.shape[3])


class LastStage(nn.Layer):
    """Apply the mean over the height, a linear layer, Hardswish and dropout.

    PaddleOCR's dropout here scales by 1 - ``drop`` in evaluation.
    """

    has_dropout = True

    def __init__(self, in_channels: int, out_channels: int, drop: float) -> None:
        super().__init__()
        # a linear layer, but `last_conv` is its name in PaddleOCR's checkpoints
        self.last_conv = linear(in_channels, out_channels, bias=False)
        self.drop = drop

    def forward(self, tokens: Tensor, size: Size) -> tuple[Tensor, Size]:
        """Map [B, H * W, in_channels] to [B, W, out_channels] and (1, W)."""
        columns = tokens.reshape([0, size[0], size[1], tokens.shape[-1]]).mean(1)
        features = F.hardswish(self.last_conv(columns))
        features = F.dropout(features, self.drop, training=self.training, mode="downscale_in_infer")
        return features, (1, size[1])


class OutPool(nn.Layer):
    """Take the mean over the whole height and every two columns."""

    def forward(self, tokens: Tensor, size: Size) -> tuple[Tensor, Size]:
        """Map [B, H * W, C] to [B, C, 1, W / 2] and (1, W / 2)."""
        pooled = F.avg_pool2d(to_images(tokens, size), [size[0], 2])
        return pooled, (1, pooled.shape[3])


class Feat2D(nn.Layer):
    """Return tokens as an image."""

    def forward(self, tokens: Tensor, size: Size) -> tuple[Tensor, Size]:
        """Map [B, H * W, C] to [B, C, H, W]."""
        return to_images(tokens, size), size
