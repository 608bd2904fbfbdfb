"""The data of a run, as each of its processes opens them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.host import Host
from ppocr_ext.run.frames import FrameCounts, count_frames
from ppocr_ext.run.loaders import Loaded, build_loader, label_check, look_at_data
from ppocr_ext.run.prepare import scratch_folder
from ppocr_ext.run.team import Team, is_leader

_LOG = logging.getLogger("ppocr_ext")


def open_data(
    host: Host,
    config: Config,
    host_config: dict[str, Any],
    role: str,
    charset: Charset,
    device: str,
    model: Any,
    folder: Path,
    seed: int,
    processes: Team,
    data_of: str = "Eval",
    reads_ctc: bool = True,
) -> dict[str, Loaded]:
    """Loaders of ``Train`` and ``Eval``, as far as ``role`` and this process need them.

    One process of each machine looks at the data, since their files may differ; in training process 0 alone
    evaluates, and alone writes into the run folder. Copies of label files that the others need lie in a
    temporary folder. Messages call the data of ``Eval`` those of ``data_of``. Unless ``reads_ctc``, its labels
    need not fit the frames of CTC.

    Raises:
        ConfigError: a section is missing.
        DataError: data that cannot be used, or that differ between machines.
    """
    first = processes.rank == 0
    modes = [mode for mode in _modes(config, role) if first or mode == "Train" or role == "eval"]
    frames = {
        mode: count_frames(model, config, mode) if mode == "Train" or reads_ctc else FrameCounts({})
        for mode in modes
    }
    record = folder / "preflight.json" if role == "train" and first else None
    found = processes.once_a_machine(
        "preflight", lambda: look_at_data(config, charset, frames, record, data_of)
    )
    if is_leader() and "Train" in found:
        train = found["Train"]
        _same_on_all_machines(processes, f"{train.usable} of {train.total}")
    scratch = folder if role == "train" and first else scratch_folder()
    labels = label_check(config, charset, frames["Train"]) if "Train" in modes else None
    return {
        mode: build_loader(
            host,
            config,
            host_config,
            mode,
            found.get(mode),
            device,
            seed,
            scratch,
            data_of,
            labels if mode == "Train" else None,
        )
        for mode in modes
    }


def _modes(config: Config, role: str) -> list[str]:
    modes = ["Train", "Eval"] if role == "train" else ["Eval"]
    for mode in tuple(modes):
        if config.at(mode, default=None) is None:
            if mode == "Train" or role == "eval":
                raise ConfigError(f"The config has no section {mode}, which `{role}` needs.")
            _LOG.warning("The config has no section Eval: no evaluation, and no best checkpoint.")
            modes.remove(mode)
    return modes


def _same_on_all_machines(processes: Team, usable: str) -> None:
    first = processes.as_process_0_says("usable lines", usable)
    if first != usable:
        raise DataError(
            f"Train: on this machine {usable} lines can be used, on that of process 0 {first}. Every machine needs the "
            f"same label files and images: each process takes its share of the lines by their number."
        )
