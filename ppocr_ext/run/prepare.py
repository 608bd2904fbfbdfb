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

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, derive_values
from ppocr_ext.config.global_keys import FILLED_DEFAULTS, global_value
from ppocr_ext.errors import ConfigError

_LOG = logging.getLogger("ppocr_ext")


def seed_of(config: Config) -> int:
    """Return ``Global.seed``, or PaddleOCR's default."""
    return int(global_value(config, "seed"))


def folder_of(config: Config) -> Path:
    """Return the run folder that ``Global.save_model_dir`` names."""
    return Path(global_value(config, "save_model_dir"))


def scratch_folder() -> Path:
    """Return a new folder for this process alone, which is removed when the process ends."""
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
                f"that `python -c 'import {name}'` accepts in the folder you start in, or set PYTHONPATH.",
                code="bad_plugin",
            ) from fault
        say(f"imported plugin {name}: {getattr(module, '__file__', None)}")


def read_old_charset(path: str | None, config: Config) -> Charset | None:
    """Return the dictionary given with ``--old-dict``; None without it."""
    if path is None:
        return None
    space = bool(config.at("Global.use_space_char", default=False))
    return Charset.from_file(path, space, lenient=True)  # its flaws are in the weights already


def complete(config: Config, charset: Charset) -> Config:
    """Fill in what the host's loop insists on and PaddleOCR's train.py takes for granted.

    The loader of ``Eval`` gives every line, in the data's order, whatever the config says.
    """
    missing = {
        path: value for path, value in FILLED_DEFAULTS.items() if config.at(path, default=None) is None
    }
    config = config.with_values(missing)
    dictionary = "Global.character_dict_path"
    if charset.path is not None:
        config = config.with_values({dictionary: str(charset.path)}, computed_from=dictionary)
    if isinstance(config.at("Eval.loader", default=None), Mapping):
        config = config.with_values(dict.fromkeys(("Eval.loader.shuffle", "Eval.loader.drop_last"), False))
    return derive_values(config)
