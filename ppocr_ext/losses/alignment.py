"""Find which character each CTC frame belongs to, given the label: forced alignment."""

from __future__ import annotations

import paddle

from ppocr_ext.errors import DataError

_IMPOSSIBLE = -1e30  # a path that does not exist; finite, so that sums of it stay comparable
UNALIGNED = -1


def forced_alignment(
    scores: paddle.Tensor, labels: paddle.Tensor, lengths: paddle.Tensor, blank: int = 0
) -> paddle.Tensor:
    """Return the most probable CTC path that reads ``labels`` (Viterbi on the trellis of Graves et al., 2006).

    Of equally probable paths, the one that stays longest in its state. The loop over T works on ``[B, 2L + 1]``:
    no other tensor has an axis of C. No gradient goes through.

    Args:
        scores: [B, T, C], logits or log probabilities: the normaliser of a frame is the same for all paths.
        labels: int [B, L], class ids, padded with any value after ``lengths``.
        lengths: int [B], characters of each label.
        blank: class id of the blank.

    Returns:
        int64 [B, T]: class of each frame, the blank included; ``-1`` in all frames of a line whose label needs
        more than T frames.

    Raises:
        DataError: a length is negative or greater than L, or a label has a class that ``scores`` do not have.
    """
    with paddle.no_grad():
        lengths = lengths.astype("int64").reshape([-1])
        states = _states(_without_padding(labels.astype("int64"), lengths, blank, scores.shape[-1]), blank)
        batch, frames = scores.shape[0], scores.shape[1]
        index = states.unsqueeze(1).expand([batch, frames, states.shape[1]])
        scores = scores.detach()
        if scores.dtype != paddle.float32:
            scores = scores.astype("float32")
        # broadcast=False: broadcasting would copy the scores, which have the right shape already
        emitted = paddle.take_along_axis(scores, index, axis=2, broadcast=False)
        best, moves = _forward(emitted, states, blank)
        # the blank after the last character or that character, whichever is more probable
        final = (2 * lengths).unsqueeze(1)
        before = (final - 1).clip(min=0)
        on_blank, on_character = (paddle.take_along_axis(best, end, axis=1) for end in (final, before))
        last = paddle.where(on_character > on_blank, before, final)
        path = [last]
        for move in reversed(moves):
            path.append(path[-1] - paddle.take_along_axis(move, path[-1], axis=1))
        classes = paddle.take_along_axis(states, paddle.concat(path[::-1], axis=1), axis=1)
        reached = paddle.take_along_axis(best, last, axis=1) > _IMPOSSIBLE / 2
        return paddle.where(reached.expand_as(classes), classes, paddle.full_like(classes, UNALIGNED))


def _without_padding(
    labels: paddle.Tensor, lengths: paddle.Tensor, blank: int, classes: int
) -> paddle.Tensor:
    """Check labels, and return them with the blank after their lengths."""
    longest = labels.shape[1]
    if not bool(((lengths >= 0).logical_and(lengths <= longest)).all()):
        raise DataError(
            f"Forced alignment: label lengths are {int(lengths.min())} to {int(lengths.max())}, but must be "
            f"from 0 to {longest}, the width of the labels.",
            code="bad_label",
        )
    within = paddle.arange(longest, dtype="int64").unsqueeze(0) < lengths.unsqueeze(1)
    labels = paddle.where(within, labels, paddle.full_like(labels, blank))
    if not bool(((labels >= 0).logical_and(labels < classes)).all()):
        raise DataError(
            f"Forced alignment: label classes are {int(labels.min())} to {int(labels.max())}, but the scores "
            f"have {classes}, from 0. Fix: use the same dictionary for labels and model.",
            code="bad_label",
        )
    return labels


def _states(labels: paddle.Tensor, blank: int) -> paddle.Tensor:
    """Return int64 [B, S = 2L + 1]: blank, first character, blank, …, last character, blank."""
    batch, length = labels.shape
    blanks = paddle.full([batch, length, 1], blank, dtype="int64")
    pairs = paddle.concat([blanks, labels.unsqueeze(2)], axis=2).reshape([batch, 2 * length])
    return paddle.concat(
        [pairs, blanks[:, :1, 0] if length else paddle.full([batch, 1], blank, "int64")], axis=1
    )


def _forward(
    emitted: paddle.Tensor, states: paddle.Tensor, blank: int
) -> tuple[paddle.Tensor, list[paddle.Tensor]]:
    """Return the best score of a path that ends in each state [B, S], and the steps (0, 1, 2) into the states."""
    batch, frames, count = emitted.shape
    wall = paddle.full([batch, 2], _IMPOSSIBLE, dtype="float32")
    before = paddle.concat([paddle.full([batch, 2], blank, dtype="int64"), states], axis=1)[:, :count]
    # a path may skip the blank between two different characters
    may_skip = (states != blank).logical_and(states != before)
    skip_cost = paddle.where(
        may_skip, paddle.zeros_like(emitted[:, 0]), paddle.full_like(emitted[:, 0], _IMPOSSIBLE)
    )
    best = emitted[:, 0, :2]  # a path begins on the first blank or on the first character
    if count > 2:
        best = paddle.concat([best, paddle.full([batch, count - 2], _IMPOSSIBLE, dtype="float32")], axis=1)
    moves: list[paddle.Tensor] = []
    for frame in range(1, frames):
        padded = paddle.concat([wall, best], axis=1)
        candidates = paddle.stack([best, padded[:, 1 : 1 + count], padded[:, :count] + skip_cost], axis=0)
        moves.append(candidates.argmax(axis=0))
        best = (candidates.max(axis=0) + emitted[:, frame]).clip(min=_IMPOSSIBLE)
    return best, moves
