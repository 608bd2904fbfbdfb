"""Center loss of sub-models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.losses.base import FEATURES, Loss, Parts, Read, with_total
from ppocr_ext.losses.center import CenterLoss
from ppocr_ext.losses.outputs import OutputPath, model_names
from ppocr_ext.losses.targets import head_batch
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationCenterLoss(Loss):
    """:class:`CenterLoss` for each sub-model by itself; each has centers of its own.

    Args:
        model_name_list: the sub-models, ``[Student]``.
        key: entry of a sub-model's output, ``head_out``; None where it gives its head's output alone.
        multi_head: the sub-models have a MultiHead, of which ``ctc`` is read.
        name: how the values are logged: ``NAME_MODEL_INDEX``.
        num_classes, feat_dim, center_file_path, labels, blank, update, momentum, margin, look_alikes, warmup_steps:
            as :class:`CenterLoss` has them.
    """

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "loss_center",
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
        self.models = model_names(model_name_list, "DistillationCenterLoss")
        self.path = OutputPath("DistillationCenterLoss", key, "ctc" if multi_head else None, kinds=("ctc",))
        self.multi_head = multi_head
        self.name = name
        self.losses: dict[str, CenterLoss] = {}
        for model in self.models:
            loss = CenterLoss(
                num_classes, feat_dim, center_file_path, labels, blank, update, momentum, margin, look_alikes,
                warmup_steps,
            )  # fmt: skip
            self.losses[model] = self.add_sublayer(model, loss)

    def prepare(self, charset: Charset, feature_sizes: Mapping[str | None, int]) -> None:
        """Make the centers of each sub-model; see :meth:`CenterLoss.prepare`."""
        for model, loss in self.losses.items():
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
