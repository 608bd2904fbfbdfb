"""Define the layers of the NRTR decoder: attention with a key/value cache, blocks, embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Normal, XavierNormal

from ppocr_ext.modeling.attention import HIDDEN, attend, merge_heads, split_heads
from ppocr_ext.modeling.layers import Linear, Mlp
from ppocr_ext.modeling.recompute import Recomputable


def xavier_linear(in_features: int, out_features: int) -> Linear:
    """Build a linear layer with Xavier-normal weights and a bias of zeros."""
    return Linear(in_features, out_features, weight_attr=ParamAttr(initializer=XavierNormal()))


@dataclass
class KeysValues:
    """Hold keys and values of an attention, each [B, heads, head_dim, N]."""

    keys: Tensor
    values: Tensor

    def extend(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Return these, followed by ``keys`` and ``values``."""
        return KeysValues(
            paddle.concat([self.keys, keys], axis=-1), paddle.concat([self.values, values], axis=-1)
        )


class CachedSelfAttention(nn.Layer):
    """Let the characters attend to each other."""

    has_dropout = True

    def __init__(self, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = xavier_linear(dim, 3 * dim)
        self.out_proj = xavier_linear(dim, dim)

    def forward(
        self, tokens: Tensor, mask: Tensor | None, past: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Attend to ``past`` and ``tokens`` [B, N, dim]; return [B, N, dim] and the past with ``tokens``."""
        query, key, value = split_heads(self.qkv(tokens), 3, self.num_heads)
        known = KeysValues(key, value) if past is None else past.extend(key, value)
        mixed = attend(query * self.scale, known.keys, known.values, mask, self.dropout, self.training)
        return self.out_proj(merge_heads(mixed)), known


class CrossAttention(nn.Layer):
    """Let the characters attend to the frames of the image."""

    has_dropout = True

    def __init__(self, dim: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.scale = (dim // num_heads) ** -0.5
        self.q = xavier_linear(dim, dim)
        self.kv = xavier_linear(dim, 2 * dim)
        self.out_proj = xavier_linear(dim, dim)

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Return the keys and values of ``memory`` [B, T, dim]."""
        return KeysValues(*split_heads(self.kv(memory), 2, self.num_heads))

    def forward(self, tokens: Tensor, frames: KeysValues) -> Tensor:
        """Map [B, N, dim] to the same shape."""
        (query,) = split_heads(self.q(tokens), 1, self.num_heads)
        mixed = attend(
            query * self.scale, frames.keys, frames.values, dropout=self.dropout, training=self.training
        )
        return self.out_proj(merge_heads(mixed))


class TransformerBlock(Recomputable):
    """Apply self-attention, cross-attention (decoder only) and MLP, each with residual and LayerNorm after it.

    Args:
        dim: features of a token.
        num_heads: attention heads.
        hidden: width of the MLP.
        attention_dropout: of attention weights.
        dropout: of each branch that is added to a residual.
        cross: whether it attends to the frames of an image.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        hidden: int,
        attention_dropout: float,
        dropout: float,
        cross: bool,
    ) -> None:
        super().__init__()
        self.self_attn = CachedSelfAttention(dim, num_heads, attention_dropout)
        self.norm1 = nn.LayerNorm(dim, epsilon=1e-5)
        if cross:
            self.cross_attn = CrossAttention(dim, num_heads, attention_dropout)
            self.norm2 = nn.LayerNorm(dim, epsilon=1e-5)
        self.mlp = Mlp(dim, hidden, F.relu, dropout, xavier_linear)
        self.norm3 = nn.LayerNorm(dim, epsilon=1e-5)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        frames: KeysValues | None = None,
        past: KeysValues | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Map [B, N, dim] to the same shape; return also the keys and values of all tokens so far."""
        mixed, known = self.self_attn(tokens, mask, past)
        tokens = self.norm1(tokens + self.dropout(mixed))
        if frames is not None:
            tokens = self.norm2(tokens + self.dropout(self.cross_attn(tokens, frames)))
        return self.norm3(tokens + self.dropout(self.mlp(tokens))), known


class PositionalEncoding(nn.Layer):
    """Add sines and cosines of the position (Vaswani et al., 2017, section 3.5), then apply dropout.

    The table is the buffer ``pe`` [5000, 1, dim], which is in PaddleOCR's checkpoints.
    """

    def __init__(self, dim: int, dropout: float, length: int = 5000) -> None:
        super().__init__()
        rates = np.exp(np.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        angles = np.arange(length)[:, None] * rates
        table = np.empty((length, 1, dim), "float32")
        table[:, 0, 0::2] = np.sin(angles)
        table[:, 0, 1::2] = np.cos(angles)[:, : dim // 2]
        self.register_buffer("pe", paddle.to_tensor(table))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Encode ``tokens`` [B, N, dim], the first of which has the position ``start``."""
        places = self.pe[start : start + tokens.shape[1], 0]
        return self.dropout(tokens + places.astype(tokens.dtype))


class Embeddings(nn.Layer):
    """Embed characters, times the root of the width; the padding (0) is all zeros."""

    def __init__(self, dim: int, rows: int, scaled: bool) -> None:
        super().__init__()
        attr = ParamAttr(initializer=Normal(0.0, dim**-0.5))
        self.embedding = nn.Embedding(rows, dim, padding_idx=0, weight_attr=attr)
        self.factor = math.sqrt(dim) if scaled else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        """Map int64 [B, N] to [B, N, dim]."""
        return self.embedding(ids) * self.factor


def causal_mask(length: int | Tensor) -> Tensor:
    """Return float32 [1, 1, length, length]: ``HIDDEN`` for later characters, else 0."""
    hidden = paddle.full([length, length], HIDDEN, dtype="float32")
    return paddle.triu(hidden, diagonal=1).unsqueeze([0, 1])
