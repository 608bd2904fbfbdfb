"""Files and folders that the config names and the role needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ppocr_ext.characters.look_alikes import SHIPPED, read_groups
from ppocr_ext.charset import Charset
from ppocr_ext.check.data import reads_key
from ppocr_ext.check.look import Look, is_number, shown
from ppocr_ext.checkpoint.journal import read_journal
from ppocr_ext.checkpoint.names import why_missing
from ppocr_ext.config import resolve_charset
from ppocr_ext.config.class_counts import wrong_counts
from ppocr_ext.errors import CharsetError, ConfigError, DataError, WeightsError
from ppocr_ext.registry import DATASETS

_LOG = logging.getLogger("ppocr_ext")
_DICTIONARY = ("Global", "character_dict_path")


def check_dictionary(look: Look) -> None:
    """The dictionary, and the class counts that the config has already."""
    try:
        with unlogged():
            charset = resolve_charset(look.config, look.host.find_file)
    except CharsetError as error:
        look.error(_DICTIONARY, str(error).removeprefix(f"{look.place(_DICTIONARY).text}: "))
        return
    except ConfigError:
        return  # use_space_char is neither true nor false, which is said of the keys of Global
    _check_space(look, charset)
    _check_counts(look, charset)


def _check_space(look: Look, charset: Charset) -> None:
    line = charset.line_of_second_space
    if line is not None:
        used = charset.ids(" ")[0]
        look.warning(
            ("Global", "use_space_char"),
            f"{charset.path}:{line} is the space already: it gets the classes {line} and {used}, labels use {used}.\n"
            f"  Fix: `use_space_char: false` for a new training; keep true for weights that were trained so.",
        )


def _check_counts(look: Look, charset: Charset) -> None:
    try:
        with unlogged():
            wrong = wrong_counts(look.config, charset)
    except ConfigError:
        return  # a head_list that is no list of heads, which is said of the architecture
    for path, message in wrong:
        look.error(path, message)


def _check_centers(look: Look, path: tuple[str, ...]) -> None:
    """One file of centers, or one for each sub-model."""
    given = look.at(*path)
    files = (
        {(*path, str(name)): file for name, file in given.items()}
        if isinstance(given, Mapping)
        else {path: given}
    )
    for place, file in files.items():
        if isinstance(file, str) and not Path(file).is_file():
            look.error(place, f"there is no file {file}. `ppocr-ext export-center` writes it.")


def check_files(look: Look) -> None:
    """Label files, data folders and weights."""
    for mode in look.modes:
        _check_data_files(look, mode)
    for _, path in look.listed_quietly("Loss", "loss_config_list") if look.role == "train" else ():
        _check_centers(look, (*path, "center_file_path"))
        _check_groups(look, (*path, "look_alikes"))
    for path, name in _weights(look):
        if isinstance(name, str):
            _check_weights(look, path, name)
        elif path[0] != "Global":  # of Global it is said there
            look.error(path, f"{shown(name)} is no path of weights.")


def _check_groups(look: Look, path: tuple[str, ...]) -> None:
    """Look-alike characters: a number, or groups; text that is a number is refused with the other keys."""
    value = look.at(*path)
    if value is None or (isinstance(value, str) and is_number(value)):
        return
    if isinstance(value, str):
        try:
            read_groups(value)
        except DataError as error:
            look.error(path, str(error))
    elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
        look.error(
            path, f"{shown(value)} is neither a number of at least 1, nor `{SHIPPED}`, nor a file of groups."
        )


def _check_data_files(look: Look, mode: str) -> None:
    if look.is_of_plugin(DATASETS, look.at(mode, "dataset", "name")):
        return  # which keys it reads is unknown
    path = (mode, "dataset", "label_file_list")
    listed = look.at(*path) if reads_key(look.config, mode, "label_file_list") else None
    names = (listed,) if isinstance(listed, str) else listed
    if isinstance(names, tuple):
        for index, name in enumerate(names):
            where = path if isinstance(listed, str) else (*path, str(index))
            if not isinstance(name, str):
                look.error(where, f"{shown(name)} is no path of a label file.")
            elif not Path(name).is_file():
                look.error(where, f"there is no file {name} (from {Path.cwd()}).")
    elif names is not None:
        look.error(path, f"{shown(names)} is no list of label files.")
    if look.at(mode, "dataset", "delimiter") == "":
        look.error((mode, "dataset", "delimiter"), 'it is empty. Fix: "\\t", or take it out.')
    path = (mode, "dataset", "data_dir")
    folder = look.at(*path) if reads_key(look.config, mode, "data_dir") else None
    if isinstance(folder, str) and not Path(folder).is_dir():
        look.error(path, f"there is no folder {folder} (from {Path.cwd()}).")
    elif folder is not None and not isinstance(folder, (str, tuple)):
        look.error(path, f"{shown(folder)} is not the name of a folder.")


def _weights(look: Look) -> Iterator[tuple[tuple[str, ...], object]]:
    """Paths of weights that are going to be read: a whole model's, or else those of sub-models."""
    for key in ("checkpoints", "pretrained_model"):
        name = look.at("Global", key)
        if name:
            yield ("Global", key), name
            return
    models = look.at("Architecture", "Models")
    if look.role != "train" or not isinstance(models, Mapping):
        return
    for model in models:
        path = ("Architecture", "Models", str(model), "pretrained")
        name = look.at(*path)
        if name:
            yield path, name


def _check_weights(look: Look, path: tuple[str, ...], name: str) -> None:
    """Report weights that are not there; a checkpoint whose journal was left counts, loading finishes it."""
    prefix = Path(name.removesuffix(".pdparams"))
    if Path(f"{prefix}.pdparams").is_file():
        return
    try:
        if read_journal(prefix):
            return
    except WeightsError as error:
        look.error(path, str(error))
    else:
        look.error(path, why_missing(name))


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
