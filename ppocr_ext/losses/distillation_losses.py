"""Distil logits: CTC frame by frame, and decoupled knowledge distillation (Zhao et al., CVPR 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import PAD, check_option, valid_frames
from ppocr_ext.losses.base_loss import PAD as BLANK
from ppocr_ext.losses.functional import (
    TINY,
    align_frames,
    best_classes,
    cross_entropy_rows,
    dkd_rows,
    mean_frames,
    sum_classes,
    weighted_mean,
)
from ppocr_ext.losses.pair_losses import OutputPath, PairLoss
from ppocr_ext.registry import LOSSES

TEMPERATURE = 0.5  # the fixed temperature of DistillCTCLogits
_EPSILON = 1e-6


def teacher_frames(teacher: paddle.Tensor, frames: int, temperature: float) -> paddle.Tensor:
    """Return the teacher's probabilities at the student's frames, ``[B, T', C] → [B, frames, C]``, detached.

    The softmax at ``temperature`` is interpolated linearly in time. Logits are not interpolated, since the mean of
    logits would be a distribution that the teacher never returned.
    """
    return align_frames(F.softmax(teacher.detach() / temperature, axis=-1), frames)


def frame_weights(
    reading: paddle.Tensor,
    batch: Sequence[paddle.Tensor],
    multi_head: bool,
    blank_weight: float,
    skip_padding: bool,
) -> paddle.Tensor:
    """Return the weight of each frame, float32 [B, T].

    It is 1 if the teacher reads a character, and ``blank_weight`` if it reads a blank. With ``skip_padding`` and a
    valid_ratio in the batch, a blank in the padding weighs 0. A character in the padding counts, since a network that
    sees the whole line may read its last characters after its end.

    Args:
        reading: int64 [B, T], the teacher's most probable class of each frame.
        batch: the batch of the loader.
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

    >>> list(CTCFrameKDLoss([["Student", "Teacher"]], "head_out", True)(predictions, batch))
    ['ctc_frame_kd_0', 'loss']

    q and p are the softmax of teacher and student at temperature τ; τ² keeps the size of the gradient (Hinton et al.,
    2015). The teacher gets no gradient. If the numbers of frames differ, the teacher's probabilities are interpolated
    to the student's frames. w is ``blank_weight`` if the teacher reads a blank, and 1 otherwise; blanks in the padding
    (beyond ``valid_ratio``) do not count. Without frames that count the loss is 0.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``, CTC logits [B, T, C] and [B, T', C].
        key, multi_head: as in :class:`PairLoss`.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        blank_weight: not negative. Most frames are blanks; a weight below 1 gives the characters more influence.
        skip_padding: do not count blanks in the padding; with False they count as others do.
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
        """Return True for a temperature above 1, at which improbable classes matter."""
        return self.temperature > 1

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar; only valid_ratio of the batch is used."""
        probabilities = teacher_frames(teacher, student.shape[1], self.temperature)
        information = sum_classes(probabilities * probabilities.clip(min=TINY).log())
        divergence = information + cross_entropy_rows(student / self.temperature, probabilities)
        reading = best_classes(probabilities)
        weights = frame_weights(reading, batch, self.multi_head, self.blank_weight, self.skip_padding)
        return weighted_mean(divergence, weights) * self.temperature**2


@LOSSES.register()
class DistillCTCLogits(PairLoss):
    """Compute the KL divergence of two sub-models' CTC probabilities, each averaged over all frames of a line.

    >>> list(DistillCTCLogits([["Student", "Teacher"]], "head_out")(predictions, batch))
    ['ctc_logits_0', 'loss']

    ``Σ_c q log((q + ε)/(p + ε) + ε)``, the mean over lines, with q the teacher's and p the student's mean
    of softmax at temperature 0.5. The sub-models may have different numbers of frames.

    Kept for parity: the blank logit of both is multiplied by -1, so that a certain blank becomes a certain non-blank.
    And the average does not show which frame reads which character. :class:`CTCFrameKDLoss` compares frame by frame.
    Unlike PaddleOCR's loss it does not change its inputs.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: entry of a sub-model's output; None if the output itself is the logits.
        name: logged as ``NAME_INDEX``.
        reduction: has no effect, as in PaddleOCR.
        inner_key: entry under ``key``; None for a single head.
    """

    reads_raw_logits = True  # the sign of the blank's changes

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
    """Map [B, T, C] to [B, C]: the mean of the softmax at :data:`TEMPERATURE`, after the blank logit changes its sign.

    The gradient is explicit, since that of Paddle's operators takes three times as long on a CPU. Paddle allows one
    backward pass through this layer.
    """

    @staticmethod
    def forward(ctx: Any, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the means; ``logits`` do not change."""
        scaled = logits / TEMPERATURE
        scaled[:, :, BLANK] *= -1.0
        probabilities = F.softmax_(scaled, axis=-1)  # in place, which saves a tensor of this size
        ctx.save_for_backward(probabilities)
        return mean_frames(probabilities)

    @staticmethod
    def backward(ctx: Any, slope: paddle.Tensor) -> paddle.Tensor:
        """Return the gradient of the logits; ``slope`` [B, C] is the gradient of the means."""
        [probabilities] = ctx.saved_tensor()
        slope = slope / (TEMPERATURE * probabilities.shape[1])
        gradient = probabilities * slope.unsqueeze(1).expand_as(probabilities)  # a broadcast product is slow
        gradient.subtract_(probabilities * sum_classes(gradient).unsqueeze(-1))
        gradient[:, :, BLANK] *= -1.0
        return gradient


@LOSSES.register()
class DistillationDKDLoss(PairLoss):
    """Compute ``τ² · (α · TCKD + β · NCKD)`` between the decoders of two sub-models.

    >>> list(DistillationDKDLoss([["Student", "Teacher"]], "head_out", True, "gtc")(predictions, batch))
    ['dkd_0', 'loss']

    TCKD is the KL divergence of (target character, all others); NCKD is the KL divergence among the other characters.
    Both compare teacher and student at temperature τ, and are averaged over all positions.

    Kept for parity: positions of padding count as characters of class 0 (PaddleOCR computes a mask and ignores it).
    :class:`MaskedDKDLoss` ignores padding. CTC frames have no target character, so ``dis_head: ctc`` is an error
    here, and fails in PaddleOCR. MaskedDKDLoss supports it.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as in :class:`PairLoss`.
        multi_head: the sub-models have a MultiHead. With False the only head is the decoder, and the batch is
            ``[image, label, length]``.
        dis_head: ``gtc``.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        alpha: weight of TCKD.
        beta: weight of NCKD.

    Raises:
        ConfigError: ``dis_head`` is ``ctc``, the default as in PaddleOCR, or another option cannot be used.
        ModelError: the outputs do not match each other or the label.
    """

    accepts_frames = False  # whether a CTC head can be distilled

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        dis_head: str = "ctc",
        name: str = "dkd",
        temperature: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, dis_head, name, heads=("gtc", "ctc"))
        owner = self.path.owner
        if dis_head == "ctc" and not self.accepts_frames:
            raise ConfigError(
                f"{owner}: with `dis_head: ctc` a frame has no target character. Fix: set `dis_head: gtc`, or use "
                f"MaskedDKDLoss, whose target is the class that the teacher reads.",
                code="bad_value",
            )
        self.temperature = check_option(temperature, f"{owner}: temperature", above=0.0)
        self.alpha = check_option(alpha, f"{owner}: alpha")
        self.beta = check_option(beta, f"{owner}: beta")

    def needs_all_classes(self) -> bool:
        """Return True unless only TCKD is computed; NCKD compares improbable classes with each other."""
        return self.beta != 0 or self.temperature > 1

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return the mean over all positions of logits [B, N, C]."""
        targets = self.targets(student, teacher, batch)
        target_part, other_part = self._parts(student, teacher / self.temperature, targets)
        both = self.alpha * target_part.mean() + self.beta * other_part.mean()
        return both * self.temperature**2

    def _parts(
        self, student: paddle.Tensor, scaled_teacher: paddle.Tensor, targets: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return TCKD and NCKD [B · N]; the teacher's logits must be divided by the temperature already."""
        rows = student.flatten(0, 1) / self.temperature
        return dkd_rows(rows, scaled_teacher.flatten(0, 1), targets.reshape([-1]))


@LOSSES.register()
class MaskedDKDLoss(DistillationDKDLoss):
    """Compute ``τ² · (α · TCKD + β · NCKD)`` as a mean over all positions except padding.

    >>> list(MaskedDKDLoss([["Student", "Teacher"]], "head_out", True)(predictions, batch))
    ['masked_dkd_0', 'loss']

    ``dis_head: gtc``: the target of a position is its character in the label, as in PaddleOCR's
    ``DistillationDKDLoss``; positions after ``</s>`` do not count.

    ``dis_head: ctc``: the label has no character for each frame, so the target of a frame is the class that the teacher
    reads there, a blank or a character. TCKD then teaches how certain the teacher is, and NCKD teaches the look-alikes.
    Frames count and are aligned as in :class:`CTCFrameKDLoss`.

    The teacher gets no gradient. Without positions that count the loss is 0.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as in :class:`PairLoss`.
        multi_head: the sub-models have a MultiHead. With False ``dis_head`` is the kind of the only head.
        dis_head: ``gtc`` or ``ctc``.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        alpha: weight of TCKD.
        beta: weight of NCKD.
        blank_weight: for ``ctc``, the weight of the frames that the teacher reads as a blank, not negative.
        skip_padding: for ``ctc``, do not count blanks in the padding.

    Raises:
        ConfigError: an option cannot be used, or an output is not among the predictions.
        ModelError: the outputs do not match each other or the label.
    """

    accepts_frames = True
    detaches = True

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        dis_head: str = "gtc",
        name: str = "masked_dkd",
        temperature: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        blank_weight: float = 1.0,
        skip_padding: bool = True,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, dis_head, name, temperature, alpha, beta)
        self.blank_weight = check_option(blank_weight, "MaskedDKDLoss: blank_weight", least=0.0)
        self.skip_padding = skip_padding

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar from logits [B, N, C]."""
        frames = student.shape[1]
        if self.dis_head == "gtc" or teacher.shape[1] == frames:
            scaled = teacher.detach() / self.temperature
        else:
            scaled = teacher_frames(teacher, frames, self.temperature).clip(min=TINY).log()
        if self.dis_head == "gtc":
            targets = self.targets(student, teacher, batch)
            weights = targets != PAD
        else:
            targets = scaled.argmax(axis=-1)
            weights = frame_weights(targets, batch, self.multi_head, self.blank_weight, self.skip_padding)
        target_part, other_part = self._parts(student, scaled, targets)
        rows = self.alpha * target_part + self.beta * other_part
        return weighted_mean(rows, weights.reshape([-1])) * self.temperature**2
