"""What a writer is, and the numbers that all of them get."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from ppocr_ext.config import Config
from ppocr_ext.errors import MissingPackageError
from ppocr_ext.loop.events import Outcome
from ppocr_ext.report.metrics_file import short_loss_name

_NOT_NUMBERS = ("kind", "step", "losses", "time")


class Writer(ABC):
    """Passes the lines of ``metrics.jsonl`` on; made and opened on rank 0 only.

    A run that goes on writes its record anew from the lines it kept, so that no step stands twice in it.

    Attributes:
        package: the module it needs, and the name of the extra that installs it.
    """

    package: ClassVar[str]

    @abstractmethod
    def open(self, folder: Path, config: Config) -> None:
        """Before the first step; ``folder`` is the run's.

        Raises:
            PPOCRExtError: the record cannot be begun.
        """

    @abstractmethod
    def write(self, numbers: Mapping[str, float], step: int, when: float) -> None:
        """Add ``numbers`` (:class:`Numbers`) of ``step``; ``when`` is in seconds since 1970."""

    @abstractmethod
    def close(self, outcome: Outcome) -> None:
        """Once, however the run ended."""


def import_package(name: str) -> ModuleType:
    """The module ``name``, which the extra of the same name installs.

    Raises:
        MissingPackageError: it is not installed, or cannot be imported.
    """
    extra = "tensorboard" if name == "tensorboardX" else name
    key = f"Global.use_{extra}"
    remedy = f"Install it: pip install 'ppocr-ext[{extra}]', or set -o {key}=false."
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as fault:
        raise MissingPackageError(
            f"{key}: {fault.name or name} is not installed. {remedy}", code="missing_package"
        ) from fault
    except Exception as fault:  # what a package raises that does not fit the others installed
        raise MissingPackageError(
            f"{key}: {name} cannot be imported ({type(fault).__name__}: {fault}). {remedy}",
            code="missing_package",
        ) from fault


class Numbers:
    """Turns lines of ``metrics.jsonl`` into numbers by name, which are the same for every writer.

    ``train/loss``, ``train/lr``, ``train/ips``, ``train/epoch``; parts of the loss under short names,
    ``loss/ctc``; ``eval/acc``, ``eval/norm_edit_dis``, … and the best so far, ``eval/best_acc``.

    Args:
        indicator: the metric that decides what the best is.
    """

    def __init__(self, indicator: str) -> None:
        self._indicator = indicator
        self.best: float | None = None

    def of(self, line: Mapping[str, Any]) -> dict[str, float]:
        """The numbers of ``line``; those that are not finite are left out."""
        kind = line["kind"]
        named = {f"{kind}/{name}": value for name, value in line.items() if name not in _NOT_NUMBERS}
        parts = line.get("losses") or {}
        if len(parts) > 1:  # a single part is the loss
            named |= {f"loss/{short_loss_name(name)}": value for name, value in parts.items()}
        reached = line.get(self._indicator) if kind == "eval" else None
        if reached is not None:
            self.best = reached if self.best is None else max(self.best, reached)
            named[f"eval/best_{self._indicator}"] = self.best
        return {name: float(value) for name, value in named.items() if value is not None}
