"""A loss for two processes of which the second one never comes to the end of its fourth step."""

import time
from pathlib import Path

import paddle
import paddle.distributed as dist
from processes_parts import SilentCTC
from waiting import HANG

from ppocr_ext.registry import LOSSES


@LOSSES.register()
class HangingCTC(SilentCTC):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(
        self, predicts: dict[str, paddle.Tensor], batch: list[paddle.Tensor]
    ) -> dict[str, paddle.Tensor]:
        self.steps += 1
        if self.steps > 3 and dist.get_rank() == 1:
            Path("hangs").touch()
            time.sleep(HANG)
        return super().forward(predicts, batch)
