"""TensorBoard: ``<run>/tensorboard``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ppocr_ext.config import Config
from ppocr_ext.loop.events import Outcome
from ppocr_ext.loop.hooks.writers.base import Writer, import_package

_FLUSH_SECONDS = 10


class TensorBoardWriter(Writer):
    """Writes an event file through tensorboardX (``Global.use_tensorboard``)."""

    package: ClassVar[str] = "tensorboardX"

    def open(self, folder: Path, config: Config) -> None:
        tensorboard = import_package(self.package)
        logs = folder / "tensorboard"
        for file in logs.glob("events.out.tfevents.*"):
            file.unlink()
        # a TensorBoard that is watching drops what it has read from here on
        self._writer: Any = tensorboard.SummaryWriter(str(logs), purge_step=0, flush_secs=_FLUSH_SECONDS)
        fenced = "".join(f"    {line}\n" for line in config.to_yaml().splitlines())
        self._writer.add_text("config", fenced, 0)

    def write(self, numbers: Mapping[str, float], step: int, when: float) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step, walltime=when)

    def close(self, outcome: Outcome) -> None:
        self._writer.add_text("outcome", f"{outcome.status} {outcome.reason}", outcome.position.global_step)
        self._writer.close()
