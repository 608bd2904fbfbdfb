"""The usual mistakes of a decoder that "only predicts <EOS>", as parts of a user's own (`Global.plugins`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.modeling.heads import Transformer
from ppocr_ext.registry import HEADS, LOSSES


@HEADS.register()
class GeluTransformer(Transformer):
    """A GELU behind the last linear layer: no logit is below -0.17, so no character is ever improbable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tgt_word_prj = nn.Sequential(self.tgt_word_prj, nn.GELU())


class NoPositions(nn.Layer):
    """What somebody writes who forgets them."""

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        return tokens


@HEADS.register()
class PlacelessTransformer(Transformer):
    """The characters so far are a bag: the decoder cannot tell how many there are, nor their order."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.positional_encoding = NoPositions()


@LOSSES.register()
class UnshiftedLoss(nn.Layer):
    """Compares each output with the entry that the decoder was given there: it learns to copy."""

    def forward(self, predicts: Tensor, batch: Sequence[Tensor]) -> dict[str, Tensor]:
        wanted = batch[1][:, : predicts.shape[1]]
        rows = predicts.reshape([-1, predicts.shape[-1]])
        return {"loss": F.cross_entropy(rows, paddle.flatten(wanted), ignore_index=0)}
