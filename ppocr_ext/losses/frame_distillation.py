"""Distil a CTC head: frame by frame, or as PaddleOCR does, averaged over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from ppocr_ext.losses.base_loss import PAD as BLANK
from ppocr_ext.losses.base_loss import check_option, valid_frames
from ppocr_ext.losses.distillation_base import OutputPath, PairLoss
from ppocr_ext.losses.functional import (
    TINY,
    align_frames,
    best_classes,
    cross_entropy_rows,
    mean_frames,
    sum_classes,
    weighted_mean,
)
from ppocr_ext.registry import LOSSES

TEMPERATURE = 0.5  # of DistillCTCLogits
_EPSILON = 1e-6


def teacher_frames(teacher: paddle.Tensor, frames: int, temperature: float) -> paddle.Tensor:
    """Return the teacher's probabilities at the student's frames, ``[B, T', C] → [B, frames, C]``, detached.

    Softmax at ``temperature``, then linear interpolation in time: probabilities are interpolated, not logits,
    whose mean would be a distribution that the teacher never had.
    """
    return align_frames(F.softmax(teacher.detach() / temperature, axis=-1), frames)


def frame_weights(
    reading: paddle.Tensor,
    batch: Sequence[paddle.Tensor],
    multi_head: bool,
    blank_weight: float,
    skip_padding: bool,
) -> paddle.Tensor:
    """Return how much each frame counts, float32 [B, T].

    ``blank_weight`` if the teacher reads a blank, 1 if it reads a character; and 0 if it reads a blank to the
    right of the text line (``skip_padding``, and the batch has a valid_ratio). A character there counts: a
    network that sees the whole line may put its last characters after its end.

    Args:
        reading: int64 [B, T], the teacher's most probable class of each frame.
        batch: the loader's.
        multi_head: whether the batch has the layout of a MultiHead.
        blank_weight: not negative.
        skip_padding: give the blanks in the padding no weight.
    """
    is_character = (reading != BLANK).astype("float32")
    weight_of_blank: paddle.Tensor | float = blank_weight
    if skip_padding:
        inside = valid_frames(batch, reading.shape[1], multi_head)
        if inside is not None:
            weight_of_blank = inside.astype("float32") * blank_weight
    return is_character + (1.0 - is_character) * weight_of_blank


@LOSSES.register()
class CTCFrameKDLoss(PairLoss):
    """Compute ``τ² · Σ_t w_t KL(q_t ‖ p_t) / Σ_t w_t`` over the frames of all lines of the batch.

    q and p are the teacher's and the student's softmax at temperature τ (Hinton et al., 2015: τ² keeps the
    gradient's size); the teacher gets no gradient. If the two have different numbers of frames, the
    teacher's probabilities are interpolated to the student's. w is ``blank_weight`` if the teacher reads
    a blank and 1 otherwise; blanks beyond ``valid_ratio`` (padding to the right of the line) do not count.
    If no frame counts: 0.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``, CTC logits [B, T, C] and [B, T', C].
        key, multi_head: as in :class:`PairLoss`.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        blank_weight: not negative. Most frames are blank: less than 1 gives the characters more influence.
        skip_padding: False: the blanks in the padding count like others.
    """

    detaches = True

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "ctc_frame_kd",
        temperature: float = 1.0,
        blank_weight: float = 1.0,
        skip_padding: bool = True,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, "ctc", name, heads=("ctc",))
        self.temperature = check_option(temperature, "CTCFrameKDLoss: temperature", above=0.0)
        self.blank_weight = check_option(blank_weight, "CTCFrameKDLoss: blank_weight", least=0.0)
        self.skip_padding = skip_padding

    def needs_all_classes(self) -> bool:
        """Return True for a temperature above 1, which makes improbable classes probable."""
        return self.temperature > 1

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar; only valid_ratio is taken from the batch."""
        probabilities = teacher_frames(teacher, student.shape[1], self.temperature)
        information = sum_classes(probabilities * probabilities.clip(min=TINY).log())
        divergence = information + cross_entropy_rows(student / self.temperature, probabilities)
        reading = best_classes(probabilities)
        weights = frame_weights(reading, batch, self.multi_head, self.blank_weight, self.skip_padding)
        return weighted_mean(divergence, weights) * self.temperature**2


@LOSSES.register()
class DistillCTCLogits(PairLoss):
    """Compute the KL divergence of two sub-models' CTC probabilities, each averaged over all frames of a line.

    ``Σ_c q log((q + ε)/(p + ε) + ε)``, the mean over lines, with q the teacher's and p the student's mean
    of softmax at temperature 0.5. The sub-models may have different numbers of frames.

    Kept for parity: the blank logit of both is multiplied by -1, so that a sure blank becomes a sure
    non-blank, and averaging loses which frame reads which character. :class:`CTCFrameKDLoss` compares
    frame by frame. Unlike PaddleOCR it does not change its inputs.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: entry of a sub-model's output; None: the output itself is the logits.
        name: logged as ``NAME_INDEX``.
        reduction: accepted and without effect, as in PaddleOCR.
        inner_key: entry under ``key``; None: no such entry (a single head).
    """

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        name: str = "ctc_logits",
        reduction: str = "mean",
        inner_key: str | None = "ctc",
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head=key is not None, dis_head="ctc", name=name)
        head = inner_key if key is not None else None
        self.path = OutputPath(self.path.owner, key, head, kinds=("ctc",))

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Compare logits [B, T, C] and [B, T', C]; the batch is not used."""
        p, q = (_MeanProbabilities.apply(logits) for logits in (student, teacher))
        divergence = q * ((q + _EPSILON) / (p + _EPSILON) + _EPSILON).log()
        return divergence.sum() / student.shape[0]


class _MeanProbabilities(PyLayer):
    """Return ``[B, T, C] → [B, C]``: the mean of softmax at :data:`TEMPERATURE`, the sign of the blank logit flipped.

    The gradient is written out: that of Paddle's operators takes three times as long on a CPU. Paddle allows one
    backward pass through such a layer.
    """

    @staticmethod
    def forward(ctx: Any, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the means; ``logits`` stay as they are."""
        scaled = logits / TEMPERATURE
        scaled[:, :, BLANK] *= -1.0
        probabilities = F.softmax_(scaled, axis=-1)  # in place: a tensor of this size less
        ctx.save_for_backward(probabilities)
        return mean_frames(probabilities)

    @staticmethod
    def backward(ctx: Any, slope: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient of the logits; ``slope`` [B, C] is that of the means."""
        [probabilities] = ctx.saved_tensor()
        slope = slope / (TEMPERATURE * probabilities.shape[1])
        gradient = probabilities * slope.unsqueeze(1).expand_as(probabilities)  # a broadcast product is slow
        gradient.subtract_(probabilities * sum_classes(gradient).unsqueeze(-1))
        gradient[:, :, BLANK] *= -1.0
        return gradient
