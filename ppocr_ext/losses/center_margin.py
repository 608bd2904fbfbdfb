"""The centers of a center loss, how they move, and its margin: a frame is nearer to its own than to look-alikes'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.characters.look_alikes import SHIPPED, read_groups, symbol_name, within
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.messages import LOG

_BLOCK = 512  # centers whose distances to all others are held at a time
FAR = 1e30  # above every distance, and finite, since Paddle's check of operators would report infinity


class CenterBank(nn.Layer):
    """Hold one center for each class, as buffers: they are saved, resumed and never trained by gradients.

    Args:
        classes: C, CTC classes with the blank.
        feat_dim: D, features of a frame.
        table: centers to start from, if any.
        where: their file, for messages.

    Attributes:
        centers: float32 [C, D].
        known: bool [C], which classes have a center.

    Raises:
        DataError: the table has other features or classes than the model.
    """

    centers: paddle.Tensor
    known: paddle.Tensor

    def __init__(
        self, classes: int, feat_dim: int, table: CenterTable | None = None, where: str = "The center file"
    ) -> None:
        super().__init__()
        centers = np.zeros([classes, feat_dim], np.float32)
        known = np.zeros([classes], bool)
        if table is not None and len(table.class_ids):
            if table.feat_dim != feat_dim:
                raise DataError(
                    f"{where} has centers of {table.feat_dim} features, but the CTC head's classifier sees {feat_dim}. "
                    f"Fix: export the centers again from this model.",
                    code="centers_mismatch",
                )
            if int(table.class_ids[-1]) >= classes:
                raise DataError(
                    f"{where} has a center of class {int(table.class_ids[-1])}, but the head has {classes} classes. "
                    f"Fix: export the centers again with this dictionary.",
                    code="centers_mismatch",
                )
            centers[table.class_ids] = table.centers
            known[table.class_ids] = True
        self.register_buffer("centers", paddle.to_tensor(centers))
        self.register_buffer("known", paddle.to_tensor(known))

    @paddle.no_grad()
    def means(self, features: paddle.Tensor, class_ids: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the mean feature [C, D] of each class and its frames [C], over the batches of all processes.

        Args:
            features: float32 [M, D]; a row that is not finite does not count.
            class_ids: int64 [M].
        """
        classes, feat_dim = self.centers.shape
        sums = paddle.zeros([classes, feat_dim], "float32")
        counts = paddle.zeros([classes], "float32")
        if features.shape[0]:
            finite = paddle.isfinite(features.sum(axis=1))
            features = paddle.where(finite.unsqueeze(1), features, paddle.zeros_like(features))
            sums = sums.index_add(class_ids, 0, features)
            counts = counts.index_add(class_ids, 0, finite.astype("float32"))
        if dist.get_world_size() > 1:
            dist.all_reduce(sums)
            dist.all_reduce(counts)
        return sums / counts.clip(min=1.0).unsqueeze(1), counts

    @paddle.no_grad()
    def start(self, means: paddle.Tensor, counts: paddle.Tensor) -> None:
        """Give classes that have frames but no center their mean as center."""
        new = (counts > 0).logical_and(self.known.logical_not())
        self.centers.set_value(paddle.where(new.unsqueeze(1), means, self.centers))
        self.known.set_value(self.known.logical_or(new))

    @paddle.no_grad()
    def move(self, means: paddle.Tensor, counts: paddle.Tensor, momentum: float) -> None:
        """Set ``c ← momentum · c + (1 - momentum) · mean`` for classes that have frames."""
        moved = self.centers * momentum + means * (1.0 - momentum)
        self.centers.set_value(paddle.where((counts > 0).unsqueeze(1), moved, self.centers))

    @paddle.no_grad()
    def nearest(self, count: int) -> paddle.Tensor:
        """Return the characters with the nearest other centers, or the class itself: int64 [C, count]."""
        classes = self.centers.shape[0]
        own = paddle.arange(classes, dtype="int64")
        known = self.known.clone()
        known[0] = False  # the blank is not a look-alike
        ids = paddle.nonzero(known).flatten()
        count = min(count, max(0, ids.shape[0] - 1))
        if count == 0:
            return own.unsqueeze(1)
        rows = self.centers.index_select(ids)
        norms = rows.square().sum(axis=1)
        table = own.unsqueeze(1).tile([1, count])
        found = []
        for begin in range(0, ids.shape[0], _BLOCK):
            block = rows[begin : begin + _BLOCK]
            distances = norms.unsqueeze(0) - 2.0 * paddle.matmul(block, rows, transpose_y=True)
            itself = paddle.arange(begin, begin + block.shape[0], dtype="int64").unsqueeze(1)
            distances = paddle.put_along_axis(distances, itself, FAR, axis=1)
            found.append(distances.topk(count, axis=1, largest=False)[1])
        neighbours = ids.index_select(paddle.concat(found).flatten()).reshape([-1, count])
        return paddle.scatter(table, ids, neighbours)


_LISTED = 20  # characters that a message lists
_UNSEEN = -1  # in the row of a class that had no center when the nearest were searched
_REFRESH = 100  # steps after which the nearest centers are searched again, if centers move


class CenterMargin(nn.Layer):
    """Compute the hinge ``max(0, d(f, c) - d(f, n) + margin)`` on squared distances of a frame f.

    It is the triplet-center loss (He et al., CVPR 2018), with look-alikes in place of all other classes.

    c is the center of the frame's class, n the one nearest to the frame among the centers of its look-alikes.
    If centers move, the nearest are searched every 100 steps and whenever a class gets its center; the result is
    saved with the centers, so that a resumed run has the same.

    Args:
        margin: in units of squared distance; 0: no hinge, and look-alikes are only checked.
        look_alikes: how many nearest centers are a character's look-alikes; or a file of groups, one group on each
            line; or ``shipped``, the groups that come with this package. With groups the look-alikes of a character
            are the others of all groups that it is in.
        bank: the centers.
        moving: whether they move. If not, the look-alikes follow from them and are not saved.
        charset: the dictionary; needed for groups.

    Raises:
        ConfigError: ``look_alikes`` is none of these, or groups are given without a dictionary.
        DataError: the file cannot be read or holds no groups; or no two characters of a group are in the
            dictionary, or have a center in ``bank``.
    """

    def __init__(
        self,
        margin: float,
        look_alikes: int | str,
        bank: CenterBank,
        moving: bool,
        charset: Charset | None = None,
    ) -> None:
        super().__init__()
        self.margin = margin
        self.look_alikes = look_alikes
        classes = bank.centers.shape[0]
        self._candidates: paddle.Tensor | None = None  # int64 [C, K], of groups
        if isinstance(look_alikes, str):
            self._groups_name = "the shipped look-alikes" if look_alikes == SHIPPED else look_alikes
            groups = read_groups(look_alikes)
            if charset is not None:
                self._candidates = self._group_candidates(groups, charset)
                if margin and not moving:
                    self._check_centers(bank, charset)
            elif margin:
                raise ConfigError(
                    "CenterLoss: groups of look-alikes need the dictionary. Fix: call build_loss with a context, as a "
                    "training run does, or give a number as look_alikes.",
                    code="missing_context",
                )
        elif isinstance(look_alikes, bool) or not isinstance(look_alikes, int) or look_alikes < 1:
            raise ConfigError(
                f"CenterLoss: look_alikes is {look_alikes!r}, but must be a number of nearest centers, at least 1, "
                f"or `{SHIPPED}`, or a file of groups, one group on each line.",
                code="bad_value",
            )
        elif margin:
            width = max(1, min(look_alikes, classes - 2))
            self.register_buffer("neighbours", paddle.full([classes, width], _UNSEEN, "int64"), moving)

    def _group_candidates(self, groups: Sequence[str], charset: Charset) -> paddle.Tensor:
        """Return the others of all groups of each class, then the class itself up to K: int64 [C, K]."""
        present = within(groups, charset.characters)
        if not present:
            raise DataError(
                f"CenterLoss: no group of {self._groups_name} has two characters of {charset.name}, so the margin has "
                f"no effect. Fix: give groups of its characters as look_alikes, or a number of nearest centers.",
                code="no_look_alikes",
            )
        others: dict[int, dict[int, None]] = {}
        for group in map(charset.ids, present):
            for one in group:
                others.setdefault(one, {}).update(dict.fromkeys(other for other in group if other != one))
        width = max(map(len, others.values()))
        rows = ([*others.get(c, ())] for c in range(charset.ctc_classes))
        return paddle.to_tensor(
            [[*row, *[c] * (width - len(row))] for c, row in enumerate(rows)], dtype="int64"
        )

    def _check_centers(self, bank: CenterBank, charset: Charset) -> None:
        """Log which characters the margin acts on."""
        every = paddle.arange(charset.ctc_classes, dtype="int64")
        table = self._table(bank, None)
        grouped = (table != every.unsqueeze(1)).any(axis=1)
        served = self._allowed(table, every, bank).any(axis=1).logical_and(bank.known)
        lacking = [charset.ctc_symbols[i] for i in np.flatnonzero((grouped.numpy()) & ~served.numpy())]
        if not bool(served.any()):
            raise DataError(
                f"CenterLoss: no two characters of a group of {self._groups_name} have a center, so the margin has no "
                f"effect. Fix: `ppocr-ext export-center` lists the characters that have none.",
                code="no_look_alikes",
            )
        LOG.info("CenterLoss: the margin acts on %d characters of %s", int(served.sum()), self._groups_name)
        if lacking:
            shown = " ".join(map(symbol_name, lacking[:_LISTED])) + (" …" if len(lacking) > _LISTED else "")
            LOG.warning(
                "CenterLoss: the margin cannot act on %d more, which have no center or no look-alike with one: %s",
                len(lacking),
                shown,
            )

    def forward(
        self, rows: paddle.Tensor, class_ids: paddle.Tensor, bank: CenterBank, step: int | None
    ) -> paddle.Tensor:
        """Return the mean over the frames that have a look-alike with a center; 0 if none has.

        Args:
            rows: float32 [M, D], features of frames.
            class_ids: int64 [M], of classes that have a center.
            bank: the centers.
            step: the number of steps before this one if centers move; None if they do not.
        """
        candidates = self._table(bank, step).index_select(class_ids)
        allowed = self._allowed(candidates, class_ids, bank)
        if not bool(allowed.any()):
            return paddle.zeros([])
        index = paddle.nonzero(allowed.any(axis=1)).flatten()
        rows = rows.index_select(index)
        class_ids = class_ids.index_select(index)
        candidates = candidates.index_select(index)
        allowed = allowed.astype("int32").index_select(index) > 0
        rivals = _nearest(rows.detach(), candidates, allowed, bank.centers)
        return _Hinge.apply(rows, bank.centers, class_ids, rivals, self.margin) / rows.shape[0]

    @staticmethod
    def _allowed(candidates: paddle.Tensor, class_ids: paddle.Tensor, bank: CenterBank) -> paddle.Tensor:
        """Return which candidates are another class than the row's and have a center, bool [M, K]."""
        known = bank.known.astype("int32")  # Paddle 2.6 cannot index_select booleans
        has_center = known.index_select(candidates.flatten()).reshape(candidates.shape) > 0
        return has_center.logical_and(candidates != class_ids.unsqueeze(1))

    def _table(self, bank: CenterBank, step: int | None) -> paddle.Tensor:
        """Return the look-alikes of each class, with and without a center; itself if it has fewer: int64 [C, K]."""
        if self._candidates is not None:
            return self._candidates
        unseen = (self.neighbours[:, 0] == _UNSEEN).logical_and(bank.known)
        if (step is not None and step % _REFRESH == 0) or bool(unseen.any()):
            self.neighbours.set_value(_nearest_classes(bank, self.neighbours.shape[1]))
        return self.neighbours


class _Hinge(PyLayer):
    """Sum up ``max(0, d(f, c) - d(f, n) + margin)`` over rows f [M, D], c and n the centers [C, D] of classes [M].

    Two buffers of M·D in the forward pass and one in the backward pass; the plain formula has seven.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: paddle.Tensor,
        centers: paddle.Tensor,
        class_ids: paddle.Tensor,
        rivals: paddle.Tensor,
        margin: float,
    ) -> paddle.Tensor:
        direction = centers.index_select(class_ids)
        other = centers.index_select(rivals)
        direction.subtract_(other)
        # d(f, c) - d(f, n) = (c - n) · (c + n - 2 f), without squares that cancel
        other.subtract_(rows).scale_(2.0).add_(direction)
        hinge = F.relu(paddle.dot(direction, other) + margin)
        ctx.save_for_backward(direction, (hinge > 0).astype("float32"))
        return hinge.sum()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        direction, active = ctx.saved_tensor()
        return direction * (-2.0 * gradient * active).unsqueeze(1)


@paddle.no_grad()
def _nearest_classes(bank: CenterBank, width: int) -> paddle.Tensor:
    """Return the nearest others, then the class itself; ``_UNSEEN`` for a class without center: int64 [C, width]."""
    table = bank.nearest(width)
    own = paddle.arange(table.shape[0], dtype="int64").unsqueeze(1)
    table = paddle.concat([table, *[own] * (width - table.shape[1])], axis=1)
    return paddle.where(bank.known.unsqueeze(1), table, paddle.full_like(table, _UNSEEN))


@paddle.no_grad()
def _nearest(
    rows: paddle.Tensor, candidates: paddle.Tensor, allowed: paddle.Tensor, centers: paddle.Tensor
) -> paddle.Tensor:
    """Return which of the allowed candidates [M, K] of each row, at least one, has the nearest center: int64 [M].

    A column costs as much as it has allowed entries, so that one large group does not slow the others down.
    """
    best = paddle.full([rows.shape[0]], FAR)
    chosen = candidates[:, 0].clone()
    for column in range(candidates.shape[1]):
        here = allowed[:, column]
        if not bool(here.any()):
            continue
        index = paddle.nonzero(here).flatten()
        ids = candidates[:, column].index_select(index)
        offset = centers.index_select(ids).subtract_(rows.index_select(index))
        distance = paddle.dot(offset, offset)
        nearer = distance < best.index_select(index)
        best = paddle.scatter(best, index, paddle.where(nearer, distance, best.index_select(index)))
        chosen = paddle.scatter(chosen, index, paddle.where(nearer, ids, chosen.index_select(index)))
    return chosen
