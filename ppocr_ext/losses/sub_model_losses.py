"""The losses of single sub-models against the labels: CTC, NRTR, SAR and center loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import LossContext
from ppocr_ext.losses.center_loss import CenterLoss
from ppocr_ext.losses.distillation_base import SubModelLoss
from ppocr_ext.losses.label_losses import CELoss, CTCLoss, SARLoss
from ppocr_ext.messages import LOG
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationCTCLoss(SubModelLoss):
    """Compute :class:`CTCLoss` of each listed sub-model; :class:`SubModelLoss` describes the other arguments.

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

    :class:`SubModelLoss` describes the arguments.

    Kept for parity: without ``smoothing`` padding counts as a character of class 0 in the mean, so that short
    labels weigh less; with it padding does not count. In :class:`NRTRLoss` it never counts.
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
    """Compute :class:`CenterLoss` for each listed sub-model; each has its own centers.

    Args:
        model_name_list: the sub-models, ``[Student]``.
        key: entry of a sub-model's output, ``head_out``; None if it returns only its head's output.
        multi_head: the sub-models have a MultiHead, of which ``ctc`` is used.
        name: the values are logged as ``NAME_MODEL_INDEX``.
        center_file_path: the file for all sub-models; or ``{MODEL: file}``.
        num_classes, feat_dim, frames, blank, update, momentum, margin, look_alikes, warmup_steps, context:
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
        margin: float = 0.0,
        look_alikes: int | str = 3,
        warmup_steps: int = 0,
        context: LossContext | None = None,
    ) -> None:
        def center_loss(model: str) -> CenterLoss:
            return CenterLoss(
                num_classes, feat_dim, _file_of(model, center_file_path, model_name_list, update), frames, blank,
                update, momentum, margin, look_alikes, warmup_steps,
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
        ConfigError: a file is given for another sub-model, or a sub-model that needs one has none.
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
