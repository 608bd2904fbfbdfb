"""Center loss: pulls the features of a character's frames to one center (Wen et al., ECCV 2016)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.losses.alignment import UNALIGNED, forced_alignment
from ppocr_ext.losses.base import FEATURES, Loss, Parts, Read, number, one_of, to_tensor
from ppocr_ext.losses.center_bank import CenterBank
from ppocr_ext.losses.center_margin import CenterMargin
from ppocr_ext.losses.functional import best_classes
from ppocr_ext.losses.targets import head_batch
from ppocr_ext.registry import LOSSES

BLANK = 0
_LABELS = ("argmax", "aligned")
_UPDATES = ("frozen", "ema")


@LOSSES.register()
class CenterLoss(Loss):
    """Mean squared distance of each frame's feature to the center of its class.

    ``predicts``: ``(features [B, T, D], logits [B, T, C])`` of a CTC head with ``return_feats``, or a MultiHead's
    outputs, of which ``ctc`` is read. The defaults are PaddleOCR's loss; it computes a dense float64 ``[B·T, C]``,
    here only the distances that count are computed, in O(B·T·D).

    Args:
        num_classes: C; by itself that of the head.
        feat_dim: D; by itself that of the features.
        center_file_path: centers to start from, ``.npz`` of ``export-center`` or PaddleOCR's ``.pkl``.
        labels: what class a frame has: ``argmax``, the most probable one (PaddleOCR's: a frame read wrongly is
            pulled to the wrong center), or ``aligned``, by CTC forced alignment of the true label.
        blank: whether frames of the blank count.
        update: ``frozen`` centers stay; ``ema`` moves them towards the mean feature of each batch's frames, the
            same on all processes. A class without a center is left out (frozen), or starts at its mean (ema).
        momentum: of ``ema``: what remains of a center at each step.
        margin: adds ``max(0, d(f, c) - d(f, n) + margin)``, n being the center nearest to the frame among the
            look-alikes of its character; in units of squared distance. 0: no such term.
        look_alikes: of a character: how many nearest centers; or a file of groups, a group a line; or ``shipped``,
            the groups that come with this package. A character that is in no group has no such term.
        warmup_steps: the loss grows from 0 to its weight over as many steps.

    Raises:
        ConfigError: an option cannot be used, or frozen centers come from nowhere.
        DataError: the centers cannot be read, or are of another dictionary or feature size.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        feat_dim: int | None = None,
        center_file_path: str | None = None,
        labels: str = "argmax",
        blank: bool = True,
        update: str = "frozen",
        momentum: float = 0.99,
        margin: float = 0.0,
        look_alikes: int | str = 3,
        warmup_steps: int = 0,
    ) -> None:
        super().__init__()
        self.labels = one_of(labels, _LABELS, "CenterLoss: labels")
        self.blank = _truth(blank, "CenterLoss: blank")
        self.update = one_of(update, _UPDATES, "CenterLoss: update")
        self.margin = number(margin, "CenterLoss: margin", least=0.0)
        self._margin_term = CenterMargin(self.margin, look_alikes, "CenterLoss")
        self.warmup_steps = int(number(warmup_steps, "CenterLoss: warmup_steps", least=0))
        self.momentum = number(momentum, "CenterLoss: momentum", least=0.0)
        if self.momentum > 1.0:
            raise ConfigError(f"CenterLoss: momentum must be at most 1, but is {self.momentum:g}.")
        if isinstance(center_file_path, Mapping):
            raise ConfigError(
                "CenterLoss: center_file_path has files by sub-model, but there is one model. Give it one file."
            )
        self.center_file_path = center_file_path
        self.table: CenterTable | None = read_centers(center_file_path) if center_file_path else None
        if self.table is None and self.update == "frozen":
            raise ConfigError(
                "CenterLoss: frozen centers need a file. Write one with `ppocr-ext export-center` and give it as "
                "center_file_path, or set `update: ema` to let centers form during training."
            )
        self._classes, self._feat_dim = num_classes, feat_dim
        self.bank: CenterBank | None = None
        self.register_buffer("steps", paddle.zeros([], dtype="int64"))

    def prepare(self, charset: Charset, feature_sizes: Mapping[str | None, int]) -> None:
        """Make the centers for a dictionary and a head, so that their state can be loaded before the first step.

        Raises:
            DataError: the file of centers is of another dictionary or feature size, or no group of look-alikes has
                two characters of the dictionary.
            ConfigError: ``num_classes`` or ``feat_dim`` is given and wrong.
        """
        feat_dim = feature_sizes[None]
        for key, given, found in (
            ("num_classes", self._classes, charset.ctc_classes),
            ("feat_dim", self._feat_dim, feat_dim),
        ):
            if given is not None and given != found:
                raise ConfigError(
                    f"CenterLoss: {key} is {given}, but the model has {found}. Leave {key} out."
                )
        if self.table is not None:
            self.table.check_fits(charset, str(self.center_file_path))
        bank = self._make_bank(charset.ctc_classes, feat_dim)
        self._margin_term.prepare(charset, bank if self.update == "frozen" else None)

    def _make_bank(self, classes: int, feat_dim: int) -> CenterBank:
        self.bank = CenterBank(classes, feat_dim)
        if self.margin:
            self._margin_term.make_table(classes, moving=self.update == "ema")
        if self.table is not None:
            self.bank.fill(self.table, str(self.center_file_path))
        return self.bank

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """``{"loss_center": scalar, "loss": the same}``, 0 where no frame counts."""
        multi_head = isinstance(predicts, Mapping)
        features, logits = _features_and_logits(predicts)
        lines, frames, feat_dim = features.shape
        bank = self.bank or self._make_bank(logits.shape[-1], feat_dim)
        class_ids = self._class_ids(logits, batch, multi_head)
        rows = features.reshape([lines * frames, feat_dim])
        if self.update == "ema":
            used = self._used(class_ids, None)
            chosen, ids = _select(rows.detach(), class_ids, used)
            means, counts = bank.means(chosen, ids)
            bank.start(means, counts)
        used = self._used(class_ids, bank.known)
        # where no frame counts: 0, and still a part of the graph
        some = bool(used.any())
        loss = self._distance(*_select(rows, class_ids, used), bank) if some else rows.clip(0.0, 0.0).sum()
        loss = loss * self._warmth()
        if self.update == "ema":
            bank.move(means, counts, self.momentum)
        return {"loss_center": loss, "loss": loss}

    def _class_ids(
        self, logits: paddle.Tensor, batch: Sequence[paddle.Tensor], multi_head: bool
    ) -> paddle.Tensor:
        """int64 [B·T]: class of each frame; -1 where the label does not fit the frames."""
        if self.labels == "argmax":
            return best_classes(logits).flatten()
        _, label, length, *_ = head_batch(batch, "ctc", multi_head, "CenterLoss")
        return forced_alignment(logits, label, length).flatten()

    def _used(self, class_ids: paddle.Tensor, known: paddle.Tensor | None) -> paddle.Tensor:
        """bool [N]: frames that count."""
        used = class_ids > (UNALIGNED if self.blank else BLANK)
        if known is None:
            return used
        known = known.astype("int32")  # Paddle 2.6 selects no truth values
        return used.logical_and(known.index_select(class_ids.clip(min=0)) > 0)

    def _distance(self, rows: paddle.Tensor, class_ids: paddle.Tensor, bank: CenterBank) -> paddle.Tensor:
        loss = _SquaredDistance.apply(rows, bank.centers, class_ids) / rows.shape[0]
        if self.margin:
            step = int(self.steps) if self.update == "ema" else None
            loss = loss + self._margin_term(rows, class_ids, bank, step)
        return loss

    def _warmth(self) -> float:
        """Factor of the loss at this step, from 0 to 1; counts the step."""
        if not self.warmup_steps and not self.margin:
            return 1.0
        step = int(self.steps)
        self.steps.set_value(paddle.to_tensor(step + 1, dtype="int64"))
        return min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0

    def reads(self) -> set[Read]:
        """The CTC head, with its features."""
        return {(None, "ctc"), (None, FEATURES)}


class _SquaredDistance(PyLayer):
    """Sum of squared distances of rows [M, D] to the centers [C, D] of their classes [M].

    One buffer of M·D in the forward pass and one in the backward pass, where the plain formula has five.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: paddle.Tensor, centers: paddle.Tensor, class_ids: paddle.Tensor
    ) -> paddle.Tensor:
        offset = centers.index_select(class_ids).subtract_(rows)
        ctx.save_for_backward(offset)
        # row by row: one float32 sum over all M·D would be wrong in its third digit
        return paddle.dot(offset, offset).sum()

    @staticmethod
    def backward(ctx: Any, gradient: paddle.Tensor) -> paddle.Tensor:
        (offset,) = ctx.saved_tensor()
        return offset * (-2.0 * gradient)


def _truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, but is {value!r}.")
    return value


def _features_and_logits(predicts: Any) -> tuple[paddle.Tensor, paddle.Tensor]:
    output = predicts.get("ctc") if isinstance(predicts, Mapping) else predicts
    if not isinstance(output, tuple | list) or len(output) != 2:
        raise ConfigError(
            "CenterLoss reads the features of a CTC head, but the head gives none. Set `return_feats: true` under "
            "CTCHead.Head (of a single CTCHead: under Head)."
        )
    features, logits = (to_tensor(part, "CenterLoss: the prediction") for part in output)
    if features.ndim != 3 or logits.ndim != 3 or features.shape[:2] != logits.shape[:2]:
        raise ModelError(
            f"CenterLoss: features {list(features.shape)} and logits {list(logits.shape)} should both be "
            f"[batch, frames, …]."
        )
    # centers are float32; a cast to the same kind would copy
    return features if features.dtype == paddle.float32 else features.astype("float32"), logits


def _select(
    rows: paddle.Tensor, class_ids: paddle.Tensor, used: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The rows that count, and their classes; no copy where all do."""
    if bool(used.all()):
        return rows, class_ids
    if not bool(used.any()):  # Paddle 2.6 selects no empty set
        return rows[:0], class_ids[:0]
    index = paddle.nonzero(used).flatten()
    return rows.index_select(index), class_ids.index_select(index)
