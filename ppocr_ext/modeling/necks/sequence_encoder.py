"""Map features to frames: the necks ``svtr`` (Du et al., arXiv 2205.00159) and ``reshape`` of PaddleOCR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.layers import ConvNorm, DropPath, Mlp, SelfAttention, to_images, to_tokens
from ppocr_ext.registry import NECKS, known_options


class PreNormBlock(nn.Layer):
    """Apply self-attention and an MLP, each with a LayerNorm before it and a residual around both."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float,
        qkv_bias: bool,
        qk_scale: float | None,
        drop: float,
        attn_drop: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, epsilon=1e-5)
        self.mixer = SelfAttention(dim, num_heads, qkv_bias, qk_scale, attn_drop, drop)
        self.norm2 = nn.LayerNorm(dim, epsilon=1e-5)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), F.silu, drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map [B, N, dim] to the same shape."""
        tokens = tokens + self.drop_path(self.mixer(self.norm1(tokens)))
        return tokens + self.drop_path(self.mlp(self.norm2(tokens)))


class SVTREncoder(nn.Layer):
    """Apply attention over the frames between convolutions, and concatenate the backbone's features.

    Args:
        in_channels: channels of the backbone.
        dims: output channels.
        depth: attention blocks.
        hidden_dims: width of the attention blocks; a multiple of ``num_heads``.
        use_guide: detach the backbone: no gradient of the CTC branch reaches it, and it learns only from
            the other branch (NRTR or SAR). In a model with a CTC head only, the backbone does not learn.
        num_heads: attention heads.
        qkv_bias: whether query, key and value have a bias.
        mlp_ratio: width of an MLP in multiples of ``hidden_dims``.
        drop_rate: dropout in MLPs and after attention.
        attn_drop_rate: dropout of attention weights.
        drop_path: stochastic depth.
        kernel_size: (height, width) of the first and the last convolution.
        qk_scale: factor of the attention scores; ``head_dim ** -0.5`` by default.

    Raises:
        ModelError: ``hidden_dims`` is not a multiple of ``num_heads``.
    """

    def __init__(
        self,
        in_channels: int,
        dims: int = 64,
        depth: int = 2,
        hidden_dims: int = 120,
        use_guide: bool = False,
        num_heads: int = 8,
        qkv_bias: bool = True,
        mlp_ratio: float = 2.0,
        drop_rate: float = 0.1,
        attn_drop_rate: float = 0.1,
        drop_path: float = 0.0,
        kernel_size: Sequence[int] = (3, 3),
        qk_scale: float | None = None,
    ) -> None:
        super().__init__()
        if hidden_dims % num_heads:
            raise ModelError(
                f"Neck svtr: hidden_dims = {hidden_dims} must be a multiple of num_heads = {num_heads}.",
                code="bad_value",
            )
        reduced = in_channels // 8
        kernel = tuple(kernel_size)
        padding = (kernel[0] // 2, kernel[1] // 2)
        self.use_guide = use_guide
        self.conv1 = ConvNorm(in_channels, reduced, kernel, padding=padding)
        self.conv2 = ConvNorm(reduced, hidden_dims)
        self.svtr_block = nn.LayerList(
            [
                PreNormBlock(
                    hidden_dims,
                    num_heads,
                    mlp_ratio,
                    qkv_bias,
                    qk_scale,
                    drop_rate,
                    attn_drop_rate,
                    drop_path,
                )
                for _ in range(depth)
            ]
        )
        self.norm = nn.LayerNorm(hidden_dims, epsilon=1e-6)
        self.conv3 = ConvNorm(hidden_dims, in_channels)
        self.conv4 = ConvNorm(2 * in_channels, reduced, kernel, padding=padding)
        self.conv1x1 = ConvNorm(reduced, dims)
        self.out_channels = dims

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to [B, dims, H, W]."""
        shortcut = images.detach() if self.use_guide else images
        hidden = self.conv2(self.conv1(shortcut))
        size = (hidden.shape[2], hidden.shape[3])
        tokens = to_tokens(hidden)
        for block in self.svtr_block:
            tokens = block(tokens)
        mixed = self.conv3(to_images(self.norm(tokens), size))
        return self.conv1x1(self.conv4(paddle.concat([shortcut, mixed], axis=1)))


ENCODERS = ("svtr", "reshape")  # PaddleOCR has others by this neck's name: `rnn`, `fc`, `cascadernn`, …


@NECKS.register()
class SequenceEncoder(nn.Layer):
    """Map features of height 1 to frames, after an optional encoder.

    Args:
        in_channels: channels of the backbone.
        encoder_type: ``reshape`` (no encoder) or ``svtr`` (:class:`SVTREncoder`). For any other,
            :func:`ppocr_ext.modeling.build_neck` builds the host's neck of this name.
        **options: options of the encoder.

    Raises:
        ModelError: another encoder is named.
        ConfigError: an option is misspelt.
    """

    def __init__(self, in_channels: int, encoder_type: str, **options: Any) -> None:
        super().__init__()
        self.encoder_type = encoder_type
        self.encoder: SVTREncoder | None = None
        self.out_channels = in_channels
        if encoder_type == "svtr":
            self.encoder = SVTREncoder(in_channels, **known_options(SVTREncoder, options, "neck svtr"))
            self.out_channels = self.encoder.out_channels
        elif encoder_type != "reshape":
            raise ModelError(
                f"Neck: found the encoder {encoder_type!r}, expected 'svtr' or 'reshape'. Fix: use one of them, or "
                f"a PaddleOCR checkout, which has others: `--host DIR`.",
                code="unsupported_component",
            )

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, 1, T] to frames [B, T, out_channels].

        Raises:
            ModelError: the height is not 1.
        """
        if len(images.shape) != 4 or images.shape[2] not in (1, -1):
            raise ModelError(
                f"Neck {self.encoder_type}: found features {list(images.shape)} of the backbone, expected "
                f"[B, C, 1, T]. Fix: let the backbone pool the height (SVTRv2: use_pool: true).",
                code="shape_mismatch",
            )
        if self.encoder is not None:
            images = self.encoder(images)
        return images.squeeze(2).transpose([0, 2, 1])
