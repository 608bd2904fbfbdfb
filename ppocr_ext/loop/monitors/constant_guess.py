"""Compare a head's loss with that of the best constant guess: one distribution, whatever the image shows.

A training that stays at this loss has learnt how long the labels are and which characters are frequent, and nothing
from its images. The losses here have no weight, no smoothing and no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ppocr_ext.losses import CTCLoss
from ppocr_ext.losses.base_loss import PAD
from ppocr_ext.losses.ctc_loss import frames_needed
from ppocr_ext.modeling.heads.nrtr_head import END_ID

_ROWS = 12  # text lines of a batch: those of ten batches are compared in less than a second


class HeadLosses(NamedTuple):
    """What a head makes of n text lines.

    Attributes:
        losses: of each text line (CTC), or of each character and ``</s>`` (NRTR).
        label: class ids [n, L] of these lines, padded.
        lengths: characters of each, [n].
        frames: T of each, [n].
        counts: how often each character is in the labels of whole batches, [C].
    """

    losses: np.ndarray
    label: np.ndarray
    lengths: np.ndarray
    frames: np.ndarray
    counts: np.ndarray

    @classmethod
    def of_batches(cls, batches: Sequence[HeadLosses]) -> HeadLosses:
        """Return those of all text lines of the batches."""
        *lines, counts = zip(*batches, strict=True)
        return cls._make([*map(np.concatenate, lines), np.sum(counts, axis=0)])


@paddle.no_grad()
def head_losses(logits: Any, label: Any, lengths: Any, is_ctc: bool) -> HeadLosses | None:
    """Return the losses of a head; None if it cannot learn any of these labels.

    Args:
        logits: [B, T, C].
        label: class ids [B, L], of NRTR with ``<s>`` and ``</s>``.
        lengths: characters of each label.
        is_ctc: whether the head is one of CTC, and not a decoder.
    """
    counts = np.bincount(label.numpy().ravel(), minlength=logits.shape[-1])
    counts[: 1 if is_ctc else END_ID + 1] = 0
    lengths = lengths.reshape([-1]).astype("int64")
    # a decoder with as many places as its label does not predict the next character
    is_next = paddle.full([len(label)], logits.shape[1] < label.shape[1])
    rows = (
        (frames_needed(label, lengths) <= logits.shape[1] if is_ctc else is_next).nonzero().flatten()[:_ROWS]
    )
    if not rows.size:
        return None
    label, lengths, logits = label[rows], lengths[rows], logits[rows].astype("float32")
    if is_ctc:
        losses = CTCLoss().line_losses(logits, [None, label, lengths])
    else:
        targets = label[:, 1 : 1 + logits.shape[1]]
        losses = F.cross_entropy(logits, targets, reduction="none").reshape(targets.shape)[targets != PAD]
    frames = np.full(len(rows), logits.shape[1])
    return HeadLosses(losses.numpy(), label.numpy(), lengths.numpy(), frames, counts)


def ctc_guess(found: HeadLosses) -> float:
    """Return the lowest mean CTC loss of the lines if all frames of all images have the same probabilities.

    The characters share what the blank leaves in proportion to their counts; the blank's probability is searched.
    """

    @cache
    def mean(odds: float) -> float:
        """Return the loss for the logarithm of the odds of the blank."""
        probabilities = found.counts / found.counts.sum() / (1 + np.exp(odds))
        probabilities[0] = 1 / (1 + np.exp(-odds))
        return float(constant_losses(found, probabilities).mean())

    best = 1.0
    for width in (4.0, 2.0, 1.0, 0.5, 0.25, 0.12, 0.06):
        best = min((best - width, best, best + width), key=mean)
    return mean(best)


def constant_losses(found: HeadLosses, probabilities: np.ndarray) -> np.ndarray:
    """Return the CTC loss of each line, [n], if every frame has the same ``probabilities`` [C], the blank's first.

    Thousands of classes would take seconds, and only those of a line count: its characters get numbers, equal
    neighbours the same. The kernel's softmax then divides each frame by the sum of the line, which is put back.
    """
    label = found.label
    numbers = 1 + np.cumsum(np.diff(label, axis=1, prepend=label[:, :1]) != 0, axis=1)
    lines = np.full((len(label), label.shape[1] + 1), probabilities[0])
    np.put_along_axis(lines, numbers, probabilities[label], axis=1)
    scores = np.broadcast_to(np.log(lines).astype("float32"), (found.frames.max(), *lines.shape))
    arrays = (scores, numbers.astype("int32"), found.frames, found.lengths)
    losses = F.ctc_loss(*[paddle.to_tensor(each, place="cpu") for each in arrays], reduction="none")
    return losses.numpy() - found.frames * np.log(lines.sum(axis=1))


def decoder_guess(found: HeadLosses) -> float:
    """Return the lowest mean cross entropy of a decoder that knows the place of a character and nothing else.

    At each place ``</s>`` has the share of the labels that end there; the characters share the rest in proportion to
    their counts, at every place alike: so many places have too few labels to count each apart.
    """
    targets = found.label[:, 1:]
    reached, ends = (targets != PAD).sum(axis=0), (targets == END_ID).sum(axis=0)
    of_ends = (_weighted(reached) - _weighted(ends) - _weighted(reached - ends)).sum()
    entropy = np.log(found.counts.sum()) - _weighted(found.counts).sum() / found.counts.sum()
    return float((of_ends + (reached - ends).sum() * entropy) / reached.sum())


def _weighted(counts: np.ndarray) -> np.ndarray:
    """Return ``n · ln n``, 0 for 0."""
    return counts * np.log(np.maximum(counts, 1))
