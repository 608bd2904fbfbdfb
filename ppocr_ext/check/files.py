"""Files and folders that the config names and the role needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ppocr_ext.characters.look_alikes import SHIPPED, read_groups
from ppocr_ext.charset import Charset
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.data import reads_key
from ppocr_ext.checkpoint.checkpoints import why_missing
from ppocr_ext.checkpoint.journal import read_journal
from ppocr_ext.config import named_items, resolve_charset
from ppocr_ext.config.class_counts import wrong_counts
from ppocr_ext.config.values import is_number, shown
from ppocr_ext.errors import CharsetError, ConfigError, DataError, WeightsError
from ppocr_ext.registry import DATASETS

_LOG = logging.getLogger("ppocr_ext")
_DICTIONARY = ("Global", "character_dict_path")


def check_dictionary(check: ConfigCheck) -> None:
    """The dictionary, and the class counts that the config has already."""
    try:
        with unlogged():
            charset = resolve_charset(check.config, check.host.find_file)
    except CharsetError as error:
        check.error(_DICTIONARY, error.code, str(error).removeprefix(f"{check.place(_DICTIONARY).text}: "))
        return
    except ConfigError:
        return  # use_space_char is neither true nor false, which is said of the keys of Global
    _check_space(check, charset)
    _check_counts(check, charset)


def _check_space(check: ConfigCheck, charset: Charset) -> None:
    line = charset.line_of_second_space
    if line is not None:
        used = charset.ids(" ")[0]
        check.warning(
            ("Global", "use_space_char"),
            "space_twice",
            f"{charset.path}:{line} is the space already: it gets the classes {line} and {used}, labels use {used}.\n"
            f"  Fix: `use_space_char: false` for a new training; keep true for weights that were trained so.",
        )


def _check_counts(check: ConfigCheck, charset: Charset) -> None:
    try:
        with unlogged():
            wrong = wrong_counts(check.config, charset)
    except ConfigError:
        return  # a head_list that is no list of heads, which is said of the architecture
    for path, message in wrong:
        check.error(path, "wrong_class_count", message)


def _check_centers(check: ConfigCheck, path: tuple[str, ...]) -> None:
    """One file of centers, or one for each sub-model."""
    given = check.at(*path)
    files = (
        {(*path, str(name)): file for name, file in given.items()}
        if isinstance(given, Mapping)
        else {path: given}
    )
    for place, file in files.items():
        if isinstance(file, str) and not Path(file).is_file():
            check.error(
                place, "missing_file", f"there is no file {file}. `ppocr-ext export-center` writes it."
            )


def check_files(check: ConfigCheck) -> None:
    """Label files, data folders and weights."""
    for mode in check.modes:
        _check_data_files(check, mode)
    for _, path in named_items(check.config, "Loss", "loss_config_list") if check.role == "train" else ():
        _check_centers(check, (*path, "center_file_path"))
        _check_groups(check, (*path, "look_alikes"))
    for path, name in _weights(check):
        if isinstance(name, str):
            _check_weights(check, path, name)
        elif path[0] != "Global":  # of Global it is said there
            check.error(path, "bad_value", f"{shown(name)} is no path of weights.")


def _check_groups(check: ConfigCheck, path: tuple[str, ...]) -> None:
    """ConfigCheck-alike characters: a number, or groups; text that is a number is refused with the other keys."""
    value = check.at(*path)
    if value is None or (isinstance(value, str) and is_number(value)):
        return
    if isinstance(value, str):
        try:
            read_groups(value)
        except DataError as error:
            check.error(path, error.code, str(error))
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        check.error(
            path,
            "bad_value",
            f"{shown(value)} is neither a number of at least 1, nor `{SHIPPED}`, nor a file of groups.",
        )


def _check_data_files(check: ConfigCheck, mode: str) -> None:
    if check.is_of_plugin(DATASETS, check.at(mode, "dataset", "name")):
        return  # which keys it reads is unknown
    path = (mode, "dataset", "label_file_list")
    listed = check.at(*path) if reads_key(check.config, mode, "label_file_list") else None
    names = (listed,) if isinstance(listed, str) else listed
    if isinstance(names, tuple):
        for index, name in enumerate(names):
            where = path if isinstance(listed, str) else (*path, str(index))
            if not isinstance(name, str):
                check.error(where, "bad_value", f"{shown(name)} is no path of a label file.")
            elif not Path(name).is_file():
                check.error(where, "missing_file", f"there is no file {name} (from {Path.cwd()}).")
    elif names is not None:
        check.error(path, "bad_value", f"{shown(names)} is no list of label files.")
    if check.at(mode, "dataset", "delimiter") == "":
        check.error((mode, "dataset", "delimiter"), "empty_value", 'it is empty. Fix: "\\t", or take it out.')
    path = (mode, "dataset", "data_dir")
    folder = check.at(*path) if reads_key(check.config, mode, "data_dir") else None
    if isinstance(folder, str) and not Path(folder).is_dir():
        check.error(path, "missing_folder", f"there is no folder {folder} (from {Path.cwd()}).")
    elif folder is not None and not isinstance(folder, (str, tuple)):
        check.error(path, "bad_value", f"{shown(folder)} is not the name of a folder.")


def _weights(check: ConfigCheck) -> Iterator[tuple[tuple[str, ...], object]]:
    """Paths of weights that are going to be read: a whole model's, or else those of sub-models."""
    for key in ("checkpoints", "pretrained_model"):
        name = check.at("Global", key)
        if name:
            yield ("Global", key), name
            return
    models = check.at("Architecture", "Models")
    if check.role != "train" or not isinstance(models, Mapping):
        return
    for model in models:
        path = ("Architecture", "Models", str(model), "pretrained")
        name = check.at(*path)
        if name:
            yield path, name


def _check_weights(check: ConfigCheck, path: tuple[str, ...], name: str) -> None:
    """Report weights that are not there; a checkpoint whose journal was left counts, loading finishes it."""
    prefix = Path(name.removesuffix(".pdparams"))
    if Path(f"{prefix}.pdparams").is_file():
        return
    try:
        if read_journal(prefix):
            return
    except WeightsError as error:
        check.error(path, error.code, str(error))
    else:
        check.error(path, "missing_file", why_missing(name))


@contextmanager
def unlogged() -> Iterator[None]:
    """Without what is logged on the way: building the run says it."""

    def silent(record: logging.LogRecord) -> bool:
        return False

    _LOG.addFilter(silent)
    try:
        yield
    finally:
        _LOG.removeFilter(silent)
