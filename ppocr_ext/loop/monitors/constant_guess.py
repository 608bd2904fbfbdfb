"""Compute the loss of the best constant guess: one distribution over the classes, whatever the image shows.

A training that stays at this loss has learnt how long the labels are and which characters are frequent, and nothing
from its images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ODDS = np.arange(-6.0, 9.0)  # logarithms of the odds of the blank, searched first by steps of 1, then of 0.1


def ctc_guess(labels: Sequence[np.ndarray], frames: np.ndarray, counts: np.ndarray) -> float:
    """Return the lowest mean CTC loss over the labels if all frames of all images have the same probabilities.

    The characters share what the blank leaves in proportion to their counts; the blank's probability is searched.

    Args:
        labels: class ids of each text line, each of which its frames suffice for.
        frames: T of each text line, [N].
        counts: how often each class is in labels, these and perhaps more, [C].
    """
    with np.errstate(divide="ignore"):  # of classes that do not occur
        characters = np.log(counts / counts.sum())

    def mean(odds: float) -> float:
        return float(ctc_losses(labels, frames, characters, 1 / (1 + np.exp(-odds))).mean())

    best = min(_ODDS, key=mean)
    return min(mean(best + step) for step in np.linspace(-1, 1, 21))


def ctc_losses(
    labels: Sequence[np.ndarray], frames: np.ndarray, characters: np.ndarray, blank: float
) -> np.ndarray:
    """Return the CTC loss of each text line, [N], by the forward recursion of Graves et al. (2006), equation 6.

    Args:
        labels: class ids of each text line.
        frames: T of each text line, [N].
        characters: logarithm of the share of each class among the characters, [C].
        blank: probability of the blank in every frame.
    """
    rows, ends = np.arange(len(labels)), np.array([2 * len(label) for label in labels])
    states = np.zeros((len(labels), int(ends.max()) + 1), "int64")  # the label with a blank around each character
    for row, label in zip(states, labels, strict=True):
        row[1 : 2 * len(label) : 2] = label
    scores = np.where(states == 0, np.log(blank), characters[states] + np.log1p(-blank))
    skips = np.full(states.shape, -np.inf)  # 0 where a path may leave out the blank before a character
    skips[:, 2:][(states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2])] = 0.0
    reached = np.full((len(labels), states.shape[1] + 2), -np.inf)  # two states more, which are never reached
    reached[:, 2:4] = scores[:, :2]
    found = np.full(len(labels), -np.inf)
    for frame in range(1, int(frames.max()) + 1):
        if frame > 1:
            stay_or_go = np.logaddexp(reached[:, 2:], reached[:, 1:-1])
            reached[:, 2:] = np.logaddexp(stay_or_go, reached[:, :-2] + skips) + scores
        last = np.logaddexp(reached[rows, ends + 2], reached[rows, ends + 1])
        found = np.where(frames == frame, last, found)
    return -found


def decoder_guess(labels: Sequence[np.ndarray], counts: np.ndarray) -> float:
    """Return the lowest mean cross entropy of a decoder that knows the place of a character and nothing else.

    At each place ``</s>`` has the share of the labels that end there; the characters share the rest in proportion to
    their counts, at every place alike: so many places have too few labels to count each apart.

    Args:
        labels: class ids of the characters of each text line, without ``<s>`` and ``</s>``.
        counts: as :func:`ctc_guess` takes them.
    """
    ends = np.bincount([len(label) for label in labels])
    reached = ends[::-1].cumsum()[::-1]
    characters = reached.sum() - ends.sum()
    of_ends = (_weighted(reached) - _weighted(ends) - _weighted(reached - ends)).sum()
    of_characters = (_weighted(counts.sum()) - _weighted(counts).sum()) / max(counts.sum(), 1)
    return float((of_ends + characters * of_characters) / reached.sum())


def _weighted(counts: np.ndarray) -> np.ndarray:
    """Return ``n · ln n``, 0 for 0."""
    return counts * np.log(np.maximum(counts, 1))
