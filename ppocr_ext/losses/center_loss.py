"""Compute center loss: pull the features of a character's frames to one center (Wen et al., ECCV 2016).

Forced alignment finds which character each CTC frame belongs to, given the label.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.autograd import PyLayer

from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.errors import ConfigError, DataError, ModelError
from ppocr_ext.losses.base_loss import FEATURES, Loss, LossContext, Parts, check_option, head_batch, to_tensor
from ppocr_ext.losses.center_bank import CenterBank
from ppocr_ext.losses.functional import best_classes
from ppocr_ext.registry import LOSSES

_IMPOSSIBLE = -1e30  # the score of a path that does not exist; finite, so that sums stay comparable
UNALIGNED = -1


def forced_alignment(
    scores: paddle.Tensor, labels: paddle.Tensor, lengths: paddle.Tensor, blank: int = 0
) -> paddle.Tensor:
    """Return the most probable CTC path of ``labels`` (Viterbi on the trellis of Graves et al., 2006).

    Among equally probable paths it is the one that stays longest in its state. The loop over T works on
    ``[B, 2L + 1]``; no other tensor has an axis of C. There is no gradient.

    Args:
        scores: [B, T, C], logits or log probabilities, which differ by the same number for all paths.
        labels: int [B, L], class ids, padded with any value after ``lengths``.
        lengths: int [B], characters of each label.
        blank: class id of the blank.

    Returns:
        int64 [B, T]: class of each frame, or the blank; ``-1`` in all frames of a text line whose label needs more
        than T frames.

    Raises:
        DataError: a length is negative or greater than L, or a label has a class that ``scores`` lack.
    """
    with paddle.no_grad():
        lengths = lengths.astype("int64").reshape([-1])
        states = _states(_without_padding(labels.astype("int64"), lengths, blank, scores.shape[-1]), blank)
        batch = scores.shape[0]
        frames = scores.shape[1]
        index = states.unsqueeze(1).expand([batch, frames, states.shape[1]])
        scores = scores.detach()
        if scores.dtype != paddle.float32:
            scores = scores.astype("float32")
        # broadcast=False, since broadcasting would copy the scores, which have the right shape already.
        emitted = paddle.take_along_axis(scores, index, axis=2, broadcast=False)
        best, moves = _forward(emitted, states, blank)
        # A path ends at the last character or at the blank after it, whichever is more probable.
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
    """Check the labels; return them with the blank as padding."""
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
    """Return the best score of the paths to each state [B, S], and how many states (0, 1, 2) each step advances."""
    batch, frames, count = emitted.shape
    wall = paddle.full([batch, 2], _IMPOSSIBLE, dtype="float32")
    before = paddle.concat([paddle.full([batch, 2], blank, dtype="int64"), states], axis=1)[:, :count]
    # A path may skip the blank between two different characters.
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


BLANK = 0


@LOSSES.register()
class CenterLoss(Loss):
    """Compute the mean squared distance of each frame's feature to the center of its class.

    >>> list(CenterLoss(num_classes=5, feat_dim=3, update="ema")(ctc, ctc_batch))
    ['loss_center', 'loss']

    ``predicts``: ``(features [B, T, D], logits [B, T, C])`` of a CTC head with ``return_feats``, or the outputs of a
    MultiHead with it. The defaults give PaddleOCR's loss. PaddleOCR computes a dense float64 ``[B·T, C]``; here only
    the needed distances are computed, in O(B·T·D).

    Args:
        num_classes: C; by default that of the dictionary of ``context``.
        feat_dim: D; by default that of the CTC head in ``context``.
        center_file_path: centers to start from, ``.npz`` of ``export-center`` or PaddleOCR's ``.pkl``. Without a file,
            frozen centers are random, as in PaddleOCR.
        frames: how the class of a frame is found. ``argmax`` takes the most probable one, as PaddleOCR does, so a frame
            that is read wrongly is pulled to the wrong center. ``aligned`` takes that of CTC forced alignment of the
            label.
        blank: whether frames of the blank count.
        update: ``frozen`` centers do not change. ``ema`` moves them towards the mean feature of each batch's frames,
            over all processes. A class without a center is skipped (frozen), or starts at its mean (ema).
        momentum: for ``ema``, the share of a center that remains at each step.
        relative: whether squared distances are divided by the mean variance of the file's centers. Then a weight means
            the same for the features of any network.
        warmup_steps: the loss grows from 0 to its weight over this many steps.
        context: dictionary and feature size; not needed if ``num_classes`` and ``feat_dim`` are given.

    Attributes:
        table: the centers of the file; None without one.

    Raises:
        ConfigError: an option cannot be used.
        DataError: the centers cannot be read, or belong to another dictionary or feature size.
        ModelError: the model has no CTC head.
    """

    requires = ("ctc", FEATURES)

    def __init__(
        self,
        num_classes: int | None = None,
        feat_dim: int | None = None,
        center_file_path: str | None = None,
        frames: str = "argmax",
        blank: bool = True,
        update: str = "frozen",
        momentum: float = 0.99,
        relative: bool = False,
        warmup_steps: int = 0,
        context: LossContext | None = None,
    ) -> None:
        super().__init__()
        self.frames = check_option(frames, "CenterLoss: frames", "text", choices=("argmax", "aligned"))
        self.blank = check_option(blank, "CenterLoss: blank", "truth")
        self.update = check_option(update, "CenterLoss: update", "text", choices=("frozen", "ema"))
        self.warmup_steps = int(check_option(warmup_steps, "CenterLoss: warmup_steps", least=0))
        self.momentum = check_option(momentum, "CenterLoss: momentum", least=0.0, most=1.0)
        self.center_file_path = center_file_path
        self.table = _read_table(center_file_path)
        charset = None if context is None else context.charset
        if self.table is not None and charset is not None:
            self.table.check_fits(charset, str(center_file_path))
        self.bank = CenterBank(
            *_sizes(num_classes, feat_dim, context),
            self.table,
            str(center_file_path),
            is_drawn=self.table is None and self.update == "frozen",
        )
        is_relative = check_option(relative, "CenterLoss: relative", "truth")
        self._unit = _mean_variance(self.table, self.blank) if is_relative else 1.0
        self.register_buffer("steps", paddle.zeros([], dtype="int64"))

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss_center": scalar, "loss": the same}``; 0 if no frame counts."""
        features, logits = _features_and_logits(predicts)
        lines, frames, feat_dim = features.shape
        if [logits.shape[-1], feat_dim] != self.bank.centers.shape:
            raise ModelError(
                f"CenterLoss: the CTC head returns {feat_dim} features and {logits.shape[-1]} classes, but the "
                f"centers have {self.bank.centers.shape[1]} and {self.bank.centers.shape[0]}.",
                code="shape_mismatch",
            )
        if self.frames == "argmax":
            class_ids = best_classes(logits).flatten()
        else:  # -1 if the label needs more frames than there are
            _, label, length, *_ = head_batch(batch, "ctc", isinstance(predicts, Mapping), "CenterLoss")
            class_ids = forced_alignment(logits, label, length).flatten()
        rows = features.reshape([lines * frames, feat_dim])
        if self.update == "ema":
            used = self._used(class_ids, None)
            chosen, ids = _select(rows.detach(), class_ids, used)
            means, counts = self.bank.means(chosen, ids)
            self.bank.start(means, counts)
        used = self._used(class_ids, self.bank.known)
        # Without frames the loss is 0, but must stay part of the graph.
        some = bool(used.any())
        loss = self._distance(*_select(rows, class_ids, used)) if some else rows.clip(0.0, 0.0).sum()
        if self.warmup_steps:
            step = int(self.steps)
            self.steps.set_value(paddle.to_tensor(step + 1, dtype="int64"))
            loss = loss * min(1.0, step / self.warmup_steps)
        if self.update == "ema":
            self.bank.move(means, counts, self.momentum)
        return {"loss_center": loss, "loss": loss}

    def _used(self, class_ids: paddle.Tensor, known: paddle.Tensor | None) -> paddle.Tensor:
        """Return which frames count, bool [N]."""
        used = class_ids > (UNALIGNED if self.blank else BLANK)
        if known is None:
            return used
        known = known.astype("int32")  # Paddle 2.6 cannot index_select booleans
        return used.logical_and(known.index_select(class_ids.clip(min=0)) > 0)

    def _distance(self, rows: paddle.Tensor, class_ids: paddle.Tensor) -> paddle.Tensor:
        return _SquaredDistance.apply(rows, self.bank.centers, class_ids) / (rows.shape[0] * self._unit)


class _SquaredDistance(PyLayer):
    """Sum up squared distances of rows [M, D] to the centers [C, D] of their classes [M].

    It needs one buffer of M·D in the forward pass and one in the backward pass; the plain formula needs five.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: paddle.Tensor, centers: paddle.Tensor, class_ids: paddle.Tensor
    ) -> paddle.Tensor:
        offset = centers.index_select(class_ids).subtract_(rows)
        ctx.save_for_backward(offset)
        # Row by row, since one float32 sum over all M·D would be wrong in its third digit.
        return paddle.dot(offset, offset).sum()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        (offset,) = ctx.saved_tensor()
        return offset * (-2.0 * gradient)


def _read_table(path: Any) -> CenterTable | None:
    """Return the centers of a file, None without a file.

    Raises:
        ConfigError: there is a file for each sub-model.
    """
    if isinstance(path, Mapping):
        raise ConfigError(
            "CenterLoss: center_file_path has files of sub-models, but there is only one model. Fix: give one file.",
            code="bad_value",
        )
    return read_centers(path) if path else None


def _mean_variance(table: CenterTable | None, blank: bool) -> float:
    """Return the mean squared distance of the frames of a file to their centers, if ``blank`` also those of the blank.

    Raises:
        ConfigError: there is no file, or all its frames are equal to their centers.
    """
    counts = [0] if table is None else table.counts * (blank or table.class_ids != BLANK)
    variance = 0.0 if table is None or not sum(counts) else float(np.average(table.variance, weights=counts))
    if not variance > 0:
        raise ConfigError(
            "CenterLoss: relative needs a file of centers with more than one frame each. Fix: write one with "
            "`ppocr-ext export-center` and give it as center_file_path, or set `relative: false`.",
            code="missing_centers",
        )
    return variance


def _sizes(num_classes: int | None, feat_dim: int | None, context: LossContext | None) -> tuple[int, int]:
    """Return C and D.

    Raises:
        ConfigError: they are wrong, or missing without a context.
        ModelError: the model has no CTC head.
    """
    if context is None:
        if num_classes is None or feat_dim is None:
            raise ConfigError(
                "CenterLoss: num_classes and feat_dim are missing. Fix: give both, or call build_loss with a context.",
                code="missing_context",
            )
        return num_classes, feat_dim
    sizes = (context.charset.ctc_classes, context.feature_size(None))
    for key, given, size in zip(("num_classes", "feat_dim"), (num_classes, feat_dim), sizes, strict=True):
        if given not in (None, size):
            raise ConfigError(
                f"CenterLoss: {key} is {given}, but the model has {size}. Fix: remove {key}.",
                code="bad_value",
            )
    return sizes


def _features_and_logits(predicts: Any) -> tuple[paddle.Tensor, paddle.Tensor]:
    output = predicts.get("ctc") if isinstance(predicts, Mapping) else predicts
    if not isinstance(output, tuple | list) or len(output) != 2:
        raise ConfigError(
            "CenterLoss needs the features of a CTC head, but the head returns none. Fix: set `return_feats: true` "
            "under CTCHead.Head (of a single CTCHead: under Head).",
            code="missing_output",
        )
    features, logits = (to_tensor(part, "CenterLoss: the prediction") for part in output)
    if features.ndim != 3 or logits.ndim != 3 or features.shape[:2] != logits.shape[:2]:
        raise ModelError(
            f"CenterLoss: features {list(features.shape)} and logits {list(logits.shape)} must both be "
            f"[batch, frames, …].",
            code="shape_mismatch",
        )
    # Centers are float32. A cast to the same type would copy.
    return features if features.dtype == paddle.float32 else features.astype("float32"), logits


def _select(
    rows: paddle.Tensor, class_ids: paddle.Tensor, used: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the rows that count, and their classes, without a copy if all count."""
    if bool(used.all()):
        return rows, class_ids
    if not bool(used.any()):  # Paddle 2.6 cannot select an empty set
        return rows[:0], class_ids[:0]
    index = paddle.nonzero(used).flatten()
    return rows.index_select(index), class_ids.index_select(index)
