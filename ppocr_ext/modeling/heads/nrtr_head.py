"""Read a line character by character with a Transformer decoder: the NRTR head (Sheng et al., arXiv 1806.00926)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import Normal, XavierNormal

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import HeadRequest, default_request
from ppocr_ext.modeling.layers import HIDDEN, Linear, Mlp, attend, head_dim, merge_heads, split_heads
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import HEADS


def xavier_linear(in_features: int, out_features: int) -> Linear:
    """Build a linear layer with Xavier-normal weights and a bias of zeros."""
    return Linear(in_features, out_features, weight_attr=ParamAttr(initializer=XavierNormal()))


@dataclass
class KeysValues:
    """Keys and values of an attention, each [B, heads, head_dim, N]."""

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
        self.num_heads = num_heads
        self.dropout = dropout
        self.scale = head_dim(dim, num_heads) ** -0.5
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
        self.num_heads = num_heads
        self.dropout = dropout
        self.scale = head_dim(dim, num_heads) ** -0.5
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
        attention_dropout: the dropout rate of attention weights.
        dropout: the dropout rate of each branch that is added to a residual.
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
    """Return a mask, float32 [1, 1, length, length]: ``HIDDEN`` for later characters, 0 for the others."""
    hidden = paddle.full([length, length], HIDDEN, dtype="float32")
    return paddle.triu(hidden, diagonal=1).unsqueeze([0, 1])


# <s> and </s> in PaddleOCR's NRTR dictionary
START_ID = 2
END_ID = 3


@HEADS.register()
class Transformer(nn.Layer):
    """Decode the frames of an image with a Transformer decoder, after an optional encoder.

    A request for ``gtc`` without ``decode`` (the default in train mode) scores the target; other requests decode
    greedily.

    Args:
        d_model: features of a token.
        nhead: attention heads.
        num_encoder_layers: blocks of the encoder; 0 or less for none.
        beam_size: 0 or less. Beam search is not supported.
        num_decoder_layers: blocks of the decoder.
        max_len: length of a decoded line with ``<s>``.
        dim_feedforward: width of the MLPs.
        attention_dropout_rate: the dropout rate of attention weights.
        residual_dropout_rate: the dropout rate of each branch that is added to a residual.
        out_channels: classes of ``NRTRLabelDecode``; the projection has one row more, as in PaddleOCR.
        scale_embedding: multiply embeddings by the root of ``d_model``.
        in_channels: not used; every head gets it.

    Raises:
        ModelError: ``d_model`` is not a multiple of ``nhead``, or ``beam_size`` is positive.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        beam_size: int = 0,
        num_decoder_layers: int = 6,
        max_len: int = 25,
        dim_feedforward: int = 1024,
        attention_dropout_rate: float = 0.0,
        residual_dropout_rate: float = 0.1,
        out_channels: int = 0,
        scale_embedding: bool = True,
        in_channels: int = 0,
    ) -> None:
        super().__init__()
        if beam_size > 0:
            raise ModelError(
                f"NRTR head: beam_size = {beam_size}, but only greedy decoding (-1) is supported.",
                code="bad_value",
            )
        self.out_channels = out_channels + 1
        self.d_model = d_model
        self.max_len = max_len
        self.embedding = Embeddings(d_model, self.out_channels, scale_embedding)
        self.positional_encoding = PositionalEncoding(d_model, residual_dropout_rate)

        def blocks(count: int, cross: bool) -> nn.LayerList:
            rates = (attention_dropout_rate, residual_dropout_rate)
            return nn.LayerList(
                [TransformerBlock(d_model, nhead, dim_feedforward, *rates, cross) for _ in range(count)]
            )

        self.encoder = blocks(num_encoder_layers, cross=False) if num_encoder_layers > 0 else None
        self.decoder = blocks(num_decoder_layers, cross=True)
        self.tgt_word_prj = nn.Linear(
            d_model, self.out_channels, weight_attr=ParamAttr(initializer=XavierNormal()), bias_attr=False
        )

    def forward(
        self,
        memory: Tensor,
        targets: Sequence[Tensor] | None = None,
        request: HeadRequest | None = None,
    ) -> Tensor | list[Tensor]:
        """Score the target, or decode greedily.

        Args:
            memory: frames [B, T, d_model].
            targets: ids int64 [B, L] that begin with ``<s>``, and lengths int64 [B] without specials; without lengths,
                the ids must end with the longest line.
            request: scores or decodes.

        Returns:
            Logits [B, longest + 1, out_channels] for the characters after ``<s>``; or the result of
            :meth:`decode`.

        Raises:
            ModelError: the target is missing, or the frames do not have ``d_model`` features.
        """
        request = request or default_request(self.training)
        if memory.shape[-1] != self.d_model:
            raise ModelError(
                f"NRTR head: a frame has {memory.shape[-1]} features, but d_model is {self.d_model}. Fix: set d_model "
                f"to the features of the backbone: embed_dim of ViTParseQ, 16 times the height of the images with MTB.",
                code="shape_mismatch",
            )
        memory = self._encode(memory)
        if request.decode or "gtc" not in request.branches:
            return self.decode(memory)
        if targets is None:
            raise ModelError(
                "NRTR head: training needs the labels. Fix: call the model with data=batch[1:]; PaddleOCR does so for "
                "an Architecture.algorithm such as SVTR_LCNet or NRTR.",
                code="missing_labels",
            )
        return self.score(memory, targets[0], targets[1] if len(targets) > 1 else None)

    def score(self, memory: Tensor, ids: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the logits of the character after each of ``ids`` [B, L], up to the end of the longest line."""
        if lengths is not None:
            ids = ids[:, : lengths.max() + 2]  # <s>, the longest line, </s>
        ids = ids[:, :-1]  # the last predicts nothing
        tokens = self.positional_encoding(self.embedding(ids))
        mask = causal_mask(tokens.shape[1])
        for block in self.decoder:
            tokens, _ = block(tokens, mask, block.cross_attn.keys_values(memory))
        return self.tgt_word_prj(tokens)

    @paddle.no_grad()
    def decode(self, memory: Tensor) -> list[Tensor]:
        """Take the most probable character at each step, until every line has its ``</s>``.

        Keys and values of earlier characters are cached, so all steps cost the same.

        Args:
            memory: frames [B, T, d_model], after the encoder if there is one.

        Returns:
            Ids int64 [B, L] that begin with ``<s>`` and probabilities float32 [B, L], L ≤ ``max_len``.
            After the first ``</s>`` of a line, all its ids are ``</s>`` with probability 1. PaddleOCR decodes on
            there; before it, the sequences are equal.
        """
        lines = memory.shape[0]
        frames = [block.cross_attn.keys_values(memory) for block in self.decoder]
        past: list[KeysValues | None] = [None] * len(frames)
        latest = paddle.full([lines, 1], START_ID, dtype="int64")
        ended = paddle.zeros([lines, 1], dtype="bool")
        ids = [latest]
        probabilities = [paddle.ones([lines, 1], dtype="float32")]
        for place in range(self.max_len - 1):
            tokens = self.positional_encoding(self.embedding(latest), place)
            for i, block in enumerate(self.decoder):
                tokens, past[i] = block(tokens, frames=frames[i], past=past[i])
            scores = F.softmax(self.tgt_word_prj(tokens)[:, 0].astype("float32"), axis=-1)
            best = scores.max(axis=-1, keepdim=True)
            latest = scores.argmax(axis=-1, keepdim=True)
            latest = paddle.where(ended, paddle.full_like(latest, END_ID), latest)
            best = paddle.where(ended, paddle.ones_like(best), best)
            ended = latest == END_ID
            if bool(ended.all()):
                break
            ids.append(latest)
            probabilities.append(best)
        return [paddle.concat(ids, axis=1), paddle.concat(probabilities, axis=1)]

    def _encode(self, memory: Tensor) -> Tensor:
        if self.encoder is None:
            return memory
        memory = self.positional_encoding(memory)
        for block in self.encoder:
            memory, _ = block(memory)
        return memory
