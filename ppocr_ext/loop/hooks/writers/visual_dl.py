"""VisualDL: ``<run>/visualdl``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ppocr_ext.config import Config
from ppocr_ext.loop.events import Outcome
from ppocr_ext.loop.hooks.writers.base import Writer, import_package

_FLUSH_SECONDS = 10


class VisualDLWriter(Writer):
    """Writes a record file through VisualDL (``Global.use_visualdl``)."""

    package: ClassVar[str] = "visualdl"

    def open(self, folder: Path, config: Config) -> None:
        visualdl = import_package(self.package)
        logs = folder / "visualdl"
        for file in logs.glob("vdlrecords.*"):
            file.unlink()
        self._writer: Any = visualdl.LogWriter(str(logs), flush_secs=_FLUSH_SECONDS, display_name=folder.name)
        self._writer.add_text("config", config.to_yaml(), 0)

    def write(self, numbers: Mapping[str, float], step: int, when: float) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step, walltime=round(1000 * when))

    def close(self, outcome: Outcome) -> None:
        self._writer.add_text("outcome", f"{outcome.status} {outcome.reason}", outcome.position.global_step)
        self._writer.close()
