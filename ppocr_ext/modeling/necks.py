"""Necks: map the features of a backbone to a sequence of frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.layers import ConvNorm, MixingBlock, SelfAttention, to_images, to_tokens
from ppocr_ext.registry import NECKS, known_options


def pre_norm_block(
    dim: int,
    num_heads: int,
    mlp_ratio: float,
    qkv_bias: bool,
    qk_scale: float | None,
    drop: float,
    attn_drop: float,
    drop_path: float,
) -> MixingBlock:
    """Build self-attention and an MLP, each with a LayerNorm before it and a residual around both."""
    mixer = SelfAttention(dim, num_heads, qkv_bias, qk_scale, attn_drop, drop)
    return MixingBlock(mixer, dim, mlp_ratio, drop, drop_path, 1e-5, False, F.silu)


class SVTREncoder(nn.Layer):
    """Apply attention over the frames between convolutions, and concatenate the backbone's features.

    Args:
        in_channels: channels of the backbone.
        dims: output channels.
        depth: attention blocks.
        hidden_dims: width of the attention blocks; a multiple of ``num_heads``.
        use_guide: detach the backbone. Then it gets no gradient of the CTC branch, and learns only from the other
            branch (NRTR or SAR). In a model with only a CTC head, the backbone does not learn.
        num_heads: attention heads.
        qkv_bias: whether query, key and value have a bias.
        mlp_ratio: width of an MLP in multiples of ``hidden_dims``.
        drop_rate: dropout in MLPs and after attention.
        attn_drop_rate: dropout of attention weights.
        drop_path: stochastic depth.
        kernel_size: (height, width) of the first and the last convolution.
        qk_scale: factor of the attention scores; ``head_dim ** -0.5`` by default.

    Attributes:
        narrowest: channels of the narrowest layers, an eighth of those of the backbone.

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
        self.narrowest = reduced = in_channels // 8
        kernel = tuple(kernel_size)
        padding = (kernel[0] // 2, kernel[1] // 2)
        self.use_guide = use_guide
        self.conv1 = ConvNorm(in_channels, reduced, kernel, padding=padding)
        self.conv2 = ConvNorm(reduced, hidden_dims)
        self.svtr_block = nn.LayerList(
            [
                pre_norm_block(
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


def is_narrow(channels: int, classes: int) -> bool:
    """Return True if a network with so few channels in its neck probably learns nothing but a constant output.

    Measured in small networks without pretrained weights: with 12 and 16 channels, ten digits (11 classes) were
    learned; with 16 channels, 62 characters (63 classes) were not learned in 2,625 steps, while the necks `reshape` and
    `lightsvtr` learned them in a few hundred. Official networks have at least 48 channels for up to 18,385 classes, and
    much data. So the rule does not apply from 32 channels on, or up to 32 classes.
    """
    return channels < 32 and classes > max(32, 2 * channels)


def narrow_necks(network: nn.Layer, classes: int) -> list[str]:
    """Return a message with the fix for each trained neck that is too narrow for the classes."""
    return [
        f"the neck svtr has only {neck.narrowest} channels (an eighth of the backbone's) for {classes:,} classes. "
        f"Fix: Neck: {{name: reshape}} or {{name: lightsvtr, dims: 64, depth: 1}}"
        for neck in network.sublayers()
        if isinstance(neck, SVTREncoder)
        and is_narrow(neck.narrowest, classes)
        and any(not parameter.stop_gradient for parameter in neck.parameters())
    ]


class RecurrentEncoder(nn.Layer):
    """Two layers of bidirectional LSTM over the frames, as in CRNN (Shi et al., arXiv 1507.05717).

    Args:
        in_channels: features of a frame.
        hidden_size: width of each direction.
    """

    def __init__(self, in_channels: int, hidden_size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(in_channels, hidden_size, 2, direction="bidirectional")
        self.out_channels = 2 * hidden_size

    def forward(self, frames: Tensor) -> Tensor:
        """Map [B, T, in_channels] to [B, T, 2 * hidden_size]."""
        return self.lstm(frames)[0]


class LightSVTR(nn.Layer):
    """Local and global mixing of frames of few channels.

    Args:
        in_channels: channels of the backbone.
        dims: channels of the frames.
        depth: attention blocks.
        num_heads: attention heads.
        qkv_bias: whether query, key and value have a bias.
        mlp_ratio: width of an MLP in multiples of `dims`.
        drop_rate: dropout in MLPs and after attention.
        attn_drop_rate: dropout of attention weights.
        drop_path: stochastic depth.
        local_kernel: frames that the local convolution sees.
        use_guide: detach the features, so that the CTC loss does not train the backbone.
        qk_scale: factor of the attention scores; `head_dim ** -0.5` by default.
    """

    def __init__(
        self,
        in_channels: int,
        dims: int = 64,
        depth: int = 2,
        num_heads: int = 8,
        qkv_bias: bool = True,
        mlp_ratio: float = 2.0,
        drop_rate: float = 0.1,
        attn_drop_rate: float = 0.1,
        drop_path: float = 0.0,
        local_kernel: int = 7,
        use_guide: bool = False,
        qk_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.use_guide = use_guide
        self.conv_reduce = ConvNorm(in_channels, dims)
        self.local_conv = nn.Sequential(
            nn.Conv2D(
                dims, dims, (1, local_kernel), padding=(0, local_kernel // 2), groups=dims, bias_attr=False
            ),
            nn.BatchNorm2D(dims),
        )
        rates = (mlp_ratio, qkv_bias, qk_scale, drop_rate, attn_drop_rate, drop_path)
        self.svtr_block = nn.LayerList([pre_norm_block(dims, num_heads, *rates) for _ in range(depth)])
        self.norm = nn.LayerNorm(dims, epsilon=1e-6)
        self.skip_conv = ConvNorm(in_channels, dims)
        self.out_channels = dims

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, 1, T] to [B, dims, 1, T]."""
        if self.use_guide:
            images = images.detach()
        reduced = self.conv_reduce(images)
        reduced = reduced + F.silu(self.local_conv(reduced))
        tokens = to_tokens(reduced)
        for block in self.svtr_block:
            tokens = block(tokens)
        size = (reduced.shape[2], reduced.shape[3])
        return to_images(self.norm(tokens), size) + self.skip_conv(images)


# PaddleOCR's neck of this name has others: `fc`, `cascadernn`, …
ENCODERS: dict[str, type[nn.Layer] | None] = {
    "reshape": None,
    "rnn": RecurrentEncoder,
    "svtr": SVTREncoder,
    "lightsvtr": LightSVTR,
}


@NECKS.register()
class SequenceEncoder(nn.Layer):
    """Turn features of height 1 into frames, with an optional encoder.

    Args:
        in_channels: channels of the backbone.
        encoder_type: `reshape` (no encoder), `rnn`, `svtr` or `lightsvtr`. For another type,
            :func:`ppocr_ext.modeling.build_neck` builds the host's neck of this name.
        **options: options of the encoder.

    Raises:
        ModelError: the encoder is unknown.
        ConfigError: an option is unknown.
    """

    def __init__(self, in_channels: int, encoder_type: str, **options: Any) -> None:
        super().__init__()
        if encoder_type not in ENCODERS:
            raise ModelError(
                f"Neck: there is no encoder {encoder_type!r}. Fix: use {', '.join(ENCODERS)}, or give a PaddleOCR "
                f"checkout, which has others, with `--host DIR`.",
                code="unsupported_component",
            )
        self.encoder_type = encoder_type
        self.encoder: nn.Layer | None = None
        self.out_channels = in_channels
        build = ENCODERS[encoder_type]
        if build is not None:
            self.encoder = build(in_channels, **known_options(build, options, f"neck {encoder_type}"))
            self.out_channels = self.encoder.out_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, 1, T] to frames [B, T, out_channels].

        Raises:
            ModelError: the height is not 1.
        """
        if len(images.shape) != 4 or images.shape[2] not in (1, -1):
            raise ModelError(
                f"Neck {self.encoder_type}: the backbone must return features [B, C, 1, T] (found "
                f"{list(images.shape)}). Fix: images of another height, or an option that pools it to 1 (such as "
                f"use_pool), if the backbone has one.",
                code="shape_mismatch",
            )
        takes_frames = isinstance(self.encoder, RecurrentEncoder)
        if self.encoder is not None and not takes_frames:
            images = self.encoder(images)
        # not `squeeze`: in a graph of fixed width with as many frames as channels, Paddle Inference with oneDNN fails
        # on squeeze and transpose
        frames = images.flatten(2).transpose([0, 2, 1])
        return self.encoder(frames) if self.encoder is not None and takes_frames else frames
