"""Take from a batch what the loss of each head needs: labels, and which frames are padding."""

from __future__ import annotations

from collections.abc import Sequence

import paddle

from ppocr_ext.errors import ConfigError, ModelError

PAD = 0  # NRTR's padding; also the index of the CTC blank
_MULTI_HEAD = "[image, label_ctc, label_gtc, length, valid_ratio]"
_SINGLE_HEAD = "[image, label, length]"


def head_batch(
    batch: Sequence[paddle.Tensor], head: str, multi_head: bool, where: str
) -> list[paddle.Tensor]:
    """Return the batch as the loss of one head expects it, ``[image, label, length, …]``.

    The label of the other head is removed from a MultiHead's ``[image, label_ctc, label_gtc, length, valid_ratio]``.

    Raises:
        ConfigError: the batch has too few entries.
    """
    layout = _MULTI_HEAD if multi_head else _SINGLE_HEAD
    least = 4 if multi_head else 3
    if len(batch) < least:
        raise ConfigError(
            f"{where} needs the batch {layout} (found {len(batch)} entries). "
            f"Fix: list them under KeepKeys of Train.dataset.transforms.",
            code="missing_batch_entry",
        )
    if not multi_head:
        return list(batch)
    other = 2 if head == "ctc" else 1
    return [entry for index, entry in enumerate(batch) if index != other]


def sequence_targets(batch: Sequence[paddle.Tensor], rows: int, where: str) -> paddle.Tensor:
    """Return the character that each position of a teacher-forced decoder should predict, int64 [B, rows].

    The label holds ``<s> characters </s> padding``; position i should predict entry i + 1. PaddleOCR cuts the
    label at the longest length of the batch, which equals the decoder's number of positions (``rows``): cutting
    at ``rows`` needs no value from the device.

    Args:
        batch: ``[image, label, length, …]``, label int64 [B, L].
        rows: positions of the decoder's logits.
        where: the loss, for the message.

    Raises:
        ModelError: the label is shorter than the logits.
    """
    label = batch[1]
    if label.ndim != 2 or label.shape[1] < rows + 1:
        raise ModelError(
            f"{where}: {rows} positions of the decoder need a label of at least {rows + 1} entries "
            f"(found shape {list(label.shape)}). Fix: use the same max_text_length in Global and in the head.",
            code="shape_mismatch",
        )
    return label[:, 1 : 1 + rows]


def valid_frames(batch: Sequence[paddle.Tensor], frames: int, multi_head: bool) -> paddle.Tensor | None:
    """Return which frames show the text line and not the padding to its right, bool [B, frames].

    Frame i of T is padding if it starts at or after ``valid_ratio · T``. None if the batch has no valid_ratio.
    """
    position = 4 if multi_head else 3
    if len(batch) <= position or not batch[position].is_floating_point():
        return None
    ratio = batch[position].astype("float32").reshape([-1, 1])
    return paddle.arange(frames, dtype="float32").unsqueeze(0) < ratio * frames
