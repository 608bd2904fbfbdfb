"""Center loss of sub-models."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import FEATURES, Loss, Parts, Read, with_total
from ppocr_ext.losses.center import CenterLoss
from ppocr_ext.losses.outputs import OutputPath, model_names
from ppocr_ext.losses.targets import head_batch
from ppocr_ext.registry import LOSSES

_LOG = logging.getLogger("ppocr_ext")


@LOSSES.register()
class DistillationCenterLoss(Loss):
    """:class:`CenterLoss` for each sub-model by itself; each has centers of its own.

    Args:
        model_name_list: the sub-models, ``[Student]``.
        key: entry of a sub-model's output, ``head_out``; None where it gives its head's output alone.
        multi_head: the sub-models have a MultiHead, of which ``ctc`` is read.
        name: how the values are logged: ``NAME_MODEL_INDEX``.
        center_file_path: as :class:`CenterLoss` has it, of all sub-models; or ``{MODEL: file}``.
        num_classes, feat_dim, labels, blank, update, momentum, margin, look_alikes, warmup_steps:
            as :class:`CenterLoss` has them.

    Raises:
        ConfigError: an option cannot be used, or files are of other sub-models.
        DataError: centers cannot be read.
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
        labels: str = "argmax",
        blank: bool = True,
        update: str = "frozen",
        momentum: float = 0.99,
        margin: float = 0.0,
        look_alikes: int | str = 3,
        warmup_steps: int = 0,
    ) -> None:
        super().__init__()
        self.models = model_names(model_name_list, "DistillationCenterLoss")
        self.path = OutputPath("DistillationCenterLoss", key, "ctc" if multi_head else None, kinds=("ctc",))
        self.multi_head = multi_head
        self.name = name
        self.losses: dict[str, CenterLoss] = {}
        files = _files_by_model(center_file_path, self.models, update)
        for model in self.models:
            loss = CenterLoss(
                num_classes, feat_dim, files[model], labels, blank, update, momentum, margin, look_alikes,
                warmup_steps,
            )  # fmt: skip
            self.losses[model] = self.add_sublayer(model, loss)

    def prepare(self, charset: Charset, feature_sizes: Mapping[str | None, int]) -> None:
        """Make the centers of each sub-model; see :meth:`CenterLoss.prepare`."""
        for model, loss in self.losses.items():
            made_for = None if loss.table is None else loss.table.meta.get("model")
            if made_for not in (None, model):
                _LOG.warning(
                    "%s has the centers of %s, but %s is pulled to them. Export its own with `ppocr-ext export-center "
                    "--model %s` and give the files as center_file_path: {%s: FILE, …}.",
                    loss.center_file_path, made_for, model, model, model,
                )  # fmt: skip
            loss.prepare(charset, {None: feature_sizes[model]})

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """``{NAME_MODEL_INDEX: scalar, …, "loss": their sum}``."""
        parts: Parts = {}
        for index, (model, loss) in enumerate(self.losses.items()):
            output = self.path.find(predicts, model)
            reduced = head_batch(batch, "ctc", self.multi_head, "DistillationCenterLoss")
            parts[f"{self.name}_{model}_{index}"] = loss(output, reduced)["loss"]
        return with_total(parts)

    def reads(self) -> set[Read]:
        """The CTC head of each sub-model, with its features."""
        return set().union(*(self.path.reads(model) | {(model, FEATURES)} for model in self.models))


def _files_by_model(files: Any, models: Sequence[str], update: str) -> dict[str, str | None]:
    """The file of each sub-model.

    Raises:
        ConfigError: a file is of no sub-model, or a sub-model that needs one has none.
    """
    if not isinstance(files, Mapping):
        return dict.fromkeys(models, files)
    unknown = [str(name) for name in files if name not in models]
    if unknown:
        raise ConfigError(
            f"DistillationCenterLoss: center_file_path has a file for {', '.join(unknown)}, but the loss is of "
            f"{', '.join(models)}."
        )
    lacking = [name for name in models if not files.get(name)]
    if lacking and update == "frozen":
        raise ConfigError(
            f"DistillationCenterLoss: center_file_path has no file for {', '.join(lacking)}. Write one with "
            f"`ppocr-ext export-center --model {lacking[0]}`, or leave the sub-model out of model_name_list."
        )
    return {name: files.get(name) for name in models}
