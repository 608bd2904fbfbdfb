"""Labels of a batch, as each head's loss needs them."""

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
    """The batch as the loss of one head reads it, ``[image, label, length, …]``.

    Of a MultiHead's ``[image, label_ctc, label_gtc, length, valid_ratio]`` the other head's label is left out.

    Raises:
        ConfigError: the batch has too few entries.
    """
    layout = _MULTI_HEAD if multi_head else _SINGLE_HEAD
    least = 4 if multi_head else 3
    if len(batch) < least:
        raise ConfigError(
            f"{where} needs the batch {layout}, but it has {len(batch)} entries. "
            f"List them under KeepKeys of Train.dataset.transforms."
        )
    if not multi_head:
        return list(batch)
    other = 2 if head == "ctc" else 1
    return [entry for index, entry in enumerate(batch) if index != other]


def sequence_targets(batch: Sequence[paddle.Tensor], rows: int, where: str) -> paddle.Tensor:
    """The character that each position of a teacher-forced decoder should give, int64 [B, rows].

    The label holds ``<s> characters </s> padding``; position i is to give entry i + 1. PaddleOCR cuts by
    the longest length of the batch, which the decoder's own number of positions (``rows``) equals: cutting
    by it needs no value from the device.

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
            f"{where}: the decoder gives {rows} positions, which needs a label of at least "
            f"{rows + 1} entries, but its shape is {list(label.shape)}. "
            f"Is max_text_length the same in Global and in the head?"
        )
    return label[:, 1 : 1 + rows]


def valid_frames(batch: Sequence[paddle.Tensor], frames: int, multi_head: bool) -> paddle.Tensor | None:
    """Whether each frame looks at the line and not at the padding to its right, bool [B, frames].

    Frame i of T is padding if it starts at or after ``valid_ratio · T``. None where the batch has no
    valid_ratio.
    """
    position = 4 if multi_head else 3
    if len(batch) <= position or not batch[position].is_floating_point():
        return None
    ratio = batch[position].astype("float32").reshape([-1, 1])
    return paddle.arange(frames, dtype="float32").unsqueeze(0) < ratio * frames
