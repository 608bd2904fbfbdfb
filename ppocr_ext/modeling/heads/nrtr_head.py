"""Read a line character by character with a Transformer decoder: the NRTR head (Sheng et al., arXiv 1806.00926)."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import XavierNormal

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import HeadRequest, default_request
from ppocr_ext.modeling.heads.nrtr_layers import (
    Embeddings,
    KeysValues,
    PositionalEncoding,
    TransformerBlock,
    causal_mask,
)
from ppocr_ext.registry import HEADS

START_ID, END_ID = 2, 3  # <s> and </s> in PaddleOCR's NRTR dictionary


@HEADS.register()
class Transformer(nn.Layer):
    """Decode the frames of an image with a Transformer decoder, after an optional encoder.

    A request for ``gtc`` without ``decode`` (the default in train mode) scores the target;
    any other decodes greedily.

    Args:
        d_model: features of a token.
        nhead: attention heads.
        num_encoder_layers: blocks of the encoder; 0 or less for none.
        beam_size: 0 or less. Beam search is not supported.
        num_decoder_layers: blocks of the decoder.
        max_len: length of a decoded line, ``<s>`` included.
        dim_feedforward: width of the MLPs.
        attention_dropout_rate: of attention weights.
        residual_dropout_rate: of each branch that is added to a residual.
        out_channels: classes of ``NRTRLabelDecode``; the projection has one row more, as PaddleOCR's.
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
        if nhead < 1 or d_model % nhead:
            raise ModelError(
                f"NRTR head: d_model = {d_model} must be a multiple of nhead = {nhead}.", code="bad_value"
            )
        if beam_size > 0:
            raise ModelError(
                f"NRTR head: beam_size = {beam_size}, but only greedy decoding (-1) is supported.",
                code="bad_value",
            )
        self.out_channels = out_channels + 1
        self.d_model, self.max_len = d_model, max_len
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
            targets: ids int64 [B, L], beginning with ``<s>``, and lengths int64 [B] without specials; without lengths
                the ids end with the longest line.
            request: which of both.

        Returns:
            Logits [B, longest + 1, out_channels] for the characters after ``<s>``; or the result of
            :meth:`decode`.

        Raises:
            ModelError: the target is needed and missing, or the frames have another size.
        """
        request = request or default_request(self.training)
        if memory.shape[-1] != self.d_model:
            raise ModelError(
                f"NRTR head: a frame has {memory.shape[-1]} features (expected d_model, {self.d_model}). Fix: set "
                f"d_model to the features of the backbone, such as embed_dim of ViTParseQ.",
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
        """Return the logits of each next character of ``ids`` [B, L], up to the end of the longest line."""
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
            After its own ``</s>`` a line has ``</s>`` with probability 1. PaddleOCR continues to decode
            such a line; up to there the sequences are the same.
        """
        lines = memory.shape[0]
        frames = [block.cross_attn.keys_values(memory) for block in self.decoder]
        past: list[KeysValues | None] = [None] * len(frames)
        latest = paddle.full([lines, 1], START_ID, dtype="int64")
        ended = paddle.zeros([lines, 1], dtype="bool")
        ids, probabilities = [latest], [paddle.ones([lines, 1], dtype="float32")]
        for place in range(self.max_len - 1):
            tokens = self.positional_encoding(self.embedding(latest), place)
            for i, block in enumerate(self.decoder):
                tokens, past[i] = block(tokens, frames=frames[i], past=past[i])
            scores = F.softmax(self.tgt_word_prj(tokens)[:, 0].astype("float32"), axis=-1)
            best, latest = scores.max(axis=-1, keepdim=True), scores.argmax(axis=-1, keepdim=True)
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
