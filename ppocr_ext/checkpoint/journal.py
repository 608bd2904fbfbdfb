"""Read the journal that lies beside a checkpoint that was being written; imports no Paddle.

A journal may come from anywhere, as weights do. It is carried out only if it has the form that
:func:`ppocr_ext.checkpoint.checkpoints.write_checkpoint` gives it: the files of one checkpoint, in one folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from ppocr_ext.errors import WeightsError

ENDINGS = (".pdparams", ".pdopt", ".states")
_MAX_BYTES = 8192  # six names in JSON
_RANDOM = "[a-z0-9_]{8}"  # what tempfile puts into a temporary name


def journal_of(prefix: Path) -> Path:
    """Return the path of the journal of the checkpoint ``prefix``."""
    return Path(f"{prefix}.journal")


def read_journal(prefix: Path) -> dict[str, str]:
    """Return the renames that are left to do for the checkpoint ``prefix``; empty if there is no journal.

    Returns:
        Temporary name to final name, both in the folder of ``prefix``.

    Raises:
        WeightsError: the journal does not have the form in which a checkpoint is written.
    """
    journal = journal_of(prefix)
    try:
        content = _read(journal)
        return {} if content is None else _renames(prefix, json.loads(content))
    except OSError as fault:
        reason = fault.strerror or str(fault)
    except RecursionError:
        reason = "it is nested too deeply"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except json.JSONDecodeError as fault:
        reason = f"it is not JSON: {fault}"
    except ValueError as fault:
        reason = str(fault)
    raise WeightsError(f"{journal}: not the journal of a checkpoint ({reason}). Fix: delete it.")


def _read(journal: Path) -> str | None:
    """Return the text of ``journal``, or None if there is none; never wait for it, never follow a link."""
    if not os.path.lexists(journal):
        return None
    try:
        _require_regular(journal.lstat())
        handle = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:  # another process has just finished it
        return None
    with os.fdopen(handle, "rb") as stream:
        _require_regular(os.fstat(handle))
        content = stream.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    return content.decode("utf-8")


def _require_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is a link, a folder or a pipe, not a file")


def _renames(prefix: Path, content: Any) -> dict[str, str]:
    finals = [f"{prefix.name}{ending}" for ending in ENDINGS]
    if not isinstance(content, dict) or not all(isinstance(final, str) for final in content.values()):
        raise ValueError("it does not give one name for another")
    if sorted(content.values()) != sorted(finals):
        raise ValueError(f"it does not name exactly {', '.join(finals)}")
    for temporary, final in content.items():
        if not re.fullmatch(rf"\.{re.escape(final)}\.{_RANDOM}\.tmp", temporary):
            raise ValueError(f"{temporary!r:.60} is not a temporary name of {final}")
        try:
            found = (prefix.parent / temporary).lstat()
        except FileNotFoundError:  # renamed already
            continue
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{temporary!r:.60} is a link, a folder or a pipe, not a file")
    return content
