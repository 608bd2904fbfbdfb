"""Keep the most probable classes of logits, and make logits of them again.

A row is a frame of CTC or a position of NRTR. It keeps the normaliser, ``log Σ exp`` of its logits, so that the logits
themselves come back and not only their differences, and the mean probability of the classes that it drops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle

_LEAST = -1e4  # log of a probability that float32 rounds to 0


@dataclass(frozen=True)
class TopClasses:
    """The most probable classes of N rows.

    Attributes:
        normaliser: float32 [N], ``log Σ_c exp(logits)``.
        rest: float16 [N], log of the mean probability of a class that is not kept.
        values: float16 [N, k], log-probabilities of the classes that are kept.
        classes: uint16 [N, k], their ids; None if all classes are kept, in their order.
    """

    normaliser: np.ndarray
    rest: np.ndarray
    values: np.ndarray
    classes: np.ndarray | None

    def mass(self, count: int) -> np.ndarray:
        """Return the probability of all classes that are not kept, float32 [N]."""
        left = 0 if self.classes is None else count - self.classes.shape[1]
        return np.exp(self.rest.astype(np.float32)) * left


def top_classes(logits: np.ndarray, k: int, always: int | None = None) -> TopClasses:
    """Keep the ``k`` most probable classes of each row; all of them if there are fewer.

    Args:
        logits: float32 [N, C].
        k: classes to keep, at least 1.
        always: a class that is kept though it is not one of them, in place of the least probable.
    """
    peak = logits.max(axis=1, keepdims=True)
    shares = np.exp(logits - peak)
    total = shares.sum(axis=1)
    normaliser = (np.log(total) + peak[:, 0]).astype(np.float32)
    count = logits.shape[1]
    if k >= count:
        values = np.maximum(logits - normaliser[:, None], _LEAST).astype(np.float16)
        return TopClasses(normaliser, np.full(len(logits), _LEAST, np.float16), values, None)
    classes = np.argpartition(logits, count - k, axis=1)[:, count - k :]
    if always is not None:
        kept = np.take_along_axis(logits, classes, axis=1)
        lacking = np.flatnonzero(~(classes == always).any(axis=1))
        classes[lacking, kept[lacking].argmin(axis=1)] = always
    values = np.take_along_axis(logits, classes, axis=1) - normaliser[:, None]
    np.put_along_axis(shares, classes, 0.0, axis=1)
    with np.errstate(divide="ignore"):
        rest = np.log(shares.sum(axis=1) / total / (count - k))
    return TopClasses(
        normaliser,
        np.maximum(rest, _LEAST).astype(np.float16),
        np.maximum(values, _LEAST).astype(np.float16),
        classes.astype(np.uint16),
    )


def dense_logits(kept: Sequence[TopClasses], count: int, rows: int | None = None) -> paddle.Tensor:
    """Return logits of all ``count`` classes, float32 [B, N, count]; classes that are not kept share one value.

    They travel to the device in float16; numpy takes four times as long to widen it.

    Args:
        kept: what each of B samples keeps, of equally many rows.
        count: C.
        rows: N, the first of them; None: all.
    """

    def batch(part: str) -> np.ndarray:
        return np.stack([getattr(each, part)[:rows] for each in kept])

    normaliser = paddle.to_tensor(batch("normaliser")).unsqueeze(-1)
    logits = paddle.to_tensor(batch("values")).astype("float32") + normaliser
    if kept[0].classes is None:
        return logits
    classes = paddle.to_tensor(batch("classes").astype(np.int64))  # Paddle takes uint16 for bfloat16
    rest = paddle.to_tensor(batch("rest")).astype("float32").unsqueeze(-1) + normaliser
    return paddle.put_along_axis(
        rest.expand([*rest.shape[:2], count]), classes, logits, axis=2, broadcast=False
    )
