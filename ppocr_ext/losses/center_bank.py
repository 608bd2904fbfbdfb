"""Hold the centers of a center loss."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.errors import DataError


class CenterBank(nn.Layer):
    """Hold one center for each class, in buffers, which are saved and resumed but get no gradients.

    Args:
        classes: C, CTC classes with the blank.
        feat_dim: D, features of a frame.
        table: centers to start from, if any.
        where: their file, for messages.
        is_drawn: whether centers are random at the start; otherwise a class without an entry in the table has none.

    Attributes:
        centers: float32 [C, D].
        known: bool [C], which classes have a center.

    Raises:
        DataError: the table has other features or classes than the model.
    """

    centers: paddle.Tensor
    known: paddle.Tensor

    def __init__(
        self,
        classes: int,
        feat_dim: int,
        table: CenterTable | None = None,
        where: str = "The center file",
        is_drawn: bool = False,
    ) -> None:
        super().__init__()
        centers = np.zeros([classes, feat_dim], np.float32)
        if is_drawn:  # the same in all processes, and without a draw from the generators of the run
            centers = np.random.default_rng(0).standard_normal([classes, feat_dim]).astype(np.float32)
        known = np.full([classes], is_drawn)
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
