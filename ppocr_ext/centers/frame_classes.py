"""Choose the class of each frame of a batch, to which center it adds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import paddle

from ppocr_ext.losses.alignment import forced_alignment
from ppocr_ext.losses.functional import best_classes

Frames = Literal["argmax", "aligned"]
BLANK = 0
SKIPPED = -1


def read_correctly(best: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return whether the greedy CTC prediction of each sample equals its label.

    Args:
        best: int [B, T], the most probable class of each frame.
        labels: int [B, L], class ids, with any padding after ``lengths``.
        lengths: int [B].

    Returns:
        bool [B].
    """
    changed = np.ones(best.shape, bool)
    changed[:, 1:] = best[:, 1:] != best[:, :-1]
    read = changed & (best != BLANK)
    place = np.cumsum(read, axis=1) - 1  # position of each character in its prediction
    fits = read & (place < lengths[:, None])
    if not labels.shape[1]:
        return np.asarray(~read.any(axis=1))
    wanted = np.take_along_axis(labels, place.clip(0, labels.shape[1] - 1), axis=1)
    wrong = read & (~fits | (best != wanted))
    return np.asarray((read.sum(axis=1) == lengths) & ~wrong.any(axis=1))


def classes_of_frames(
    logits: paddle.Tensor,
    labels: paddle.Tensor,
    lengths: paddle.Tensor,
    frames: Frames = "argmax",
    all_lines: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each frame, and which samples are read correctly.

    Args:
        logits: [B, T, C] of the CTC head.
        labels: int [B, L], class ids, padded after ``lengths``.
        lengths: int [B].
        frames: ``argmax``: the most probable class of a frame, in samples read correctly (PaddleOCR's definition);
            ``aligned``: the class that CTC forced alignment of the label gives it, in all samples that fit.
        all_lines: with ``argmax``, samples read wrongly count too.

    Returns:
        int64 [B, T], ``-1`` for a frame that is skipped; bool [B].
    """
    best = best_classes(logits).numpy()
    correct = read_correctly(best, labels.numpy(), lengths.numpy().reshape(-1))
    if frames == "aligned":
        return forced_alignment(logits, labels, lengths).numpy(), correct
    if not all_lines:
        best = np.where(correct[:, None], best, SKIPPED)
    return best, correct
