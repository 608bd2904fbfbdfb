"""Writers that pass the lines of ``metrics.jsonl`` to TensorBoard, VisualDL and Weights & Biases."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, MissingPackageError, PPOCRExtError
from ppocr_ext.io.atomic import require_no_link, write_text
from ppocr_ext.limits import read_text
from ppocr_ext.loop.events import Outcome
from ppocr_ext.messages import LOG
from ppocr_ext.report.run_folder import short_loss_name

_NOT_SCALARS = ("kind", "step", "losses", "time", "is_best")
_FLUSH_SECONDS = 10
_ID_FILE = Path("wandb", "run_id.txt")
# Without a network, wandb itself waits 90 seconds at the start, and without limit at the end.
_SECONDS = {"init_timeout": 30.0, "finish_timeout": 60.0}


class Writer(ABC):
    """Base of the writers, which are opened in process 0 only.

    A resumed run writes its record again from the lines that it keeps, so no step is there twice.

    Attributes:
        package: the module that the writer needs.
    """

    package: str

    @abstractmethod
    def open(self, folder: Path, config: Config) -> None:
        """Begin the record before the first step; ``folder`` is the run's.

        Raises:
            PPOCRExtError: the record cannot be begun.
        """

    @abstractmethod
    def write(self, scalars: Mapping[str, float], step: int, when: float) -> None:
        """Add the scalars (:class:`LineScalars`) of ``step``; ``when`` is in seconds since 1970."""

    @abstractmethod
    def close(self, outcome: Outcome) -> None:
        """End the record; called once, however the run ended."""


class LineScalars:
    """Convert lines of ``metrics.jsonl`` to scalars by name, the same for every writer.

    ``train/loss``, ``train/lr``, ``train/ips``, ``train/grad_norm``, …; parts of the loss under short names,
    ``loss/ctc``; ``eval/acc``, ``eval/norm_edit_dis``, … and the best so far, ``eval/best_acc``.

    Args:
        indicator: the metric that decides which evaluation is the best.
    """

    def __init__(self, indicator: str) -> None:
        self._indicator = indicator
        self.best: float | None = None

    def of(self, line: Mapping[str, Any]) -> dict[str, float]:
        """Return the scalars of ``line``, without those that are not finite."""
        kind = line["kind"]
        scalars = {f"{kind}/{name}": value for name, value in line.items() if name not in _NOT_SCALARS}
        parts = line.get("losses") or {}
        if len(parts) > 1:  # a single part equals the loss, which has a curve already
            scalars |= {f"loss/{short_loss_name(name)}": value for name, value in parts.items()}
        self.best = line[self._indicator] if line.get("is_best") else self.best
        if kind == "eval" and self.best is not None:
            scalars[f"eval/best_{self._indicator}"] = self.best
        return {name: float(value) for name, value in scalars.items() if value is not None}


@dataclass
class _FileWriter(Writer):
    """Write records into a folder of the run through a package whose writers have TensorBoard's methods.

    Args:
        package: the module that the writer needs.
        folder: its folder in the run folder.
        files: the pattern of its files there.
        make: called with the module and the folder; returns the package's writer.
        unit: how many of its units of time make a second.
    """

    package: str
    folder: str
    files: str
    make: Callable[[ModuleType, str], Any]
    unit: int = 1

    def open(self, folder: Path, config: Config) -> None:
        package = import_package(self.package)
        logs = require_no_link(folder / self.folder)
        for file in logs.glob(self.files):
            file.unlink()
        self._writer: Any = self.make(package, str(logs))
        # a code block, since the text is Markdown
        self._writer.add_text("config", "".join(f"    {line}\n" for line in config.to_yaml().splitlines()), 0)

    def write(self, scalars: Mapping[str, float], step: int, when: float) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(
                name, value, step, walltime=round(when * self.unit) if self.unit > 1 else when
            )

    def close(self, outcome: Outcome) -> None:
        self._writer.add_text("outcome", f"{outcome.status} {outcome.reason}", outcome.position.global_step)
        self._writer.close()


def _tensorboard() -> Writer:
    """Return the writer of ``<run>/tensorboard`` (``Global.use_tensorboard``)."""
    return _FileWriter(
        "tensorboardX",
        "tensorboard",
        "events.out.tfevents.*",
        # purge_step makes an open TensorBoard drop what it has read from this step on.
        lambda package, logs: package.SummaryWriter(logs, purge_step=0, flush_secs=_FLUSH_SECONDS),
    )


def _visualdl() -> Writer:
    """Return the writer of ``<run>/visualdl`` (``Global.use_visualdl``)."""
    return _FileWriter(
        "visualdl",
        "visualdl",
        "vdlrecords.*",
        lambda package, logs: package.LogWriter(
            logs, flush_secs=_FLUSH_SECONDS, display_name=Path(logs).parent.name
        ),
        unit=1000,
    )


class WandbWriter(Writer):
    """Log to a run of Weights & Biases (``Global.use_wandb``, or a section ``wandb``).

    The id of the run is stored in the run folder, and a resumed run logs under the same id. Steps that the server has
    are not sent again.
    """

    package = "wandb"

    def open(self, folder: Path, config: Config) -> None:
        wandb = import_package(self.package)
        section = config.at("wandb", default=Config())
        if not isinstance(section, Config):
            raise ConfigError(
                f"wandb: found {section!r}, expected a section with keys such as project and name.",
                code="bad_value",
            )
        # PaddleOCR's keys are those of wandb.init, except `save_dir`.
        options = {key: value for key, value in section.thaw().items() if value is not None}
        id_file = folder / _ID_FILE
        if config.settings.checkpoints and id_file.is_file():
            options.setdefault("id", read_text(id_file).strip())
        save_dir = Path(options.pop("save_dir", None) or folder)
        save_dir.mkdir(parents=True, exist_ok=True)
        seconds = {name: value for name, value in _SECONDS.items() if hasattr(wandb.Settings(), name)}
        try:
            self._run: Any = wandb.init(
                **{"name": folder.name, "resume": "allow", **options},
                dir=str(save_dir),
                config=config.thaw(),
                settings=wandb.Settings(**seconds),
            )
        except (wandb.errors.Error, OSError) as error:
            raise PPOCRExtError(
                f"Global.use_wandb: Weights & Biases cannot be used ({error}). Fix: log in with `wandb login`; or "
                f"write only to the run folder: WANDB_MODE=offline in the environment; or -o Global.use_wandb=false.",
                code="service_unavailable",
            ) from error
        except (TypeError, ValueError) as error:  # also for a key that wandb.init does not have
            raise ConfigError(
                f"wandb: wandb.init cannot use these keys: {error}", code="bad_value"
            ) from error
        write_text(id_file, f"{self._run.id}\n")
        LOG.info("wandb: %s", f"offline, in {self._run.dir}" if self._run.offline else self._run.url)
        self._sent_before = int(self._run.step)

    def write(self, scalars: Mapping[str, float], step: int, when: float) -> None:
        if step >= self._sent_before:
            self._run.log(dict(scalars), step=step)

    def close(self, outcome: Outcome) -> None:
        self._run.summary.update({"status": outcome.status, "reason": outcome.reason})
        self._run.finish(exit_code=1 if outcome.status == "failed" else 0)


def import_package(name: str) -> ModuleType:
    """Import the module ``name`` of an extra.

    Raises:
        MissingPackageError: it is not installed, or cannot be imported.
    """
    extra = "tensorboard" if name == "tensorboardX" else name
    key = f"Global.use_{extra}"
    try:
        return importlib.import_module(name)
    except Exception as error:  # a package that does not fit the others may raise anything
        wrong = f"{name} cannot be imported ({type(error).__name__}: {error})"
        if isinstance(error, ModuleNotFoundError):
            wrong = f"{error.name or name} is not installed"
        raise MissingPackageError(
            f"{key}: {wrong}. Install it: pip install 'ppocr-ext[{extra}]', or set -o {key}=false.",
            code="missing_package",
        ) from error


def writers_for(config: Config) -> list[Writer]:
    """Return the writers that ``config`` switches on, not yet opened; a section ``wandb`` is enough."""
    settings = config.settings
    has_section = config.at("wandb", default=None) is not None
    wanted: dict[Callable[[], Writer], Any] = {
        _tensorboard: settings.use_tensorboard,
        _visualdl: settings.use_visualdl,
        WandbWriter: has_section if settings.use_wandb is None else settings.use_wandb,
    }
    return [make() for make, is_wanted in wanted.items() if is_wanted]


def require_packages(config: Config) -> None:
    """Import the packages of the writers, before the run does anything that takes time.

    Raises:
        MissingPackageError: a package is not installed, or cannot be imported.
    """
    for writer in writers_for(config):
        import_package(writer.package)
