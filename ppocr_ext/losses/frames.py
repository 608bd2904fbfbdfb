"""A CTC teacher's reading, frame by frame, and how much each frame counts."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from ppocr_ext.losses.functional import align_frames
from ppocr_ext.losses.targets import PAD as BLANK
from ppocr_ext.losses.targets import valid_frames


def teacher_frames(teacher: paddle.Tensor, frames: int, temperature: float) -> paddle.Tensor:
    """The teacher's probabilities at the student's frames, ``[B, T', C] → [B, frames, C]``, without gradient.

    Softmax at ``temperature``, then linear interpolation in time: probabilities are interpolated, not logits,
    whose mean would be a distribution that the teacher never gave.
    """
    return align_frames(F.softmax(teacher.detach() / temperature, axis=-1), frames)


def frame_weights(
    reading: paddle.Tensor,
    batch: Sequence[paddle.Tensor],
    multi_head: bool,
    blank_weight: float,
    skip_padding: bool,
) -> paddle.Tensor:
    """How much each frame counts, float32 [B, T].

    ``blank_weight`` where the teacher reads a blank, 1 where it reads a character; and 0 where it reads a
    blank to the right of the line (``skip_padding``, and the batch has a valid_ratio). A character there
    counts: a network that sees the whole line may put its last characters behind its end.

    Args:
        reading: int64 [B, T], the teacher's most probable class of each frame.
        batch: as the loader gives it.
        multi_head: whose layout the batch has.
        blank_weight: not negative.
        skip_padding: leave the frames of padding out.
    """
    is_character = (reading != BLANK).astype("float32")
    weight_of_blank: paddle.Tensor | float = blank_weight
    if skip_padding:
        inside = valid_frames(batch, reading.shape[1], multi_head)
        if inside is not None:
            weight_of_blank = inside.astype("float32") * blank_weight
    return is_character + (1.0 - is_character) * weight_of_blank
