"""Weights & Biases: ``<run>/wandb``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, PPOCRExtError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import Outcome
from ppocr_ext.loop.hooks.writers.base import Writer, import_package
from ppocr_ext.messages import did_you_mean, near_match

_LOG = logging.getLogger("ppocr_ext")
_ID_FILE = Path("wandb", "run_id.txt")
_OURS = ("config", "dir", "settings")  # of wandb.init; what is not the user's to set
# Without network wandb itself waits 90 seconds at the start, and without end at the end.
_SECONDS = {"init_timeout": 30.0, "finish_timeout": 60.0}


def wandb_options(config: Config) -> dict[str, Any]:
    """The section ``wandb``: PaddleOCR's keys, which are those of ``wandb.init``; ``save_dir`` is ``dir``.

    Raises:
        ConfigError: it is no mapping, or has a key that ``wandb.init`` does not take.
    """
    section = config.at("wandb", default=None)
    if section is not None and not isinstance(section, Config):
        raise ConfigError(
            f"wandb: {section!r} is not a section with keys such as project and name.", code="bad_value"
        )
    options = {} if section is None else section.thaw()
    known = set(inspect.signature(import_package("wandb").init).parameters) - set(_OURS) | {"save_dir"}
    for key in options:
        if key not in known:
            hint = did_you_mean(near_match(str(key), known, cutoff=0.6))
            raise ConfigError(
                f"wandb.{key}: wandb.init has no such key.{hint} One of: {', '.join(sorted(known))}.",
                code="unknown_key",
            )
    return {key: value for key, value in options.items() if value is not None}


def _known(settings: Any, values: Mapping[str, float]) -> Any:
    """``wandb.Settings`` with those of ``values`` that this version of wandb has."""
    return settings(**{name: value for name, value in values.items() if hasattr(settings(), name)})


class WandbWriter(Writer):
    """Logs to a run of Weights & Biases (``Global.use_wandb``, or a section ``wandb``).

    The id of the run is kept in the run folder; a run that goes on logs under the same id. Steps that
    the server has already are not sent again.
    """

    package: ClassVar[str] = "wandb"

    def open(self, folder: Path, config: Config) -> None:
        wandb = import_package(self.package)
        options = wandb_options(config)
        id_file = folder / _ID_FILE
        going_on = bool(config.at("Global.checkpoints", default=None)) and id_file.is_file()
        if going_on and not options.get("id"):
            options["id"] = id_file.read_text(encoding="utf-8").strip()
        save_dir = Path(options.pop("save_dir", None) or folder)
        save_dir.mkdir(parents=True, exist_ok=True)
        try:
            self._run: Any = wandb.init(
                **{"name": folder.name, "resume": "allow", **options},
                dir=str(save_dir),
                config=config.thaw(),
                settings=_known(wandb.Settings, _SECONDS),
            )
        except (wandb.errors.Error, OSError) as fault:
            raise PPOCRExtError(
                f"Global.use_wandb: Weights & Biases cannot be used ({fault}). Log in with `wandb login`; "
                f"or write to the run folder alone with WANDB_MODE=offline in the environment; or leave it out "
                f"with -o Global.use_wandb=false.",
                code="service_unavailable",
            ) from fault
        except (TypeError, ValueError) as fault:
            raise ConfigError(
                f"wandb: wandb.init cannot use these values: {fault}", code="bad_value"
            ) from fault
        write_text(id_file, f"{self._run.id}\n")
        _LOG.info("wandb: %s", f"offline, in {self._run.dir}" if self._run.offline else self._run.url)
        self._sent_before = int(self._run.step)

    def write(self, numbers: Mapping[str, float], step: int, when: float) -> None:
        if step >= self._sent_before:
            self._run.log(dict(numbers), step=step)

    def close(self, outcome: Outcome) -> None:
        self._run.summary.update({"status": outcome.status, "reason": outcome.reason})
        self._run.finish(exit_code=1 if outcome.status == "failed" else 0)
