"""Define SVTRv2, the backbone of PaddleOCR's larger recognisers (Du et al., arXiv 2411.15858)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
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
    SelfAttention,
    Size,
    linear,
    to_images,
    to_tokens,
)
from ppocr_ext.registry import BACKBONES


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

    # a subclass of the convolution: in PaddleOCR's checkpoints, the weights stand directly under the name of this layer
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

    A stage that changes from Conv to Global skips one number there: PaddleOCR has a layer without weights at this
    place, which counts in the names of its checkpoints.
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
        height = images.shape[2]
        width = images.shape[3]
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
    """Take the mean over the height, then apply a linear layer, Hardswish and dropout.

    As in PaddleOCR, the dropout scales its input in evaluation, by 1 - ``drop``, instead of in training.
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


CONV = "Conv"
GLOBAL = "Global"


@BACKBONES.register()
class SVTRv2(nn.Layer):
    """Apply stages of convolution and attention blocks to the patches of a text line.

    Keys, parameter names and numbers are PaddleOCR's. Deviations: ``drop_rate`` and
    ``attn_drop_rate`` have an effect (PaddleOCR ignores them), and a list of blocks that cannot run is
    an error when the network is built.

    Args:
        in_channels: channels of the image.
        dims: features of each stage.
        depths: blocks of each stage.
        num_heads: attention heads of each stage; also the groups of its convolutions.
        mixer: for each stage, ``Conv`` or ``Global`` for each block. Conv comes before Global, within
            a stage and from stage to stage, and a stage after one that ends in Conv begins with Conv.
        sub_k: strides (height, width) from each stage to the next; the last is not used.
        use_pos_embed: learned positions, for images up to ``max_sz`` (height, width).
        max_sz: see ``use_pos_embed``.
        kernel_size: the kernel size of the convolution blocks.
        padding: the padding of the convolution blocks; must keep the size.
        mlp_ratio: width of an MLP in multiples of the stage's features.
        qkv_bias: whether query, key and value have a bias.
        qk_scale: factor of the attention scores; ``head_dim ** -0.5`` by default.
        drop_rate: dropout in MLPs and after attention.
        attn_drop_rate: dropout of attention weights.
        drop_path_rate: stochastic depth of the last block; it grows linearly from the first.
        eps: the epsilon of the blocks' LayerNorms.
        last_stage: mean over the height and a linear layer to ``out_channels`` at the end.
        out_channels: see ``last_stage``.
        last_drop: dropout of ``last_stage``.
        use_pool: mean over the height and two columns at the end: one frame for 8 pixels.
        feat2d: return the last tokens as an image.
        local_k: accepted for official configs; PaddleOCR does not use it either.
        out_char_num: like ``local_k``.

    Raises:
        ModelError: the lists do not match, or such a network cannot run.
    """

    def __init__(
        self,
        in_channels: int = 3,
        dims: Sequence[int] = (64, 128, 256),
        depths: Sequence[int] = (3, 6, 3),
        num_heads: Sequence[int] = (2, 4, 8),
        mixer: Sequence[Sequence[str]] = ((CONV,) * 3, (CONV,) * 3 + (GLOBAL,) * 3, (GLOBAL,) * 3),
        sub_k: Sequence[Sequence[int]] = ((1, 1), (2, 1), (1, 1)),
        use_pos_embed: bool = False,
        max_sz: Sequence[int] = (32, 128),
        kernel_size: Sequence[int] = (5, 5),
        padding: Sequence[int] = (2, 2),
        mlp_ratio: float = 4,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        eps: float = 1e-6,
        last_stage: bool = False,
        out_channels: int = 192,
        last_drop: float = 0.1,
        use_pool: bool = False,
        feat2d: bool = False,
        local_k: Any = None,
        out_char_num: int | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(dims, depths, num_heads, mixer, sub_k, kernel_size, padding)
        _check_order(mixer)
        _check_end(mixer[-1][-1], last_stage, use_pool, feat2d)
        grid = (max_sz[0] // 4, max_sz[1] // 4) if use_pos_embed else None
        self.pope = PatchEmbedding(in_channels, dims[0], grid)

        def block(stage: int, kind: str, drop_path: float) -> MixingBlock:
            dim = dims[stage]
            heads = num_heads[stage]
            layer = (
                ConvMixer(dim, heads, kernel_size, padding)
                if kind == CONV
                else SelfAttention(dim, heads, qkv_bias, qk_scale, attn_drop_rate, drop_rate)
            )
            return MixingBlock(layer, dim, mlp_ratio, drop_rate, drop_path, eps, norm_after=True)

        drop_paths = iter(np.linspace(0, drop_path_rate, sum(depths)).tolist())
        self.stages = nn.LayerList()
        for i, kinds in enumerate(mixer):
            blocks = [block(i, kind, next(drop_paths)) for kind in kinds]
            down = SubSample(dims[i], dims[i + 1], sub_k[i]) if i + 1 < len(dims) else None
            self.stages.append(Stage(blocks, down))
        if last_stage:
            self.stages.append(LastStage(dims[-1], out_channels, last_drop))
        if use_pool:
            self.stages.append(OutPool())
        elif feat2d or mixer[-1][-1] == CONV:
            self.stages.append(Feat2D())
        self.out_channels = out_channels if last_stage else dims[-1]

    def forward(self, images: Tensor) -> Tensor:
        """Map images of text lines to features.

        Args:
            images: [B, in_channels, H, W].

        Returns:
            With ``use_pool``: [B, out_channels, 1, W / 8].
            With ``last_stage`` alone: [B, W / 4, out_channels].
            With ``feat2d``, or if the last block is Conv: [B, out_channels, H', W'].
            Otherwise: [B, H' * W', out_channels].
        """
        tokens, size = self.pope(images)
        for stage in self.stages:
            tokens, size = stage(tokens, size)
        return tokens


def _check_sizes(
    dims: Sequence[int],
    depths: Sequence[int],
    num_heads: Sequence[int],
    mixer: Sequence[Sequence[str]],
    sub_k: Sequence[Sequence[int]],
    kernel_size: Sequence[int],
    padding: Sequence[int],
) -> None:
    blocks = [len(kinds) for kinds in mixer]
    if {len(dims), len(num_heads), len(sub_k)} != {len(blocks)} or [*depths] != blocks or not all(blocks):
        raise ModelError(
            f"SVTRv2: dims, num_heads and sub_k need one entry for each stage, and depths the number of its blocks in "
            f"mixer, {blocks} (found depths {[*depths]}, and {len(dims)}, {len(num_heads)} and {len(sub_k)} entries).",
            code="length_mismatch",
        )
    for i, (dim, heads) in enumerate(zip(dims, num_heads, strict=True)):
        if dim % heads or dim % 2:
            raise ModelError(
                f"SVTRv2: dims[{i}] = {dim} must be even and a multiple of num_heads[{i}] = {heads}.",
                code="bad_value",
                key=("dims",),
            )
    if any(size != 2 * pad + 1 for size, pad in zip(kernel_size, padding, strict=True)):
        raise ModelError(
            f"SVTRv2: kernel_size {list(kernel_size)} with padding {list(padding)} changes the size of the "
            f"image. Fix: use an odd kernel, and half of it, rounded down, as padding.",
            code="bad_value",
            key=("kernel_size",),
        )


def _check_order(mixer: Sequence[Sequence[str]]) -> None:
    previous = CONV
    for i, kinds in enumerate(mixer):
        for j, kind in enumerate(kinds):
            where = f"SVTRv2: mixer[{i}][{j}]"
            if kind not in (CONV, GLOBAL):
                raise ModelError(
                    f"{where}: found {kind!r}, expected '{CONV}' or '{GLOBAL}'.",
                    code="bad_value",
                    key=("mixer",),
                )
            if kind == CONV and previous == GLOBAL:
                raise ModelError(
                    f"{where} is a Conv block after a Global one. Fix: put all Conv blocks first, in the stage "
                    f"and over the stages.",
                    code="bad_order",
                    key=("mixer",),
                )
            if kind == GLOBAL and previous == CONV and i > 0 and j == 0:
                raise ModelError(
                    f"{where}: a stage after one that ends in Conv must begin with Conv, since PaddleOCR "
                    f"changes to Global only inside a stage.",
                    code="bad_order",
                    key=("mixer",),
                )
            previous = kind


def _check_end(last: str, last_stage: bool, use_pool: bool, feat2d: bool) -> None:
    keys = [
        name for name, on in (("last_stage", last_stage), ("use_pool", use_pool), ("feat2d", feat2d)) if on
    ]
    if keys and last == CONV:
        raise ModelError(
            f"SVTRv2: {keys[0]} needs a network whose last block is Global, not Conv.",
            code="conflicting_keys",
            key=(keys[0],),
        )
    if use_pool and feat2d:
        raise ModelError(
            "SVTRv2: use_pool returns an image already. Fix: set feat2d: false.",
            code="conflicting_keys",
            key=("feat2d",),
        )
