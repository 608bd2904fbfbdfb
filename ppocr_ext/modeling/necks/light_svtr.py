"""The neck of PP-OCRv6, `lightsvtr`: a local convolution, attention over all frames, and a skip connection."""

from __future__ import annotations

import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.modeling.layers import ConvNorm, to_images, to_tokens
from ppocr_ext.modeling.necks.svtr import pre_norm_block


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
        use_guide: True detaches the features: the CTC loss does not train the backbone.
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
        """[B, in_channels, 1, T] to [B, dims, 1, T]."""
        if self.use_guide:
            images = images.detach()
        reduced = self.conv_reduce(images)
        reduced = reduced + F.silu(self.local_conv(reduced))
        tokens = to_tokens(reduced)
        for block in self.svtr_block:
            tokens = block(tokens)
        size = (reduced.shape[2], reduced.shape[3])
        return to_images(self.norm(tokens), size) + self.skip_conv(images)
