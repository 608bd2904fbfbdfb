"""Allow one training at a time in a run folder, and none that replaces an earlier run without ``--overwrite``."""

from __future__ import annotations

import datetime
import fcntl
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ppocr_ext.checkpoint.checkpoints import checkpoint_prefix
from ppocr_ext.checkpoint.files import finish_saves, names_in
from ppocr_ext.config import Config
from ppocr_ext.config.derive import named_weights
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.atomic import own_file
from ppocr_ext.messages import LOG, run_command, shortened
from ppocr_ext.report.run_folder import RECORD_FILE, read_record, status_of

LOCK_FILE = ".lock"


@contextmanager
def locked_folder(
    folder: Path, option: str = "-o Global.save_model_dir=…", warning_level: int = logging.WARNING
) -> Iterator[None]:
    """Create ``folder`` if needed, lock it against other trainings, and finish or remove what killed saves left.

    The system frees the lock when the process ends, in whatever way. If the system has no locks, as some network file
    systems, the log has a line about it.

    Args:
        folder: the folder of a run.
        option: the option that gives another folder, for a message.
        warning_level: the level of the line in the log.

    Raises:
        ConfigError: another training uses the folder.
        OSError: the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK_FILE
    handle = _lock(file, option, warning_level)
    if handle is None:  # without a lock, another training may be saving there
        yield
        return
    held = [handle]

    def close_in_child() -> None:  # a worker that survives a killed run must not keep the lock
        while held:
            os.close(held.pop())

    os.register_at_fork(after_in_child=close_in_child)
    try:
        finish_saves(folder)
        yield
    finally:
        held.clear()
        if _is_at(file, handle):
            file.unlink()
        os.close(handle)


def _lock(file: Path, option: str, level: int) -> int | None:
    """Return the handle of the locked file; None if the system has no locks."""
    while True:
        handle = own_file(file, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(handle, 1000)
            os.close(handle)
            raise ConfigError(
                f"{file.parent}: another training writes there{_holder(text)}. Fix: wait for its end, stop it, or give "
                f"another folder: {option}",
                code="folder_in_use",
            ) from None
        except OSError as error:
            os.close(handle)
            file.unlink(missing_ok=True)
            LOG.log(level, "%s: %s, so that a second training there is not noticed.", file, error.strerror)
            return None
        if _is_at(file, handle):  # otherwise another training removed the file between the two calls
            now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(holder).encode())
            return handle
        os.close(handle)


def _is_at(file: Path, handle: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(file.stat(), os.fstat(handle))
    return False


def _holder(text: bytes) -> str:
    """Return a note about the process that has the lock; empty if it has not written its number into the file yet."""
    try:
        holder = json.loads(text)
        return f" (process {int(holder['pid'])} on {holder['host']!s:.60}, since {holder['since']!s:.30})"
    except (ValueError, TypeError, KeyError):
        return ""


def check_folder(
    folder: Path, config: Config, host_path: str | None, overwrite: bool, processes: int = 1
) -> list[str]:
    """Return the checkpoints of an earlier run in ``folder`` that the new run replaces.

    Args:
        folder: the folder of the new run.
        config: the config of the new run.
        host_path: the given path of the host, for a command in the message.
        overwrite: whether the user allows to replace them.
        processes: the given number of processes, for the same command.

    Raises:
        ConfigError: the folder holds a run that the new one does not resume, and ``overwrite`` is False or the new run
            starts from weights there.
    """
    names = names_in(folder)
    resumed = config.settings.checkpoints
    if not names and (folder / "config.yml").exists() and not (folder / RECORD_FILE).exists():
        raise ConfigError(
            f"{folder / 'config.yml'} is of no run, and would be replaced. Fix: give another Global.save_model_dir.",
            code="folder_holds_config",
        )
    if not names or (resumed and _is_in(folder, resumed)):
        return []
    if overwrite:
        _require_other_weights(folder, config)
        return names
    status = status_of(read_record(folder)).replace("running", "killed")  # a running one would have the lock
    problem = f"a run ({status}: {shortened(names, 3)})"
    again = folder / names[0]
    if resumed:
        again = checkpoint_prefix(resumed)
        problem = f"another run than {again} ({status}: {shortened(names, 3)})"
    command = run_command("train", again, host_path) + f" --processes {processes}" * (processes > 1)
    more = " (with a greater Global.epoch_num)" if status in ("finished", "not_kept") and not resumed else ""
    raise ConfigError(
        f"{folder} holds the checkpoints of {problem}.\nFix: give another Global.save_model_dir; or replace them: "
        f"--overwrite; or go on{more}:\n{command}",
        code="folder_holds_run",
    )


def _require_other_weights(folder: Path, config: Config) -> None:
    for key, weights in named_weights(config).items():
        if _is_in(folder, weights):
            raise ConfigError(
                f"{key}: --overwrite would remove {weights}, which the run starts from. Fix: give another "
                f"Global.save_model_dir.",
                code="folder_holds_run",
            )


def _is_in(folder: Path, checkpoint: str) -> bool:
    return checkpoint_prefix(checkpoint).parent.resolve() == folder.resolve()
