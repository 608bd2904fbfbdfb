"""The losses of single sub-models against the labels: CTC, NRTR, SAR and center loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import (
    HEADS,
    Loss,
    LossContext,
    OutputRef,
    Parts,
    head_batch,
    required_outputs,
    with_total,
)
from ppocr_ext.losses.center_loss import CenterLoss
from ppocr_ext.losses.label_losses import CELoss, CTCLoss, SARLoss
from ppocr_ext.losses.pair_losses import OutputPath, is_name_list
from ppocr_ext.messages import LOG
from ppocr_ext.registry import LOSSES


class SubModelLoss(Loss):
    """Compute the loss against the labels of each listed sub-model separately.

    Args:
        make_loss: builds the loss of a sub-model from its name.
        head: the branch of a MultiHead that the loss needs.
        model_name_list: the sub-models.
        key: entry of a sub-model's output, ``head_out``; None if it returns only its head's output.
        multi_head: the sub-models have a MultiHead.
        name: the values are logged as ``NAME_MODEL_INDEX``.

    Attributes:
        losses: the loss of each sub-model.

    Raises:
        ConfigError: ``model_name_list`` is not a list of names (when built), or a sub-model, key or head is not among
            the predictions (when called).
    """

    def __init__(
        self,
        make_loss: Callable[[str], Loss],
        head: str,
        model_name_list: Sequence[str],
        key: str | None,
        multi_head: bool,
        name: str,
    ) -> None:
        super().__init__()
        self.head = head
        self.path = OutputPath(type(self).__name__, key, head if multi_head else None, kinds=(head,))
        self.multi_head = multi_head
        self.name = name
        if not is_name_list(model_name_list) or not model_name_list:
            raise ConfigError(
                f"{self.path.owner}: model_name_list must be a list of sub-models, such as [Student], but is "
                f"{model_name_list!r}.",
                code="bad_value",
            )
        self.losses: dict[str, Loss] = {model: make_loss(model) for model in model_name_list}
        for model, loss in self.losses.items():
            self.add_sublayer(model, loss)

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{NAME_MODEL_INDEX: scalar, …, "loss": their sum}``."""
        reduced = head_batch(batch, self.head, self.multi_head, self.path.owner)
        parts: Parts = {}
        for index, (model, loss) in enumerate(self.losses.items()):
            output = self.path.find(predicts, model)
            parts[f"{self.name}_{model}_{index}"] = loss(output, reduced)["loss"]
        return with_total(parts)

    def required_outputs(self) -> set[OutputRef]:
        """Return the outputs that the loss of each sub-model requires."""
        outputs: set[OutputRef] = set()
        for model, loss in self.losses.items():
            others = {kind for _, kind in required_outputs(loss) or () if kind not in HEADS}
            outputs |= self.path.required_outputs(model) | {(model, kind) for kind in others}
        return outputs


@LOSSES.register()
class DistillationCTCLoss(SubModelLoss):
    """Compute :class:`CTCLoss` of each listed sub-model; :class:`SubModelLoss` describes the other arguments.

    >>> list(DistillationCTCLoss(["Student"], "head_out", True)(predictions, batch))
    ['loss_ctc_Student_0', 'loss']

    Args:
        zero_infinity: as in :class:`CTCLoss`.
    """

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "loss_ctc",
        zero_infinity: bool = True,
    ) -> None:
        super().__init__(
            lambda model: CTCLoss(zero_infinity=zero_infinity), "ctc", model_name_list, key, multi_head, name
        )


@LOSSES.register()
class DistillationNRTRLoss(SubModelLoss):
    """Compute the cross entropy of the NRTR branch of each listed sub-model.

    >>> list(DistillationNRTRLoss(["Student"], "head_out", True)(predictions, batch))
    ['loss_nrtr_Student_0', 'loss']

    :class:`SubModelLoss` describes the arguments.

    Kept for parity: without ``smoothing``, padding counts as a character of class 0 in the mean, so that short labels
    weigh less; with ``smoothing`` it does not count. In :class:`NRTRLoss` padding never counts.
    """

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        smoothing: bool = True,
        name: str = "loss_nrtr",
    ) -> None:
        super().__init__(
            lambda model: CELoss(smoothing=smoothing), "gtc", model_name_list, key, multi_head, name
        )


@LOSSES.register()
class DistillationSARLoss(SubModelLoss):
    """Compute :class:`SARLoss` of each listed sub-model; :class:`SubModelLoss` describes the other arguments.

    >>> list(DistillationSARLoss(["Student"], "head_out", True)(predictions, batch))
    ['loss_sar_Student_0', 'loss']

    Args:
        ignore_index: class of the padding, n + 1; a run fills it in.
    """

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "loss_sar",
        ignore_index: int = 92,
    ) -> None:
        super().__init__(lambda model: SARLoss(ignore_index), "sar", model_name_list, key, multi_head, name)


@LOSSES.register()
class DistillationCenterLoss(SubModelLoss):
    """Compute :class:`CenterLoss` for each listed sub-model, each with its own centers.

    >>> list(DistillationCenterLoss(["Student"], "head_out", True, "center", 5, 3, update="ema")(predictions, batch))
    ['center_Student_0', 'loss']

    Args:
        model_name_list: the sub-models, ``[Student]``.
        key: entry of a sub-model's output, ``head_out``; None if it returns only its head's output.
        multi_head: whether the sub-models have a MultiHead, whose branch ``ctc`` is used.
        name: the values are logged as ``NAME_MODEL_INDEX``.
        center_file_path: the file for all sub-models, or ``{MODEL: file}``.
        num_classes, feat_dim, frames, blank, update, momentum, relative, warmup_steps, context:
            as in :class:`CenterLoss`.

    Raises:
        ConfigError: an option cannot be used, or a file is given for another sub-model.
        DataError: centers cannot be read or do not match the model.
    """

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "loss_center",
        num_classes: int | None = None,
        feat_dim: int | None = None,
        center_file_path: str | Mapping[str, str | None] | None = None,
        frames: str = "argmax",
        blank: bool = True,
        update: str = "frozen",
        momentum: float = 0.99,
        relative: bool = False,
        warmup_steps: int = 0,
        context: LossContext | None = None,
    ) -> None:
        def center_loss(model: str) -> CenterLoss:
            return CenterLoss(
                num_classes, feat_dim, _file_of(model, center_file_path, model_name_list, update), frames, blank,
                update, momentum, relative, warmup_steps,
                None if context is None else LossContext(context.charset, {None: context.feature_size(model)}),
            )  # fmt: skip

        super().__init__(center_loss, "ctc", model_name_list, key, multi_head, name)
        for model, loss in self.losses.items():
            exported_from = None if loss.table is None else loss.table.meta.get("model")
            if exported_from not in (None, model):
                LOG.warning(
                    "%s has the centers of %s, but they are used for %s. Fix: export its own centers with `ppocr-ext "
                    "export-center --model %s` and give the files as center_file_path: {%s: FILE, …}.",
                    loss.center_file_path, exported_from, model, model, model,
                )  # fmt: skip


def _file_of(model: str, files: Any, models: Sequence[str], update: str) -> str | None:
    """Return the file of a sub-model.

    Raises:
        ConfigError: a file is given for another sub-model, or the file of a sub-model is missing.
    """
    if not isinstance(files, Mapping):
        return files
    unknown = [str(name) for name in files if name not in models]
    if unknown:
        raise ConfigError(
            f"DistillationCenterLoss: center_file_path has a file for {', '.join(unknown)}, but the sub-models of the "
            f"loss are {', '.join(models)}.",
            code="unknown_sub_model",
        )
    if not files.get(model) and update == "frozen":
        raise ConfigError(
            f"DistillationCenterLoss: center_file_path has no file for {model}. Fix: write one with `ppocr-ext "
            f"export-center --model {model}`, or remove the sub-model from model_name_list.",
            code="missing_centers",
        )
    return files.get(model)
