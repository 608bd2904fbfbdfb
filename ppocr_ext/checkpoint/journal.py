"""The journal of a checkpoint: renames that are still to do; imports no Paddle.

A journal may come from anywhere, as weights do. Its renames are done only if it has the form that
:func:`write_journal` writes: the files of one checkpoint, in one folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.messages import LOG

ENDINGS = (".pdparams", ".pdopt", ".states")
_MAX_BYTES = 8192  # six names in JSON
_RANDOM = "[a-z0-9_]{8}"  # what tempfile puts into a temporary name


def _journal_of(prefix: Path) -> Path:
    return Path(f"{prefix}.journal")


def write_journal(prefix: Path, renames: Mapping[str, str]) -> None:
    """Write the journal of the checkpoint ``prefix``: temporary name to final name."""
    journal = _journal_of(prefix)
    if journal.is_dir() and not journal.is_symlink():  # a file cannot replace a folder
        other = journal.rename(tempfile.mkdtemp(prefix=f"{journal.name}.", dir=journal.parent))
        LOG.warning("%s is a folder; it is now called %s.", journal, other.name)
    write_text(journal, json.dumps(renames))


def finish_journal(prefix: Path) -> None:
    """Do the renames of the journal of ``prefix`` and remove it; only for the process that saves there.

    Raises:
        WeightsError: see :func:`apply_journal`.
    """
    if apply_journal(prefix):
        _journal_of(prefix).unlink(missing_ok=True)


def apply_journal(prefix: Path) -> bool:
    """Do the renames that a killed process had written down but not finished; return True if there were any.

    The journal stays: after a reader has read it, the run may have written its next one. A journal of another form is
    ignored if there are weights without it; loading them warns of it.

    Raises:
        WeightsError: the journal has another form, and there are no weights.
    """
    try:
        renames = read_journal(prefix)
    except WeightsError:
        if not Path(f"{prefix}.pdparams").is_file():
            raise
        return False
    for temporary, final in renames.items():
        with contextlib.suppress(FileNotFoundError):  # another process has just done it
            (prefix.parent / temporary).replace(prefix.parent / final)
    return bool(renames)


def read_journal(prefix: Path) -> dict[str, str]:
    """Return the renames still to do for the checkpoint ``prefix``; empty if there is no journal.

    Returns:
        Temporary name to final name, both in the folder of ``prefix``.

    Raises:
        WeightsError: the journal does not have the form in which a checkpoint is written.
    """
    journal = _journal_of(prefix)
    try:
        content = _read(journal)
        return {} if content is None else _renames(prefix, json.loads(content))
    except (OSError, RecursionError, ValueError) as error:  # also damaged JSON, and text that is not UTF-8
        raise WeightsError(
            f"{journal}: not the journal of a checkpoint ({error}). Fix: delete it.", code="bad_journal"
        ) from error


def _read(journal: Path) -> str | None:
    """Return the text of ``journal``, or None if there is none; never wait for it, never follow a link."""
    try:
        _require_regular(journal.lstat())
        handle = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb") as stream:
        _require_regular(os.fstat(handle))
        content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    return content.decode("utf-8")


def _require_regular(found: os.stat_result, name: str = "it") -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{name} is a link, a folder or a pipe, not a file")


def _renames(prefix: Path, content: Any) -> dict[str, str]:
    finals = [f"{prefix.name}{ending}" for ending in ENDINGS]
    if not isinstance(content, dict) or not all(isinstance(final, str) for final in content.values()):
        raise ValueError("it does not give one name for another")
    if sorted(content.values()) != sorted(finals):
        raise ValueError(f"it does not name exactly {', '.join(finals)}")
    for temporary, final in content.items():
        if not re.fullmatch(rf"\.{re.escape(final)}\.{_RANDOM}\.tmp", temporary):
            raise ValueError(f"{temporary!r:.60} is not a temporary name of {final}")
        with contextlib.suppress(FileNotFoundError):  # renamed already
            _require_regular((prefix.parent / temporary).lstat(), f"{temporary!r:.60}")
    return content
