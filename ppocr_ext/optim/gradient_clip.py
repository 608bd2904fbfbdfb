"""Clip all gradients together (``Optimizer.clip_norm_global``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle


class ClipGlobalNorm(paddle.nn.ClipGradByGlobalNorm):
    """Scale the gradients so that their joint norm is at most ``clip_norm``; the numbers are Paddle's.

    On a CPU they are scaled in place, and not at all below the limit. Paddle multiplies each by a tensor of one value
    into new memory, which takes four times as long. Other gradients (devices, half precision, sparse) are left to it.
    """

    @paddle.no_grad()
    def _dygraph_clip(self, params_grads: Sequence[tuple[Any, Any]]) -> Any:
        clipped = [g for p, g in params_grads if g is not None and getattr(p, "need_clip", True)]
        if not clipped or not all(map(_is_plain, clipped)):
            return super()._dygraph_clip(params_grads)
        norm = paddle.stack([paddle._C_ops.squared_l2_norm(g) for g in clipped]).sum().sqrt()
        limit = paddle.full([], self.clip_norm)
        factor = float(limit / paddle.maximum(norm, limit))
        if factor != 1.0:
            for gradient in clipped:
                gradient.scale_(factor)
        return params_grads


def _is_plain(gradient: Any) -> bool:
    return gradient.place.is_cpu_place() and gradient.dtype == paddle.float32 and gradient.is_dense()
