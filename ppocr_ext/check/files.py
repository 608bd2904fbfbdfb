"""Check the files and folders that the config names and the role needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ppocr_ext.base.parts import CLIENT_NAMES
from ppocr_ext.charset import Charset
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.data import reads_key
from ppocr_ext.check.findings import KeyPath
from ppocr_ext.checkpoint.checkpoints import why_missing
from ppocr_ext.checkpoint.files import read_journal
from ppocr_ext.checkpoint.weight_sources import find_source
from ppocr_ext.config import Config, resolve_charset
from ppocr_ext.config.derive import class_counts, model_paths
from ppocr_ext.config.global_keys import Problem, ValueRule, shown
from ppocr_ext.errors import CharsetError, ConfigError, PPOCRExtError
from ppocr_ext.io.resources import is_shipped_dictionary
from ppocr_ext.messages import LOG, did_you_mean, near_match, path_hint, shortened
from ppocr_ext.registry import DATASETS
from ppocr_ext.text_direction import LEFT_TO_RIGHT, client_direction

_FIX_PATH = "Fix: a path from there, or an absolute one."
# PaddleX's key of the name of an exported model, and that of PaddleOCR 3.x
MODEL_NAME_KEYS = (("Global", "pdx_model_name"), ("Global", "model_name"))
_DICTIONARY = ("Global", "character_dict_path")


def check_dictionary(check: ConfigCheck) -> None:
    """Check the dictionary, and the class counts that the config already has."""
    try:
        with no_log():
            charset = resolve_charset(check.config, check.host.find_file)
    except CharsetError as error:
        check.raised(_DICTIONARY, "dictionary", error)
        return
    except ConfigError:
        return  # use_space_char is neither true nor false, which the check of Global reports
    if charset.path is None:
        check.warning(
            _DICTIONARY,
            "no_dictionary",
            "no dictionary is given, so the characters are 0-9 and a-z without the space, as in PaddleOCR. Fix: give "
            "the file of your characters.",
        )
    elif charset.unused_lines and not is_shipped_dictionary(charset.path):
        unused = charset.unused_lines
        more = " `export` then writes no ONNX." if charset.characters[-1] == "" else ""
        check.warning(
            _DICTIONARY,
            "dictionary_lines",
            f"no label uses {len(unused)} of its classes, as in PaddleOCR: {shortened(unused, 3)}.{more}\n"
            f"  Fix: for a new training, one character on each line, each once, and no byte order mark; keep the "
            f"file for weights that were trained with it.",
        )
    if (line := charset.line_of_second_space) is not None:
        [used] = charset.ids(" ")
        check.warning(
            ("Global", "use_space_char"),
            "space_twice",
            f"{charset.path}:{line} is the space too: it has the classes {line} and {used}, and labels use {used}.\n"
            f"  Fix: `use_space_char: false` for a new training; keep true for weights that were trained with it.",
        )
    _check_unknown_symbol(check, charset)
    for key in MODEL_NAME_KEYS if check.role == "train" else ():
        name = check.at(*key)
        if name and (problem := client_name_problem(str(name), charset)):
            check.warning(key, problem.code, problem.message)
    with no_log(), suppress(ConfigError):  # a wrong head_list is reported by the check of Architecture
        for where, count in class_counts(check.config, charset).items():
            if (given := check.at(*where)) not in (None, count):
                check.warning(
                    where,
                    "class_count",
                    f"is {given!r}, but {count} fits {charset.name} ({len(charset.characters)} characters) and is "
                    f"used, as in PaddleOCR. Fix: remove it, or set Global.character_dict_path to its dictionary.",
                )


def client_name_problem(name: str, charset: Charset) -> Problem | None:
    """Return why PaddleOCR's 3.x client cannot load a model of this dictionary under ``name``; None if it can."""
    if name not in CLIENT_NAMES:
        hint = did_you_mean(near_match(name, CLIENT_NAMES, 0.6))
        fix = "Fix: leave it out, or give one of the names in docs/deploy.md."
        return Problem("unknown_model_name", f"paddleocr 3.7 has no model {name}.{hint} {fix}")
    if charset.turns_texts == (client_direction(name) == LEFT_TO_RIGHT):
        does = "leaves texts in the order of the image" if charset.turns_texts else "turns texts around"
        return Problem(
            "arabic_name",
            f"under the name {name} the client {does}, but Global.text_direction is {charset.direction}. Fix: another "
            f"name, or the text_direction of the labels.",
        )
    return None


def _check_unknown_symbol(check: ConfigCheck, charset: Charset) -> None:
    """Check that the symbol of ``unknown_char: map`` is a line of the dictionary, and not the space."""
    path = ("Global", "unknown_symbol")
    symbol = check.at(*path)
    if check.at("Global", "unknown_char") != "map":
        if symbol is not None:
            check.warning(
                path,
                "ignored_value",
                "it has no effect without `unknown_char: map`. Fix: set that, or remove it.",
            )
    elif symbol is None:
        check.missing(path, "`unknown_char: map` needs a line of the dictionary, such as `unknown_symbol: □`")
    elif isinstance(symbol, str) and (len(symbol) != 1 or symbol == " " or symbol not in charset.characters):
        check.error(
            path,
            "bad_value",
            f"found {symbol!r}, expected one character that is a line of {charset.name}, but not the space. Fix: add "
            f"a line with a character that no label has, such as □.",
        )


def check_files(check: ConfigCheck) -> None:
    """Check label files, data folders, files of losses, and weights."""
    absent: set[Path] = set()
    for section in _datasets(check):
        name = check.at(*section, "name") or check.at(section[0], "dataset", "name")
        if not check.is_of_plugin(DATASETS, name):  # its keys are unknown
            if reads_key(name, "data_dir"):
                _check_folder(check, (*section, "data_dir"), absent)
            if reads_key(name, "label_file_list"):
                _check_label_files(check, section, absent)
    if check.role == "train":
        _check_folder(check, ("Train", "teacher_cache"), absent)
        out = check.at("Global", "save_model_dir")
        if isinstance(out, str) and (hint := path_hint(out)):
            text = f"a folder of the name {out!r} will be made, as PaddleOCR does.{hint}"
            check.warning(("Global", "save_model_dir"), "literal_path", text)
    for path, name in weights_to_load(check.config, check.role):
        if isinstance(name, str):
            _check_weights(check, path, name)
        elif path[0] != "Global":  # the check of Global reports those
            check.error(path, "bad_value", f"found {shown(name)}, expected a path of weights.")


def _datasets(check: ConfigCheck) -> Iterator[KeyPath]:
    """Yield the path of each dataset that the role reads."""
    for mode in check.modes:
        yield mode, "dataset"
        mix = check.at(mode, "mix")
        yield from (
            (mode, "mix", str(n), "dataset") for n in range(len(mix) if isinstance(mix, tuple) else 0)
        )
        if check.at(mode, "general") is not None:
            yield mode, "general", "dataset"


def _check_label_files(check: ConfigCheck, section: KeyPath, absent: set[Path]) -> None:
    """Check that the label files of a dataset exist."""
    path = (*section, "label_file_list")
    listed = check.at(*path)
    problem = None if isinstance(listed, str) else ValueRule("texts").problem(listed)
    if problem is not None:
        check.error(path, problem.code, problem.message)
        return
    names = [(path, listed)] if isinstance(listed, str) else enumerate(listed or ())
    for where, name in names:
        if not Path(name).is_file():
            at = where if isinstance(where, tuple) else (*path, str(where))
            _report_missing(check, at, Path(name).parents, name, absent)
    if check.at(*section, "delimiter") == "":
        check.error((*section, "delimiter"), "empty_value", 'is empty. Fix: "\\t", or remove it.')


def _check_folder(check: ConfigCheck, path: KeyPath, absent: set[Path]) -> None:
    """Check that a folder of images, of an LMDB or of a teacher cache exists."""
    folder = check.at(*path)
    if isinstance(folder, str) and not Path(folder).is_dir():
        _report_missing(check, path, (Path(folder), *Path(folder).parents), folder, absent)
    elif folder is not None and not isinstance(folder, (str, tuple)):
        check.error(path, "bad_value", f"found {shown(folder)}, expected the name of a folder.")


def _report_missing(
    check: ConfigCheck, path: KeyPath, folders: Sequence[Path], name: str, absent: set[Path]
) -> None:
    """Report a missing file or folder, unless the first folder on the way that is missing has been reported.

    Args:
        check: gets the issue.
        path: of the key.
        folders: those that ``name`` needs, the innermost first.
        name: what is missing.
        absent: the missing folders so far; one may be added.
    """
    folder = next((each for each in reversed(folders) if not each.is_dir()), None)
    kind = "file" if folder is None else "folder"
    if folder is None or folder not in absent:
        inside = "" if folder in (None, Path(name)) else f" for {name}"
        check.error(
            path,
            f"missing_{kind}",
            f"there is no {kind} {name if folder is None else folder}{inside} (from {Path.cwd()}).{path_hint(name)} "
            f"{_FIX_PATH}",
        )
    if folder is not None:
        absent.add(folder)


def weights_to_load(config: Config, role: str) -> Iterator[tuple[KeyPath, object]]:
    """Yield path and value of each key of weights that a role reads.

    These are the keys of the whole model, or those of the sub-models if the whole model has no weights. Official
    weights and released models have only one network, so a frozen sub-model beside it needs its own weights.
    """
    keys: list[KeyPath] = [("Global", key) for key in ("checkpoints", "pretrained_model")]
    whole = next((key for key in keys if config.at(key, None)), ())
    parts = [path for path in model_paths(config) if path != ("Architecture",)]
    if whole or role != "train":
        frozen = [part for part in parts if config.at((*part, "freeze_params"), False)]
        parts = frozen if role == "train" and find_source(str(config.at(whole))) is not None else []
    paths = [whole, *((*part, "pretrained") for part in parts)]
    yield from ((path, config.at(path)) for path in paths if path and config.at(path, None))


def _check_weights(check: ConfigCheck, path: KeyPath, name: str) -> None:
    """Report missing weights. A checkpoint with a journal is not missing, since loading it completes it."""
    prefix = Path(name.removesuffix(".pdparams"))
    try:  # a run downloads official weights, and converts released models
        if (
            find_source(name) is None
            and not Path(f"{prefix}.pdparams").is_file()
            and not read_journal(prefix)
        ):
            check.error(path, "missing_file", why_missing(name))
    except PPOCRExtError as error:
        check.raised(path, "weights", error)


@contextmanager
def no_log() -> Iterator[None]:
    """Log nothing inside this context, since building the run logs the same."""
    before, LOG.disabled = LOG.disabled, True
    try:
        yield
    finally:
        LOG.disabled = before
