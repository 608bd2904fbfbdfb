"""What :mod:`ppocr_ext.run.run` needs done to a config before and beside building."""

from __future__ import annotations

import atexit
import importlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, derive_values
from ppocr_ext.errors import ConfigError

_LOG = logging.getLogger("ppocr_ext")
DEFAULT_SEED = 1024  # PaddleOCR's
DEFAULT_FOLDER = "./output/run"


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


def plugin_names(config: Config) -> tuple[str, ...]:
    """Return the modules that ``Global.plugins`` lists; none where it is no list, which the config check reports."""
    listed = config.at("Global.plugins", default=None)
    return tuple(map(str, listed)) if isinstance(listed, tuple) else ()


def import_plugins(config: Config, say: Callable[[str], None] = _LOG.info) -> None:
    """Import ``Global.plugins``, modules that register their own components.

    Args:
        config: the configuration.
        say: takes a line for each module, with its file.

    Raises:
        ConfigError: a module cannot be found or fails.
    """
    names = plugin_names(config)
    if names and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as with `python -c`; a console script does not have it
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as fault:  # whatever a user's module raises
            raise ConfigError(
                f"Global.plugins: {name!r} cannot be imported ({type(fault).__name__}: {fault}). Give a module name "
                f"that `python -c 'import {name}'` accepts in the folder you start in, or set PYTHONPATH."
            ) from fault
        say(f"imported plugin {name}: {getattr(module, '__file__', None)}")


def read_old_charset(path: str | None, config: Config) -> Charset | None:
    """The dictionary given with ``--old-dict``; None without."""
    if path is None:
        return None
    space = bool(config.at("Global.use_space_char", default=False))
    return Charset.from_file(path, space, lenient=True)  # its flaws are in the weights already


def complete(config: Config, charset: Charset) -> Config:
    """Fill in what the host's loop insists on and PaddleOCR's train.py takes for granted.

    The loader of ``Eval`` gives every line, in the data's order, whatever the config says.
    """
    defaults = {
        "Global.log_smooth_window": 20,
        "Global.print_batch_step": 10,
        "Global.save_epoch_step": 1_000_000,  # `latest` and `best_accuracy` alone
        "Global.eval_batch_step": [0, 2000],
        "Global.save_model_dir": DEFAULT_FOLDER,
        "Global.epoch_num": 1,
        "Global.use_space_char": False,  # the host's encoders and decoders have different defaults
    }
    missing = {path: value for path, value in defaults.items() if config.at(path, default=None) is None}
    config = config.with_values(missing)
    dictionary = "Global.character_dict_path"
    if charset.path is not None:
        config = config.with_values({dictionary: str(charset.path)}, derived_from=dictionary)
    if isinstance(config.at("Eval.loader", default=None), Mapping):
        config = config.with_values(dict.fromkeys(("Eval.loader.shuffle", "Eval.loader.drop_last"), False))
    return derive_values(config)


def clamp_eval_step(global_config: dict[str, Any], steps_per_epoch: int) -> None:
    """Say when to evaluate in steps alone, and inside the run, so that a best checkpoint exists.

    Args:
        global_config: ``Global``, changed in place: ``eval_batch_epoch``, which goes before
            ``eval_batch_step`` and which not every host knows, is turned into steps.
        steps_per_epoch: batches of an epoch.

    Raises:
        ConfigError: ``eval_batch_step`` is neither a number of steps nor [first, every].
    """
    total = int(global_config["epoch_num"]) * steps_per_epoch
    epochs = global_config.pop("eval_batch_epoch", None)
    key = "eval_batch_step" if epochs is None else "eval_batch_epoch"
    start, every = _eval_steps(global_config) if epochs is None else (0, epochs * steps_per_epoch)
    if start + every > total:
        _LOG.warning(
            "Global.%s: the first evaluation would come at step %d, but the run has %d; it is set to %d.",
            key,
            start + every,
            total,
            total,
        )
        start, every = 0, total
    global_config["eval_batch_step"] = [start, every]


def _eval_steps(global_config: dict[str, Any]) -> tuple[int, int]:
    value = global_config["eval_batch_step"]
    pair = list(value) if isinstance(value, list | tuple) else [0, value]
    if len(pair) != 2 or not all(isinstance(number, int) for number in pair):
        raise ConfigError(
            f"Global.eval_batch_step: {value!r} is neither a number of steps nor [first, every]."
        )
    start, every = pair
    if every < 1:
        raise ConfigError(f"Global.eval_batch_step: {value} evaluates every {every} steps. Give at least 1.")
    return start, every
