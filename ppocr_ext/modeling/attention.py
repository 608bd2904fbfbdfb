"""Compute attention over heads in channel-major order, which needs no four-axis transpose.

Heads are ``[B, heads, head_dim, N]``: the tokens of a line are columns. Paddle makes a view of a
transpose and copies it when it is read; for ``[B, N, heads, head_dim]`` to ``[B, heads, N, head_dim]``
that copy costs more on a CPU than the products, forward and backward. Swapping the last
two of three axes is cheap, and the two matrix products accept transposed operands at no cost.
"""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor

# Scores in memory at once without gradients on a CPU: 8 MiB of float32. Above that every product needs
# new memory pages, which took half the time of a full-size SVTRv2 stage.
CPU_SCORES = 2**21
# The score of a hidden place. The softmax makes exactly 0 of it, as of minus infinity, which Paddle's check of
# operators (Global.detect_anomaly) would report.
HIDDEN = -1e30


def eager_on_cpu() -> bool:
    """Return whether operations run when they are called, on a CPU; special forms are faster there."""
    return paddle.in_dynamic_mode() and paddle.get_device() == "cpu"


def split_heads(tokens: Tensor, parts: int, heads: int) -> list[Tensor]:
    """Cut ``tokens`` [B, N, parts * C] into ``parts`` tensors [B, heads, C / heads, N]."""
    columns = tokens.transpose([0, 2, 1])
    pieces = columns.split(parts, axis=1) if parts > 1 else [columns]
    head_dim = tokens.shape[-1] // (parts * heads)
    return [piece.reshape([0, heads, head_dim, -1]) for piece in pieces]


def merge_heads(heads: Tensor) -> Tensor:
    """Concatenate ``heads`` [B, heads, head_dim, N] again: [B, N, heads * head_dim]."""
    return heads.reshape([0, heads.shape[1] * heads.shape[2], -1]).transpose([0, 2, 1])


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    training: bool = False,
) -> Tensor:
    """Compute scaled dot-product attention (Vaswani et al., 2017, equation 1).

    Args:
        query: [B, heads, head_dim, Nq], already multiplied by the scale, which is cheaper than
            scaling the scores.
        key: [B, heads, head_dim, Nk].
        value: [B, heads, head_dim, Nk].
        mask: added to the scores, [1, 1, Nq, Nk].
        dropout: probability with which a weight of the attention is dropped.
        training: whether ``dropout`` is active.

    Returns:
        [B, heads, head_dim, Nq].
    """
    if not eager_on_cpu() or paddle.is_grad_enabled():
        return _attend(query, key, value, mask, dropout, training)
    scores_per_line = query.shape[1] * query.shape[-1] * key.shape[-1]
    lines = max(1, CPU_SCORES // max(1, scores_per_line))  # of the batch, at once
    if lines >= query.shape[0]:
        return _attend(query, key, value, mask, dropout, training)
    parts = [slice(i, i + lines) for i in range(0, query.shape[0], lines)]
    return paddle.concat([_attend(query[p], key[p], value[p], mask, dropout, training) for p in parts])


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, training: bool
) -> Tensor:
    scores = paddle.matmul(query, key, transpose_x=True)
    if mask is not None:
        scores = scores + mask.astype(scores.dtype)  # mixed precision makes the scores narrower
    weights = F.softmax(scores, axis=-1)
    if dropout > 0.0 and training:
        weights = F.dropout(weights, dropout)
    return paddle.matmul(value, weights, transpose_y=True)
