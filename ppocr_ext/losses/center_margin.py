"""The centers of a center loss, and its margin, by which a frame should be nearer to its center than to look-alikes."""

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
from ppocr_ext.characters.look_alikes import SHIPPED, read_groups, within
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.messages import LOG

_BLOCK = 512  # centers whose distances to all others are in memory at a time
FAR = 1e30  # above every distance; finite, since Paddle's check of operators reports infinity


class CenterBank(nn.Layer):
    """Hold one center for each class, in buffers, which are saved and resumed but get no gradients.

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
        """Return the mean feature [C, D] and the number of frames [C] of each class, over all processes.

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
        """Set the mean as the center of classes that have frames but no center yet."""
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
        """Return the classes of the nearest other centers, int64 [C, count]; for a class without a center, itself."""
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
        nearest = []
        for begin in range(0, ids.shape[0], _BLOCK):
            block = rows[begin : begin + _BLOCK]
            distances = norms.unsqueeze(0) - 2.0 * paddle.matmul(block, rows, transpose_y=True)
            itself = paddle.arange(begin, begin + block.shape[0], dtype="int64").unsqueeze(1)
            distances = paddle.put_along_axis(distances, itself, FAR, axis=1)
            nearest.append(distances.topk(count, axis=1, largest=False)[1])
        neighbours = ids.index_select(paddle.concat(nearest).flatten()).reshape([-1, count])
        return paddle.scatter(table, ids, neighbours)


_UNSEEN = -1  # fills the row of a class that had no center at the last search
_REFRESH = 100  # steps after which the nearest centers are searched again, if centers move


class CenterMargin(nn.Layer):
    """Compute the hinge ``max(0, d(f, c) - d(f, n) + margin)`` on squared distances of a frame f.

    c is the center of the frame's class; n is the center nearest to the frame among those of its look-alikes. This is
    the triplet-center loss (He et al., CVPR 2018), with look-alikes in place of all other classes.

    If centers move, the nearest ones are searched every 100 steps, and whenever a class gets its first center. The
    result is saved with the centers, so that a resumed run has the same one.

    Args:
        margin: in units of squared distance. With 0 there is no hinge, and look-alikes are only checked.
        look_alikes: the number of nearest centers that are look-alikes of a character, or a file of groups with one
            group on each line, or ``shipped`` for the groups of this package. With groups, the look-alikes of a
            character are the other characters of its groups.
        bank: the centers.
        moving: whether they move. If not, the look-alikes are computed from them again and not saved.
        charset: the dictionary, which groups need.

    Raises:
        ConfigError: ``look_alikes`` has another value, or groups are given without a dictionary.
        DataError: the file cannot be read or has no groups, or no group has two characters that are in the dictionary,
            or two that have a center in ``bank``.
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
                f"CenterLoss: look_alikes is {look_alikes!r}, but must be a number of nearest centers from 1, "
                f"`{SHIPPED}`, or a file of groups, one group on each line.",
                code="bad_value",
            )
        elif margin:
            width = max(1, min(look_alikes, classes - 2))
            self.register_buffer("neighbours", paddle.full([classes, width], _UNSEEN, "int64"), moving)

    def _group_candidates(self, groups: Sequence[str], charset: Charset) -> paddle.Tensor:
        """Return the look-alikes of each class, filled up with the class itself: int64 [C, K]."""
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
        """Log how many characters the margin acts on.

        Raises:
            DataError: it acts on none.
        """
        every = paddle.arange(charset.ctc_classes, dtype="int64")
        table = self._table(bank, None)
        grouped = (table != every.unsqueeze(1)).any(axis=1)
        served = self._allowed(table, every, bank).any(axis=1).logical_and(bank.known)
        if not bool(served.any()):
            raise DataError(
                f"CenterLoss: no two characters of a group of {self._groups_name} have a center, so the margin has no "
                f"effect. Fix: `ppocr-ext export-center` lists the characters that have none.",
                code="no_look_alikes",
            )
        LOG.info(
            "CenterLoss: the margin acts on %d of %d characters of %s; the others, or their look-alikes, have no "
            "center",
            int(served.sum()),
            int(grouped.sum()),
            self._groups_name,
        )

    def forward(
        self, rows: paddle.Tensor, class_ids: paddle.Tensor, bank: CenterBank, step: int | None
    ) -> paddle.Tensor:
        """Return the mean over the frames that have a look-alike with a center; 0 without such frames.

        Args:
            rows: float32 [M, D], features of frames.
            class_ids: int64 [M], classes of the frames; all have a center.
            bank: the centers.
            step: the number of this step, from 0, if centers move; None otherwise.
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
        """Return which candidates have a center and are not the class of the row, bool [M, K]."""
        known = bank.known.astype("int32")  # Paddle 2.6 cannot index_select booleans
        has_center = known.index_select(candidates.flatten()).reshape(candidates.shape) > 0
        return has_center.logical_and(candidates != class_ids.unsqueeze(1))

    def _table(self, bank: CenterBank, step: int | None) -> paddle.Tensor:
        """Return the look-alikes of each class, filled up with the class itself: int64 [C, K]."""
        if self._candidates is not None:
            return self._candidates
        unseen = (self.neighbours[:, 0] == _UNSEEN).logical_and(bank.known)
        if (step is not None and step % _REFRESH == 0) or bool(unseen.any()):
            self.neighbours.set_value(_nearest_classes(bank, self.neighbours.shape[1]))
        return self.neighbours


class _Hinge(PyLayer):
    """Sum up ``max(0, d(f, c) - d(f, n) + margin)`` over rows f [M, D], c and n the centers [C, D] of classes [M].

    It needs two buffers of M·D in the forward pass and one in the backward pass; the plain formula needs seven.
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
    """Return the nearest other classes, filled up with the class itself; ``_UNSEEN`` without a center [C, width]."""
    table = bank.nearest(width)
    own = paddle.arange(table.shape[0], dtype="int64").unsqueeze(1)
    table = paddle.concat([table, *[own] * (width - table.shape[1])], axis=1)
    return paddle.where(bank.known.unsqueeze(1), table, paddle.full_like(table, _UNSEEN))


@paddle.no_grad()
def _nearest(
    rows: paddle.Tensor, candidates: paddle.Tensor, allowed: paddle.Tensor, centers: paddle.Tensor
) -> paddle.Tensor:
    """Return the allowed candidate with the nearest center for each row, int64 [M]. Each row allows at least one.

    Only the allowed entries of a column are computed, so that one large group does not slow down the others.
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
