"""What :mod:`ppocr_ext.training.run` needs done to a config before and beside building."""

from __future__ import annotations

import atexit
import importlib
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError

_LOG = logging.getLogger("ppocr_ext")
DEFAULT_SEED = 1024  # PaddleOCR's
DEFAULT_FOLDER = "./output/run"
_WHOLE_NUMBERS = {  # key → least value
    "Global.epoch_num": 1,
    "Global.print_batch_step": 1,
    "Global.save_epoch_step": 1,
    "Global.log_smooth_window": 1,
    "Global.seed": 0,
    "Global.max_text_length": 1,
    "Train.loader.batch_size_per_card": 1,
    "Eval.loader.batch_size_per_card": 1,
}


def seed_of(config: Config) -> int:
    """``Global.seed``; PaddleOCR's default where there is none."""
    seed = config.at("Global.seed", default=None)
    return DEFAULT_SEED if seed is None else int(seed)


def folder_of(config: Config) -> Path:
    """The run folder that ``Global.save_model_dir`` names.

    Raises:
        ConfigError: it is not a name.
    """
    folder = config.at("Global.save_model_dir", default=None)
    if folder is None:
        return Path(DEFAULT_FOLDER)
    if not isinstance(folder, str):
        raise ConfigError(
            f"Global.save_model_dir: {folder!r} is not the name of a folder. (YAML reads off, on, yes, no and "
            f"numbers as values: put quotes around such a name.)"
        )
    return Path(folder)


def scratch_folder() -> Path:
    """A folder for this process alone, removed when it ends."""
    folder = tempfile.mkdtemp(prefix="ppocr_ext_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def import_plugins(config: Config) -> None:
    """Import ``Global.plugins``, modules that register their own components.

    Raises:
        ConfigError: a module cannot be found or fails.
    """
    names = config.at("Global.plugins", default=()) or ()
    if names and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as with `python -c`; a console script does not have it
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as fault:  # whatever a user's module raises
            raise ConfigError(
                f"Global.plugins: {name!r} cannot be imported ({type(fault).__name__}: {fault}). Give a module name "
                f"that `python -c 'import {name}'` accepts in the folder you start in, or set PYTHONPATH."
            ) from fault


def read_old_charset(path: str | None, config: Config) -> Charset | None:
    """The dictionary given with ``--old-dict``; None without."""
    if path is None:
        return None
    space = bool(config.at("Global.use_space_char", default=False))
    return Charset.from_file(path, space, lenient=True)  # its flaws are in the weights already


def complete(config: Config, charset: Charset) -> Config:
    """Fill in what the host's loop insists on and PaddleOCR's train.py takes for granted."""
    defaults = {
        "Global.log_smooth_window": 20,
        "Global.print_batch_step": 10,
        "Global.save_epoch_step": 1_000_000,  # `latest` and `best_accuracy` alone
        "Global.eval_batch_step": [0, 2000],
        "Global.save_model_dir": DEFAULT_FOLDER,
        "Global.epoch_num": 1,
        "Global.use_space_char": False,  # the host's encoders and decoders have different defaults
    }
    for key, least in _WHOLE_NUMBERS.items():
        value = config.at(key, default=None)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise ConfigError(f"{key}: {value!r} is not a whole number of at least {least}.")
    if config.at("Architecture.algorithm", default=None) is None:
        raise ConfigError(
            "Architecture.algorithm is missing; PaddleOCR's loop reads it. For a MultiHead recogniser it is "
            "SVTR_LCNet, for several sub-models Distillation."
        )
    for key in ("use_sync_bn", "to_static"):
        if config.at(f"Global.{key}", default=False):
            _LOG.warning("Global.%s: training goes on without it; it is not supported yet.", key)
    missing = {path: value for path, value in defaults.items() if config.at(path, default=None) is None}
    if charset.path is not None:
        missing["Global.character_dict_path"] = str(charset.path)
    return config.with_values(missing)


def data_parallel(model: Any, config: Config) -> Any:
    """``model`` for several processes; names in its ``state_dict`` stay as they are."""
    return paddle.DataParallel(
        model, find_unused_parameters=bool(config.at("Global.find_unused_parameters", default=False))
    )


def clamp_eval_step(global_config: dict[str, Any], total: int) -> None:
    """Bring ``eval_batch_step`` inside the run's ``total`` steps, so that a best checkpoint exists."""
    value = global_config["eval_batch_step"]
    pair = list(value) if isinstance(value, list | tuple) else [0, value]
    if len(pair) != 2 or not all(isinstance(number, int) for number in pair):
        raise ConfigError(
            f"Global.eval_batch_step: {value!r} is neither a number of steps nor [first, every]."
        )
    start, every = pair
    if every < 1:
        raise ConfigError(f"Global.eval_batch_step: {value} evaluates every {every} steps. Give at least 1.")
    if start + every > total:
        _LOG.warning(
            "Global.eval_batch_step: the first evaluation would come at step %d, but the run has %d; it is set to %d.",
            start + every,
            total,
            total,
        )
        start, every = 0, total
    global_config["eval_batch_step"] = [start, every]
