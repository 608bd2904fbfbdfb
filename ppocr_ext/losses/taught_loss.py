"""Let labels teach some samples of a batch, and a network teach the others: ``Train.mix``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import Loss, OutputRef, Parts, reads_labels, required_outputs, to_logits
from ppocr_ext.losses.combined_losses import CombinedLoss
from ppocr_ext.losses.functional import best_classes, kl_rows

KEPT = "kept"  # name of the part in logs
_OF_BLANK = 0.1  # weight of a frame in which the teacher reads a blank, as most frames are


class TaughtLoss(Loss):
    """Compute a loss of the labelled samples, and how far the others are from what a teacher reads.

    The second part, ``kept``, is the mean over these samples of ``Σ_t w_t KL(q_t ‖ p_t)`` over CTC's frames, with q of
    the teacher and p of the network; w is 1 where the teacher reads a character, and 0.1 where it reads a blank. It is
    a sum over frames, as CTC's own loss of a line is. A sample without label has no part in the first loss, and one
    with a label has none in the second.

    In a distillation, its own losses teach all samples; there is no second part, and a sample without label has no
    part in the losses that read labels.

    Args:
        labels: the loss of the labels; in a distillation, its CombinedLoss.
        teacher: returns CTC logits [B, T, C] for images [B, 3, H, W], with as many frames as the network; None in a
            distillation.

    Raises:
        ConfigError: no loss of the distillation teaches a sample without label.
    """

    def __init__(self, labels: Any, teacher: Callable[[paddle.Tensor], paddle.Tensor] | None) -> None:
        super().__init__()
        self.labels = labels
        self._teacher = teacher
        if teacher is None and not _teaches_without_labels(labels):
            raise ConfigError(
                "Train.mix: no loss teaches the samples with `labelled: false`. Fix: a CombinedLoss with a loss "
                "between the CTC outputs of two sub-models, such as CTCFrameKDLoss.",
                code="conflicting_keys",
            )

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return the parts of both; the last entry of the batch is 1 for labelled samples, which come first, else 0."""
        images = batch[0]
        labelled = self.labelled(predicts, batch)
        if self._teacher is None:
            return self.labels(predicts, batch[:-1], labelled)
        count, size = labelled[1][0].shape[0], images.shape[0]
        parts = self.labels(*labelled)
        kept = (
            paddle.zeros([])
            if count == size
            else self._distance(_rows(predicts, count, size), self._teacher(images[count:]))
        )
        return {**parts, KEPT: kept, "loss": parts["loss"] + kept}

    @staticmethod
    def labelled(predicts: Any, batch: Sequence[paddle.Tensor]) -> tuple[Any, list[paddle.Tensor]]:
        """Return the outputs and the batch of the labelled samples."""
        *entries, flags = batch
        count = int(flags.sum())
        return _rows(predicts, 0, count), [entry[:count] for entry in entries]

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """Return the state of the labels' loss, with the names that it has alone."""
        return self.labels.state_dict(*args, **options)

    def set_state_dict(self, *args: Any, **options: Any) -> Any:
        """Set the state of the labels' loss."""
        return self.labels.set_state_dict(*args, **options)

    @staticmethod
    def _distance(predicts: Any, teacher: paddle.Tensor) -> paddle.Tensor:
        student = to_logits(ctc_of(predicts), "Train.mix: the output of the network")
        teacher = teacher.detach()
        is_character = (best_classes(teacher) != 0).astype(student.dtype)
        weights = is_character + _OF_BLANK * (1 - is_character)
        return (kl_rows(student, teacher) * weights).sum() / teacher.shape[0]

    def required_outputs(self) -> set[OutputRef] | None:
        """Return those of the labels' loss, and CTC's."""
        own = required_outputs(self.labels)
        return own if own is None or self._teacher is None else own | {(None, "ctc")}


def _teaches_without_labels(loss: Any) -> bool:
    return isinstance(loss, CombinedLoss) and not all(reads_labels(each) for _, _, each in loss.losses)


def _rows(values: Any, first: int, end: int) -> Any:
    """Return the samples ``[first, end)`` of everything that a network returns."""
    if isinstance(values, Mapping):
        return {name: _rows(value, first, end) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(_rows(value, first, end) for value in values)
    return values[first:end] if isinstance(values, paddle.Tensor) else values


def ctc_of(predicts: Any) -> Any:
    """Return CTC's part of what a network returns.

    Raises:
        ConfigError: it has none.
    """
    if not isinstance(predicts, Mapping):
        return predicts
    if "ctc" not in predicts:
        raise ConfigError(
            f"Train.mix: a list with `labelled: false` needs a CTC head (found {', '.join(predicts)}).",
            code="missing_output",
        )
    return predicts["ctc"]
