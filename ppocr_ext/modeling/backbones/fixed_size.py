"""Transformer backbones for images of one size: SVTR (arXiv 2205.00159) and a Vision Transformer (arXiv 2010.11929)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Constant, KaimingNormal, TruncatedNormal

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling.layers import (
    HIDDEN,
    TRUNCATED_STD,
    Conv2D,
    ConvNorm,
    MixingBlock,
    SelfAttention,
    Size,
    to_images,
    to_tokens,
)
from ppocr_ext.registry import BACKBONES


def require_size(images: Tensor, size: Size, owner: str) -> None:
    """Check that images [B, C, H, W] have the fixed ``size`` of the backbone ``owner``.

    Raises:
        ModelError: they have another size.
    """
    if tuple(images.shape[2:]) != size:
        raise ModelError(
            f"{owner} reads only images of {size[0]}x{size[1]} (found {images.shape[2]}x{images.shape[3]}). Fix: set "
            f"Backbone.img_size to the size of RecResizeImg.image_shape, or of STN_ON.tps_outputsize.",
            code="image_size",
        )


class PatchEmbedding(nn.Layer):
    """Convolutions that turn an image into tokens of patches of 4 x 4 or 8 x 8 pixels."""

    def __init__(self, in_channels: int, dim: int, convolutions: int) -> None:
        super().__init__()
        widths = [in_channels, *(dim // 2 ** (convolutions - 1 - index) for index in range(convolutions))]
        self.proj = nn.Sequential(
            *[
                ConvNorm(before, after, 3, 2, 1, bias=True, act=F.gelu, kernel=KaimingNormal)
                for before, after in pairwise(widths)
            ]
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to tokens [B, H' * W', dim]."""
        return to_tokens(self.proj(images))


def window_mask(grid: Size, window: Sequence[int]) -> np.ndarray:
    """Return a mask [1, 1, N, N]: 0 for a token within the window of the other, ``HIDDEN`` for all others."""
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
        """Map [B, N, dim] to the same shape."""
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
        self._pools = kind == "Pool"
        self._grid = grid

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, H * W, in_dim] to [B, H / 2 * W, out_dim]."""
        images = to_images(tokens, self._grid)
        if not self._pools:
            return self.norm(to_tokens(self.conv(images)))
        window = {"kernel_size": (3, 5), "stride": (2, 1), "padding": (1, 2)}
        pooled = 0.5 * (F.avg_pool2d(images, **window) + F.max_pool2d(images, **window))
        return self.norm(self.proj(to_tokens(pooled)))


MIXERS = ("Global", "Local", "Conv")
MERGES = ("Conv", "Pool", None)


@BACKBONES.register()
class SVTRNet(nn.Layer):
    """Transformer backbone of SVTR for images of one size.

    Args:
        img_size: height and width of all images, pixels.
        in_channels: channels of the image.
        embed_dim: features of a token in each of the three stages.
        depth: blocks of each stage.
        num_heads: attention heads of each stage.
        mixer: the mixer of each block: `"Global"`, `"Local"` (attention in a window) or `"Conv"`. Those after the last
            block are ignored, as in PaddleOCR.
        local_mixer: rows and columns of the window, by stage.
        patch_merging: `"Conv"`, `"Pool"`, or None to keep all rows.
        mlp_ratio: width of the MLPs in multiples of their input.
        qkv_bias: whether query, key and value have a bias.
        qk_scale: the scale of the attention scores; None for `head_dim ** -0.5`.
        drop_rate: dropout of tokens.
        last_drop: dropout of the output.
        attn_drop_rate: dropout of attention weights.
        drop_path_rate: probability of skipping a branch in the last block; it grows linearly.
        epsilon: the epsilon of the LayerNorms in the blocks.
        out_channels: features of a frame.
        out_char_num: frames.
        last_stage: True averages into `out_char_num` frames; False returns all tokens.
        sub_num: convolutions of the patch embedding, 2 or 3.
        prenorm: PaddleOCR's name: True puts the LayerNorms after the mixers.

    Raises:
        ConfigError: a mixer or merging is unknown, or there are fewer mixers than blocks.
        ModelError: images of another size (when called).
    """

    def __init__(
        self,
        img_size: Sequence[int] = (32, 100),
        in_channels: int = 3,
        embed_dim: Sequence[int] = (64, 128, 256),
        depth: Sequence[int] = (3, 6, 3),
        num_heads: Sequence[int] = (2, 4, 8),
        mixer: Sequence[str] = ("Local",) * 6 + ("Global",) * 6,
        local_mixer: Sequence[Sequence[int]] = ((7, 11), (7, 11), (7, 11)),
        patch_merging: str | None = "Conv",
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        drop_rate: float = 0.0,
        last_drop: float = 0.1,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        epsilon: float = 1e-6,
        out_channels: int = 192,
        out_char_num: int = 25,
        last_stage: bool = True,
        sub_num: int = 2,
        prenorm: bool = True,
    ) -> None:
        super().__init__()
        _check(mixer[: sum(depth)], depth, patch_merging)
        self._size: Size = (int(img_size[0]), int(img_size[1]))
        rows, columns = (edge // 2**sub_num for edge in self._size)
        self.patch_embed = PatchEmbedding(in_channels, embed_dim[0], sub_num)
        self.pos_embed = self.create_parameter(
            [1, rows * columns, embed_dim[0]],
            ParamAttr(initializer=TruncatedNormal(std=TRUNCATED_STD)),
        )
        self.pos_drop = nn.Dropout(drop_rate)
        skips = np.linspace(0, drop_path_rate, sum(depth))
        first = 0
        for stage, (dim, count, heads, window) in enumerate(
            zip(embed_dim, depth, num_heads, local_mixer, strict=True), start=1
        ):
            blocks = []
            for index in range(first, first + count):
                grid = (rows, columns)
                attention = (qkv_bias, qk_scale, attn_drop_rate, drop_rate)
                layer = _mixer(mixer[index], dim, heads, grid, window, attention)
                skip = float(skips[index])
                blocks.append(MixingBlock(layer, dim, mlp_ratio, drop_rate, skip, epsilon, prenorm))
            self.add_sublayer(f"blocks{stage}", nn.LayerList(blocks))
            first += count
            if patch_merging is not None and stage < len(embed_dim):
                merging = Merging(patch_merging, dim, embed_dim[stage], (rows, columns))
                self.add_sublayer(f"sub_sample{stage}", merging)
                rows //= 2
        self._grid = (rows, columns)
        self._frames = out_char_num
        # this mode scales in evaluation; trained weights depend on that
        self.last_dropout = nn.Dropout(last_drop, mode="downscale_in_infer")
        self.last_conv = nn.Conv2D(embed_dim[-1], out_channels, 1, bias_attr=False) if last_stage else None
        self.norm = None if prenorm else nn.LayerNorm(embed_dim[-1], epsilon=epsilon)
        self.out_channels = out_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to frames [B, out_channels, 1, T], or all tokens [B, N, embed_dim[-1]]."""
        require_size(images, self._size, "SVTRNet")
        tokens = self.pos_drop(self.patch_embed(images) + self.pos_embed)
        for stage in (1, 2, 3):
            for block in getattr(self, f"blocks{stage}"):
                tokens = block(tokens)
            if hasattr(self, f"sub_sample{stage}"):
                tokens = getattr(self, f"sub_sample{stage}")(tokens)
        if self.norm is not None:
            tokens = self.norm(tokens)
        if self.last_conv is None:
            return tokens
        pooled = F.adaptive_avg_pool2d(to_images(tokens, self._grid), [1, self._frames])
        return self.last_dropout(F.hardswish(self.last_conv(pooled)))


def _mixer(
    kind: str,
    dim: int,
    heads: int,
    grid: Size,
    window: Sequence[int],
    attention: tuple[bool, float | None, float, float],
) -> nn.Layer:
    """Return the mixer of one block; ``attention`` has further arguments of :class:`SelfAttention`."""
    if kind == "Conv":
        return GridConv(dim, heads, grid, window)
    mask = paddle.to_tensor(window_mask(grid, window)) if kind == "Local" else None
    return SelfAttention(dim, heads, *attention, mask)


def _check(mixer: Sequence[str], depth: Sequence[int], merging: str | None) -> None:
    unknown = [name for name in mixer if name not in MIXERS]
    if unknown or merging not in MERGES:
        raise ConfigError(
            f"SVTRNet: mixer must be of {', '.join(MIXERS)} and patch_merging Conv, Pool or null (found "
            f"{unknown or merging}).",
            code="bad_value",
        )
    if len(mixer) != sum(depth):
        raise ConfigError(
            f"SVTRNet.mixer has {len(mixer)} entries, but depth has {sum(depth)} blocks.",
            code="bad_value",
            key=("mixer",),
        )


class PatchEmbed(nn.Layer):
    """Apply one convolution with a stride equal to its size, which makes a token of each patch.

    Args:
        in_channels: channels of the image.
        dim: features of a token.
        patch_size: height and width of a patch, pixels.
    """

    def __init__(self, in_channels: int, dim: int, patch_size: Size) -> None:
        super().__init__()
        self.proj = Conv2D(in_channels, dim, patch_size, patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, H' * W', dim], row by row."""
        return to_tokens(self.proj(images))


class ConvEmbed(nn.Layer):
    """Apply three 3x3 convolutions in place of one of the patch's size (Xiao et al., arXiv 2106.14881).

    They combine neighbouring pixels before the attention, so the network learns from far fewer images.

    Args:
        in_channels: channels of the image.
        dim: features of a token, a multiple of 4; the first two convolutions have a quarter and half of them.
        patch_size: height and width of a patch, pixels; each 1, 2, 4 or 8.
    """

    def __init__(self, in_channels: int, dim: int, patch_size: Size) -> None:
        super().__init__()
        widths = [in_channels, dim // 4, dim // 2, dim]
        layers: list[nn.Layer] = []
        for index in range(3):
            stride = [2 if edge >= 2 ** (index + 1) else 1 for edge in patch_size]
            layers += [
                Conv2D(widths[index], widths[index + 1], 3, stride, 1, bias_attr=False),
                nn.BatchNorm2D(widths[index + 1]),
            ]
            layers += [nn.ReLU()] if index < 2 else []
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, H' * W', dim], row by row."""
        return to_tokens(self.layers(images))


class ViTBlock(MixingBlock):
    """A block with LayerNorms before attention and MLP; the attention has the name of ViT's checkpoints."""

    mixer_name = "attn"


@BACKBONES.register()
class ViTParseQ(nn.Layer):
    """Cut an image of fixed size into patches, add learned positions, and let all patches attend to each other.

    A decoder attends to its tokens [B, N, embed_dim]: the ``Transformer`` head with ``d_model`` equal to ``embed_dim``,
    or a head of PaddleOCR such as ``ParseQHead``. They are not frames, so CTC cannot read them.

    Args:
        img_size: height and width of all images, pixels; multiples of ``patch_size``.
        patch_size: height and width of a patch, pixels.
        in_channels: channels of the image.
        embed_dim: features of a token, a multiple of ``num_heads``.
        depth: blocks.
        num_heads: attention heads.
        mlp_ratio: width of the MLPs in multiples of ``embed_dim``.
        qkv_bias: whether query, key and value have a bias.
        drop_rate: dropout of tokens.
        attn_drop_rate: dropout of attention weights.
        drop_path_rate: probability of skipping a branch in the last block; it grows linearly.
        conv_stem: embed patches by three small convolutions; PaddleOCR lacks this key.

    Raises:
        ConfigError: the sizes do not divide each other, or do not fit ``conv_stem``.
    """

    def __init__(
        self,
        img_size: Sequence[int] = (224, 224),
        patch_size: Sequence[int] = (16, 16),
        in_channels: int = 3,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        conv_stem: bool = False,
    ) -> None:
        super().__init__()
        self._size = _size("img_size", img_size)
        patch = _size("patch_size", patch_size)
        if any(edge % part for edge, part in zip(self._size, patch, strict=True)):
            raise ConfigError(
                f"ViTParseQ: img_size must be a multiple of patch_size (found {self._size} and {patch}).",
                code="bad_value",
            )
        if conv_stem and (embed_dim % 4 or not {*patch} <= {1, 2, 4, 8}):
            raise ConfigError(
                f"ViTParseQ: conv_stem needs a patch_size of 1, 2, 4 or 8, and an embed_dim that is a multiple of 4 "
                f"(found {patch} and {embed_dim}).",
                code="bad_value",
            )
        tokens = (self._size[0] // patch[0]) * (self._size[1] // patch[1])
        self.patch_embed = (ConvEmbed if conv_stem else PatchEmbed)(in_channels, embed_dim, patch)
        drawn = ParamAttr(initializer=TruncatedNormal(std=TRUNCATED_STD))
        self.pos_embed = self.create_parameter([1, tokens, embed_dim], drawn)
        # PaddleOCR's checkpoints have it, but no output depends on it
        self.cls_token = self.create_parameter(
            [1, 1, embed_dim], ParamAttr(initializer=Constant(0.0), trainable=False)
        )
        self.pos_drop = nn.Dropout(drop_rate)
        self.blocks = nn.LayerList(
            [
                ViTBlock(
                    SelfAttention(embed_dim, num_heads, qkv_bias, None, attn_drop_rate, drop_rate),
                    embed_dim,
                    mlp_ratio,
                    drop_rate,
                    float(skip),
                    epsilon=1e-5,
                    norm_after=False,
                )
                for skip in np.linspace(0, drop_path_rate, depth)
            ]
        )
        self.norm = nn.LayerNorm(embed_dim, epsilon=1e-5)
        self.out_channels = embed_dim

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, in_channels, H, W] to tokens [B, N, embed_dim], row by row."""
        require_size(images, self._size, "ViTParseQ")
        tokens = self.pos_drop(self.patch_embed(images) + self.pos_embed)
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens)


def _size(key: str, given: Sequence[int]) -> Size:
    """Return height and width.

    Raises:
        ConfigError: the value is not a list of two positive whole numbers.
    """
    if (
        not isinstance(given, list | tuple)
        or len(given) != 2
        or not all(type(n) is int and n > 0 for n in given)
    ):
        raise ConfigError(
            f"ViTParseQ.{key} is {given!r}, but must be height and width in pixels, as in [32, 128].",
            code="bad_value",
            key=(key,),
        )
    return given[0], given[1]
