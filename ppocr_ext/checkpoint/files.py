"""The files of checkpoints: read without running their code, written as a whole, renamed together; imports no Paddle.

``.pdparams``, ``.pdopt`` and ``.states`` are pickles, read by :mod:`ppocr_ext.io.plain_pickle`. A journal lists the
renames that are still to do. Like weights, a journal may come from anywhere. So its renames are done only if they are
of the kind that :func:`write_journal` writes, those of the three files of one checkpoint within its folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import remove_temporary_files, write_bytes, write_text
from ppocr_ext.io.plain_pickle import PlainPickleError, load_plain_pickle
from ppocr_ext.limits import json_object, read_at_most

NAME_TABLE = "StructuredToParameterName@@"  # what paddle.save adds to the tensors

_DICTS = (
    "best_model_dict",
    "parameter_names",
    "frozen",
    "scaler",
    "loss",
    "hooks",
    "raw_weights",
    "before_group",
    "views",
    "engines",
)
ENDINGS = (".pdparams", ".pdopt", ".states")
_MAX_BYTES = 8192  # limit of a journal, which has six names in JSON
_RANDOM = "[a-z0-9_]{8}"  # eight hexadecimal digits; earlier versions wrote names of the module tempfile
_JOURNAL = ".journal"
_NAMES = re.compile(r"latest|best_accuracy|iter_epoch_(?P<epoch>\d+)")


def read_plain_pickle(path: Path) -> Any:
    """Unpickle arrays and plain containers from ``path``.

    Raises:
        WeightsError: the file is missing, truncated, or holds anything else.
    """
    if not path.is_file():
        raise WeightsError(
            f"There is no file {path}. Fix: give the path of a checkpoint, with or without its ending.",
            code="missing_file",
        )
    try:
        return load_plain_pickle(path)
    except PlainPickleError as error:
        raise WeightsError(
            f"{path} ({path.stat().st_size} bytes) cannot be read as a checkpoint: {error}. It is truncated, or was "
            f"not written by paddle.save. Fix: use another checkpoint of the run.",
            code="damaged_file",
        ) from error


def read_state(path: Path) -> dict[str, np.ndarray]:
    """Return weights by name, as ``paddle.save(layer.state_dict(), path)`` wrote them.

    Tensors that Paddle wrote as ``(name, array)`` are unwrapped, and its table of names is dropped.

    Raises:
        WeightsError: the file cannot be read, or does not hold arrays by name.
    """
    content = read_plain_pickle(path)
    if not isinstance(content, dict):
        raise WeightsError(
            f"{path} holds a {type(content).__name__}, not weights by name. Fix: give a file written by "
            f"`paddle.save(model.state_dict(), path)`.",
            code="bad_content",
        )
    state: dict[str, np.ndarray] = {}
    for name, value in content.items():
        if name == NAME_TABLE:
            continue
        if isinstance(value, tuple) and len(value) == 2:
            value = value[1]
        if not isinstance(value, np.ndarray) or not isinstance(name, str):
            raise WeightsError(
                f"{path}: the entry {name!r} is a {type(value).__name__}, not an array with a name.",
                code="bad_content",
            )
        state[name] = value
    if not state:
        raise WeightsError(f"{path} holds no weights.", code="bad_content")
    return state


def is_train_state(content: Any) -> bool:
    """Return True if a ``.states`` file holds a dict, with dicts and no arrays where a run writes them."""
    return isinstance(content, dict) and all(
        type(value) is dict if name in _DICTS else not isinstance(value, np.ndarray)
        for name, value in content.items()
    )


def write_temporary(path: Path, content: bytes) -> Path:
    """Write and sync a temporary file in the folder of ``path``; return its path."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    write_bytes(temporary, content)
    return temporary


def write_all_temporary(contents: Mapping[Path, bytes]) -> dict[Path, Path]:
    """Write a temporary file for each path, and return them by path. If one cannot be written, remove them all."""
    files: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            files[path] = write_temporary(path, content)
    except BaseException:
        for file in files.values():
            file.unlink(missing_ok=True)
        raise
    return files


def tensors_to_bytes(state: Any) -> bytes:
    """Return the bytes that ``paddle.save(state, file)`` writes."""
    import paddle

    buffer = io.BytesIO()
    paddle.save(state, buffer)
    return buffer.getvalue()


def _journal_of(prefix: Path) -> Path:
    return Path(f"{prefix}.journal")


def write_journal(prefix: Path, renames: Mapping[str, str]) -> None:
    """Write the journal of the checkpoint ``prefix``: temporary name to final name."""
    write_text(_journal_of(prefix), json.dumps(renames))


def finish_journal(prefix: Path) -> None:
    """Do the renames of the journal of ``prefix``, and remove it; only the process that saves there may do so.

    Raises:
        WeightsError: see :func:`apply_journal`.
    """
    if apply_journal(prefix):
        _journal_of(prefix).unlink(missing_ok=True)


def apply_journal(prefix: Path) -> bool:
    """Do the renames that a killed save has left; return True if there were any.

    The journal is not removed here, since the run may have written its next one meanwhile. A journal that is not valid
    is ignored if there are weights, and loading these warns of it.

    Raises:
        WeightsError: the journal is not valid, and there are no weights.
    """
    try:
        renames = read_journal(prefix)
    except WeightsError:
        if not Path(f"{prefix}.pdparams").is_file():
            raise
        return False
    for temporary, final in renames.items():
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            (prefix.parent / temporary).replace(prefix.parent / final)
    return bool(renames)


def read_journal(prefix: Path) -> dict[str, str]:
    """Return the renames still to do for the checkpoint ``prefix``; empty if there is no journal.

    Returns:
        Temporary name to final name, both in the folder of ``prefix``.

    Raises:
        WeightsError: the journal is not valid.
    """
    journal = _journal_of(prefix)
    try:
        _require_file(journal)
        return _renames(prefix, json_object(read_at_most(journal, _MAX_BYTES)))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"{journal}: not the journal of a checkpoint ({error}). Fix: delete it.", code="bad_journal"
        ) from error


def _require_file(path: Path) -> None:
    """Refuse anything but a regular file, since a link may lead to any file.

    Raises:
        OSError: there is nothing at ``path``.
        ValueError: it is not a regular file.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"{path.name} is a link, a folder or a pipe, not a file")


def _renames(prefix: Path, content: dict[str, Any]) -> dict[str, str]:
    finals = sorted(f"{prefix.name}{ending}" for ending in ENDINGS)
    forms = (rf"\.{re.escape(str(final))}\.{_RANDOM}\.tmp" for final in content.values())
    are_temporary = all(map(re.fullmatch, forms, content))
    if not are_temporary or sorted(map(str, content.values())) != finals:
        raise ValueError(f"it does not rename a temporary file of each of {', '.join(finals)}")
    for temporary in content:
        with contextlib.suppress(FileNotFoundError):  # renamed already
            _require_file(prefix.parent / temporary)
    return content


def names_in(folder: Path) -> list[str]:
    """Return the names of a run's checkpoints in ``folder``: ``latest`` first, the others sorted."""
    names = {file.name.removesuffix(".pdparams") for file in folder.glob("*.pdparams")}
    ours = [name for name in names if _NAMES.fullmatch(name)]
    return sorted(ours, key=lambda name: (name != "latest", name))


def finish_saves(folder: Path) -> None:
    """Finish the saves of killed processes in ``folder``, and remove temporary files that are left.

    No other process may save there at the same time.
    """
    for journal in folder.glob(f"*{_JOURNAL}"):
        try:
            finish_journal(folder / journal.name.removesuffix(_JOURNAL))
        except WeightsError:  # not one of ours; opening that checkpoint reports it
            return
    remove_temporary_files(folder)


def remove_checkpoints(folder: Path, names: Sequence[str]) -> None:
    """Remove the files of the checkpoints ``names`` in ``folder``, the weights last."""
    for name in names:
        for ending in (_JOURNAL, *reversed(ENDINGS)):
            (folder / f"{name}{ending}").unlink(missing_ok=True)


def keep_newest(folder: Path, name: str, count: int) -> None:
    """Keep the ``count`` newest checkpoints ``iter_epoch_N`` up to ``name``, which has just been saved.

    Later ones stay, since the run was resumed from an earlier checkpoint, and will write them again.
    """
    if (last := _epoch(name)) is not None:
        epochs = {epoch: name for name in names_in(folder) if (epoch := _epoch(name)) is not None}
        earlier = [epochs[epoch] for epoch in sorted(epochs) if epoch <= last]
        remove_checkpoints(folder, earlier[:-count])


def _epoch(name: str) -> int | None:
    match = _NAMES.fullmatch(name)
    return int(match["epoch"]) if match and match["epoch"] else None
