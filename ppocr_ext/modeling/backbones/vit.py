"""Vision Transformer for text lines, as PaddleOCR's ``ViTParseQ`` has it (Dosovitskiy et al., arXiv 2010.11929)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Constant, TruncatedNormal

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.layers import (
    TRUNCATED_STD,
    Conv2D,
    MixingBlock,
    SelfAttention,
    Size,
    require_size,
    to_tokens,
)
from ppocr_ext.registry import BACKBONES


class PatchEmbed(nn.Layer):
    """One convolution whose stride is its size: a token for each patch.

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
    """Three convolutions of 3x3 in place of one of the patch's size (Xiao et al., arXiv 2106.14881).

    Neighbouring pixels meet before the attention, so it learns from far fewer images.

    Args:
        in_channels: channels of the image.
        dim: features of a token, a multiple of 4; the convolutions before have a quarter and half of them.
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
    """Self-attention and an MLP, each with a LayerNorm before it; the attention is named as in ViT's checkpoints."""

    mixer_name = "attn"


@BACKBONES.register()
class ViTParseQ(nn.Layer):
    """Cut an image of fixed size into patches, add learned positions, and let all patches attend to each other.

    Its tokens [B, N, embed_dim] are what a decoder attends to: the ``Transformer`` head with ``d_model`` equal to
    ``embed_dim``, or a head of PaddleOCR such as ``ParseQHead``. There are no frames, so CTC cannot read them.

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
        conv_stem: embed patches by three small convolutions; PaddleOCR has no such key.

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
        # in PaddleOCR's checkpoints, but no output depends on it
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
    """Return height and width as numbers.

    Raises:
        ConfigError: they are not two positive whole numbers.
    """
    if (
        not isinstance(given, list | tuple)
        or len(given) != 2
        or not all(type(n) is int and n > 0 for n in given)
    ):
        raise ConfigError(
            f"ViTParseQ.{key} is {given!r}, but must be height and width in pixels, as in [32, 128].",
            code="bad_value",
        )
    return given[0], given[1]
