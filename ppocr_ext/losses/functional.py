"""Compute the formulas of the losses as pure functions on tensors; none changes its arguments.

Rows ``[N]`` are positions (frames or characters) of all lines of a batch, ``C`` is the number of classes.
With thousands of classes every pass over ``[N, C]`` takes time. On a CPU ``log_softmax``, ``logsumexp``, a logarithm of
all entries and arithmetic on broadcast shapes are far slower than ``softmax`` and ``cross_entropy``. So the formulas
use these two, and no one-hot matrix. Paddle's ``cross_entropy`` allows one backward pass; a second one through the same
graph (``retain_graph``) gives wrong gradients.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F

# PaddleOCR adds this to a target distribution inside its logarithm.
TARGET_EPSILON = 1e-10
# PaddleOCR subtracts this from the logit of the target class, to exclude it from a softmax.
TARGET_OFFSET = 1000.0
# The smallest normal float32: keeps `0 * log(0)` at 0.
TINY = 1.2e-38
# Smaller logits of a teacher are clipped: an excluded class has -inf, and 0 times -inf would be NaN.
LEAST_LOGIT = -1e4


def weighted_mean(values: paddle.Tensor, weights: paddle.Tensor) -> paddle.Tensor:
    """Return the mean of ``values`` by ``weights`` (same shape, not negative); 0 if all weights are 0."""
    weights = weights.astype(values.dtype)
    total = weights.sum()
    return (values * weights).sum() / paddle.where(total > 0, total, paddle.ones_like(total))


def sum_classes(values: paddle.Tensor) -> paddle.Tensor:
    """Return the sum over the last axis, ``[..., C] → [...]``.

    On a CPU a product with ones takes a quarter of the time. A GPU may round float32 products (TF32).
    """
    if values.place.is_cpu_place():
        return paddle.matmul(values, paddle.ones([values.shape[-1]], values.dtype))
    return values.sum(axis=-1)


def mean_frames(values: paddle.Tensor) -> paddle.Tensor:
    """Return the mean over time, ``[B, T, C] → [B, C]``, as fast as :func:`sum_classes`."""
    if values.place.is_cpu_place():
        lines, frames, _ = values.shape
        return paddle.bmm(paddle.full([lines, 1, frames], 1.0 / frames, values.dtype), values).squeeze(1)
    return values.mean(axis=1)


def log_sum_exp(logits: paddle.Tensor) -> paddle.Tensor:
    """Return ``log Σ_c exp(logits)``, ``[..., C] → [...]``, as the cross entropy of the highest class and its logit.

    The highest class is used, since on a CPU Paddle's cross entropy is too low for a class whose logit is 64 or more
    below the highest.
    """
    rows = logits.flatten(0, -2)
    best = best_classes(logits).flatten()
    sums = F.cross_entropy(rows, best, reduction="none") + pick(rows, best)
    return sums.reshape(logits.shape[:-1])


def best_classes(logits: paddle.Tensor) -> paddle.Tensor:
    """Return the class of the highest logit, ``[..., C] → int64 [...]``; the first one of equal logits.

    On a CPU numpy computes it in the same memory, since Paddle's argmax takes five times as long there.
    """
    logits = logits.detach()
    if logits.place.is_cpu_place() and logits.dtype == paddle.float32 and 0 not in logits.shape:
        return paddle.to_tensor(np.asarray(_SharedMemory(logits.contiguous())).argmax(axis=-1))
    return logits.argmax(axis=-1)


class _SharedMemory:
    """Let numpy read a contiguous float32 tensor on the CPU without a copy.

    DLPack is no alternative: Paddle 2.6 loses strides there, and numpy's argmax copies a read-only array.
    """

    def __init__(self, tensor: paddle.Tensor) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "typestr": np.dtype(np.float32).str,
            "data": (tensor.data_ptr(), False),
        }


def pick(rows: paddle.Tensor, classes: paddle.Tensor) -> paddle.Tensor:
    """Return ``rows[n, classes[n]]``, ``[N, C], int64 [N] → [N]``."""
    return rows[paddle.arange(rows.shape[0]), classes]


def softmax_and_normaliser(logits: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the softmax ``[..., C]`` and ``log Σ_c exp(logits)``, ``[...]``, which its highest entries give."""
    probabilities = F.softmax(logits, axis=-1)
    best = best_classes(logits).flatten()
    peak, share = (pick(values.flatten(0, -2), best) for values in (logits, probabilities))
    return probabilities, (peak - share.log()).reshape(logits.shape[:-1])


def kl_rows(student: paddle.Tensor, teacher: paddle.Tensor) -> paddle.Tensor:
    """Return KL(teacher ‖ student) of logits, ``[..., C] → [...]``; both get gradients.

    PaddleOCR adds 1e-10 to the teacher's probabilities inside the logarithm, so its values are up to C·1e-10 higher.
    """
    teacher = teacher.clip(min=LEAST_LOGIT)
    probabilities, normaliser = softmax_and_normaliser(teacher)
    return sum_classes(probabilities * (teacher - student)) + log_sum_exp(student) - normaliser


def cross_entropy_rows(logits: paddle.Tensor, probabilities: paddle.Tensor) -> paddle.Tensor:
    """Return ``-Σ_c q log softmax(logits)``, ``[..., C] → [...]``, for ``probabilities`` that sum to 1.

    Unlike ``paddle.nn.functional.cross_entropy`` it has a gradient for ``probabilities`` too, which mutual
    learning needs.
    """
    return log_sum_exp(logits) - sum_classes(probabilities * logits)


def smoothed_cross_entropy_rows(
    logits: paddle.Tensor, classes: paddle.Tensor, smoothing: float
) -> paddle.Tensor:
    """Return the cross entropy with ``1 - smoothing`` on the class, the rest on the others, ``[N, C] → [N]``."""
    others = logits.shape[-1] - 1
    normaliser = log_sum_exp(logits)
    hard = normaliser - pick(logits, classes)
    all_classes = (others + 1) * normaliser - sum_classes(logits)
    share = smoothing / others
    return (1.0 - smoothing - share) * hard + share * all_classes


def dkd_rows(
    student: paddle.Tensor, teacher: paddle.Tensor, classes: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the two parts of decoupled knowledge distillation (Zhao et al., CVPR 2022, equation 7), row by row.

    Args:
        student: float32 [N, C], logits already divided by the temperature.
        teacher: float32 [N, C], likewise.
        classes: int64 [N], the target class of each row.

    Returns:
        ``(tckd, nckd)``, both [N]: KL of (target, all others), and KL among the other classes.

    The numbers are PaddleOCR's, but computed from the log-odds of the target class. So the loss is finite even if
    float32 rounds a probability to 0 or 1; PaddleOCR's logarithm gives infinity there.
    """
    teacher = teacher.clip(min=LEAST_LOGIT)
    student_others, teacher_others = (_without_target(logits, classes) for logits in (student, teacher))
    student_normaliser = log_sum_exp(student_others)
    probabilities, teacher_normaliser = softmax_and_normaliser(teacher_others)
    nckd = sum_classes(probabilities * (teacher_others - student_others))
    nckd = nckd + student_normaliser - teacher_normaliser
    # Log-odds of the target against all others.
    student_odds = pick(student, classes) - student_normaliser
    teacher_odds = pick(teacher, classes) - teacher_normaliser
    hit = F.sigmoid(teacher_odds)
    miss = F.sigmoid(-teacher_odds)
    tckd = (
        hit * ((hit + TARGET_EPSILON).log() + F.softplus(-student_odds))
        + miss * ((miss + TARGET_EPSILON).log() + F.softplus(student_odds))
    )  # fmt: skip
    return tckd, nckd


def _without_target(logits: paddle.Tensor, classes: paddle.Tensor) -> paddle.Tensor:
    """Return the logits [N, C] minus 1000 for the target class, so that its softmax is 0."""
    rows = paddle.stack([paddle.arange(logits.shape[0]), classes], axis=1)
    return paddle.scatter_nd_add(logits, rows, paddle.full([logits.shape[0]], -TARGET_OFFSET, logits.dtype))


def align_frames(frames: paddle.Tensor, count: int) -> paddle.Tensor:
    """Interpolate linearly along time, ``[B, T, C] → [B, count, C]``.

    Frames are equal slices of the text line, matched by their centers (``align_corners=False``). Probabilities stay
    probabilities, since each new frame is a weighted mean of two.
    """
    length = frames.shape[1]
    if length == count:
        return frames
    position = (paddle.arange(count, dtype="float32") + 0.5) * (length / count) - 0.5
    position = position.clip(0.0, float(length - 1))
    left = position.floor()
    share = (position - left).astype(frames.dtype).reshape([1, count, 1])
    left = left.astype("int64")
    right = (left + 1).clip(max=length - 1)
    return frames.index_select(left, axis=1) * (1.0 - share) + frames.index_select(right, axis=1) * share
