"""The margin of center loss: a character's frames stay nearer to its own center than to those of look-alikes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer

from ppocr_ext.characters.look_alikes import SHIPPED, read_groups, within
from ppocr_ext.characters.symbol_names import symbol_name
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.losses.center_bank import CenterBank

_LOG = logging.getLogger("ppocr_ext")
_LISTED = 20  # characters that a message lists
_UNSEEN = -1  # in the row of a class that had no center when the nearest were looked for
_REFRESH = 100  # steps after which the nearest centers are looked for again, where centers move


class CenterMargin(nn.Layer):
    """Hinge ``max(0, d(f, c) - d(f, n) + margin)`` on squared distances of a frame f.

    It is the triplet-center loss (He et al., CVPR 2018), with look-alikes in place of all other classes.

    c is the center of the frame's class, n the one nearest to the frame among the centers of its look-alikes.
    Nearest centers that move are looked for every 100 steps and whenever a class gets its center; what was found is
    saved with the centers, so that a run that goes on has the same.

    Args:
        margin: in units of squared distance; 0: no hinge.
        look_alikes: how many nearest centers are a character's look-alikes; or a file of groups, a group a line;
            or ``shipped``, the groups that come with this package. By groups the look-alikes of a character are the
            others of all groups that it is in.
        where: how messages call the loss.

    Raises:
        ConfigError: ``look_alikes`` is none of these.
        DataError: the file cannot be read or holds no groups.
    """

    def __init__(self, margin: float, look_alikes: int | str, where: str) -> None:
        super().__init__()
        self.margin = margin
        self.look_alikes = look_alikes
        self.where = where
        self._groups: tuple[str, ...] = ()
        self._candidates: paddle.Tensor | None = None  # int64 [C, K] by groups
        self.neighbours: paddle.Tensor | None = None  # int64 [C, K] by number
        if isinstance(look_alikes, str):
            self._groups = read_groups(look_alikes)
        elif isinstance(look_alikes, bool) or not isinstance(look_alikes, int) or look_alikes < 1:
            raise ConfigError(
                f"{where}: look_alikes is {look_alikes!r}, but must be how many nearest centers are look-alikes, at "
                f"least 1, or `{SHIPPED}`, or a file of groups, a group a line."
            )

    def prepare(self, charset: Charset, bank: CenterBank | None = None) -> None:
        """Learn the classes of the groups' characters.

        Args:
            charset: the dictionary.
            bank: the centers, where they stay.

        Raises:
            DataError: no two characters of a group are in the dictionary, or have a center in ``bank``.
        """
        if not self._groups:
            return
        groups = within(self._groups, charset.characters)
        if not groups:
            raise DataError(
                f"{self.where}: no group of {self._named} has two characters of {charset.name}, so that the "
                f"margin has nothing to act on. Give groups of its characters as look_alikes, or a number: as many "
                f"nearest centers."
            )
        self._candidates = _candidates_of([charset.ids(group) for group in groups], charset.ctc_classes)
        if bank is not None and self.margin:
            self._check_centers(bank, charset)

    def _check_centers(self, bank: CenterBank, charset: Charset) -> None:
        every = paddle.arange(charset.ctc_classes, dtype="int64")
        table = self._table(bank, None)
        grouped = (table != every.unsqueeze(1)).any(axis=1)
        served = self._allowed(table, every, bank).any(axis=1).logical_and(bank.known)
        lacking = [charset.ctc_symbols[i] for i in np.flatnonzero((grouped.numpy()) & ~served.numpy())]
        if not bool(served.any()):
            raise DataError(
                f"{self.where}: no two characters of a group of {self._named} have a center, so that the margin has "
                f"nothing to act on. `ppocr-ext export-center` says which characters have none."
            )
        _LOG.info("%s: the margin acts on %d characters of %s", self.where, int(served.sum()), self._named)
        if lacking:
            shown = " ".join(map(symbol_name, lacking[:_LISTED])) + (" …" if len(lacking) > _LISTED else "")
            _LOG.warning(
                "%s: it cannot act on %d more, which have no center or no look-alike that has one: %s",
                self.where,
                len(lacking),
                shown,
            )

    def make_table(self, classes: int, moving: bool) -> None:
        """Make room for the nearest centers, so that they can be loaded before the first step.

        Args:
            classes: C, CTC classes with the blank.
            moving: the centers move; where they stay, the table follows from them and is no state.
        """
        if isinstance(self.look_alikes, int):
            width = max(1, min(self.look_alikes, classes - 2))
            del self.neighbours
            self.register_buffer("neighbours", paddle.full([classes, width], _UNSEEN, "int64"), moving)

    def forward(
        self, rows: paddle.Tensor, class_ids: paddle.Tensor, bank: CenterBank, step: int | None
    ) -> paddle.Tensor:
        """The mean over the frames that have a look-alike with a center; 0 where none has.

        Args:
            rows: float32 [M, D], features of frames.
            class_ids: int64 [M], of classes that have a center.
            bank: the centers.
            step: where centers move, how many steps they have; None: they stay.

        Raises:
            ConfigError: groups are given, but no dictionary.
        """
        candidates = self._table(bank, step).index_select(class_ids)
        allowed = self._allowed(candidates, class_ids, bank)
        if not bool(allowed.any()):
            return paddle.zeros([])
        index = paddle.nonzero(allowed.any(axis=1)).flatten()
        rows, class_ids = rows.index_select(index), class_ids.index_select(index)
        candidates, allowed = candidates.index_select(index), allowed.astype("int32").index_select(index) > 0
        rivals = _nearest(rows.detach(), candidates, allowed, bank.centers)
        return _Hinge.apply(rows, bank.centers, class_ids, rivals, self.margin) / rows.shape[0]

    @property
    def _named(self) -> str:
        return "the shipped look-alikes" if self.look_alikes == SHIPPED else str(self.look_alikes)

    @staticmethod
    def _allowed(candidates: paddle.Tensor, class_ids: paddle.Tensor, bank: CenterBank) -> paddle.Tensor:
        """bool [M, K]: candidates that are another class than the row's and have a center."""
        known = bank.known.astype("int32")  # Paddle 2.6 selects no truth values
        has_center = known.index_select(candidates.flatten()).reshape(candidates.shape) > 0
        return has_center.logical_and(candidates != class_ids.unsqueeze(1))

    def _table(self, bank: CenterBank, step: int | None) -> paddle.Tensor:
        """int64 [C, K]: look-alikes of each class, with and without a center; itself where it has fewer."""
        if isinstance(self.look_alikes, str):
            if self._candidates is None:
                raise ConfigError(
                    f"{self.where}: groups of look-alikes need the dictionary. Call `prepare` with it before the first "
                    f"step, as a training run does, or give a number as look_alikes."
                )
            return self._candidates
        if self.neighbours is None:
            self.make_table(bank.centers.shape[0], moving=step is not None)
        assert self.neighbours is not None
        unseen = (self.neighbours[:, 0] == _UNSEEN).logical_and(bank.known)
        if (step is not None and step % _REFRESH == 0) or bool(unseen.any()):
            self.neighbours.set_value(_nearest_classes(bank, self.neighbours.shape[1]))
        return self.neighbours


class _Hinge(PyLayer):
    """Sum of ``max(0, d(f, c) - d(f, n) + margin)`` over rows f [M, D], c and n the centers [C, D] of two classes [M].

    Two buffers of M·D in the forward pass and one in the backward pass, where the plain formula has seven.
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
        direction, other = centers.index_select(class_ids), centers.index_select(rivals)
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
    """int64 [C, width]: the nearest others, then the class itself; ``_UNSEEN`` where a class has no center."""
    table = bank.nearest(width)
    own = paddle.arange(table.shape[0], dtype="int64").unsqueeze(1)
    table = paddle.concat([table, *[own] * (width - table.shape[1])], axis=1)
    return paddle.where(bank.known.unsqueeze(1), table, paddle.full_like(table, _UNSEEN))


def _candidates_of(groups: list[list[int]], classes: int) -> paddle.Tensor:
    """int64 [C, K]: the others of all groups of each class, then the class itself up to K."""
    others: dict[int, dict[int, None]] = {}
    for group in groups:
        for one in group:
            others.setdefault(one, {}).update(dict.fromkeys(other for other in group if other != one))
    width = max(map(len, others.values()))
    table = [[*others.get(c, ()), *[c] * (width - len(others.get(c, ())))] for c in range(classes)]
    return paddle.to_tensor(table, dtype="int64")


@paddle.no_grad()
def _nearest(
    rows: paddle.Tensor, candidates: paddle.Tensor, allowed: paddle.Tensor, centers: paddle.Tensor
) -> paddle.Tensor:
    """int64 [M]: of the allowed of K candidates [M, K], one at least, that whose center is nearest to the row.

    A column costs as much as it has allowed entries, so that one large group does not slow the others down.
    """
    best = paddle.full([rows.shape[0]], float("inf"))
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
