"""Write files and folders: complete or not at all, never through a link, and with the mode of the umask.

A file or folder that is written as a whole gets its name at the end: :func:`atomic_writer`, :func:`atomic_folder`.
:func:`own_file` opens logs and files that are locked. :func:`require_no_link` refuses a link in place of a folder that
this package makes.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from ppocr_ext.errors import DataError
from ppocr_ext.io.resources import file_digest
from ppocr_ext.limits import open_descriptor, read_json_object

# Names of temporary files: `atomic_writer` uses the number of its process and a digest of its machine, checkpoints and
# folders eight hexadecimal digits. Earlier versions used the names of the module `tempfile`, or no digest.
_TEMPORARY = re.compile(r"\..+\.(?:(?P<process>\d+)(?:-(?P<machine>[0-9a-f]{8}))?|[a-z0-9_]{8})\.tmp")
# how a file begins that a command of this package writes and may replace: a page, a picture, a table of readings
_OWN = re.compile(
    rb'(<meta name="generator" content="|Software\0|<!-- )ppocr-ext|\Aimage\t(label\t)?prediction\t(?![^\n]*\tgroup)'
    rb'|\A{"image": [^\n]*, "confidence": '
)
_NO_FILE = (errno.ELOOP, errno.EINVAL, errno.ENXIO)  # a link; a device or a socket; a pipe that nobody reads


def own_file(path: str | Path, flags: int) -> int:
    """Open a file to write to it, as ``opener`` of ``open()``; no link is followed, and no pipe is waited for.

    Raises:
        DataError: the path is a link, a pipe, a device or a socket.
        OSError: it cannot be opened.
    """
    try:
        return open_descriptor(path, flags | os.O_NOFOLLOW)[0]
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise DataError(
            f"{path} is a link, a pipe or a device, and is not written to. Fix: remove it.", code="not_a_file"
        ) from error


def require_no_link(folder: Path) -> Path:
    """Return ``folder`` if it is not a link.

    Raises:
        DataError: it is a link, so that its files would be written elsewhere.
    """
    if folder.is_symlink():
        raise DataError(f"{folder} is a link, and is not written to. Fix: remove it.", code="not_a_folder")
    return folder


def scratch_folder() -> Path:
    """Return a new folder that is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="ppocr_ext_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def private_folder(folder: Path) -> Path:
    """Return ``folder`` after making it, if needed, so that no other user may enter it.

    Raises:
        DataError: it belongs to another user, or is open to others.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise DataError(
            f"{folder} must be a folder that is yours and closed to others. Fix: remove it, or set TMPDIR.",
            code="unwritable_folder",
        )
    return folder


@contextmanager
def atomic_writer(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a stream whose content gets the name ``path`` when the block ends without an exception.

    The temporary file is in the same folder, which is created if needed; after an exception it is
    removed and ``path`` is unchanged.

    Args:
        path: the file to write or replace.
        sync: wait until the content is on the disk before renaming. Pass False for many files that are easy to write
            again.

    Raises:
        OSError: the folder cannot be created or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        temporary.unlink(missing_ok=True)  # left by a killed process with this number
        with temporary.open("xb") as stream:  # "x" follows no link
            yield stream
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # messages name the file that the caller asked for
        raise


def _temporary(path: Path) -> Path:
    """Return the path of this process's temporary file for ``path``."""
    return path.with_name(f".{path.name}.{os.getpid()}-{machine_digest()}.tmp")


def is_temporary(name: str) -> bool:
    """Return True if a writer of this package gives the name to a file that is not complete."""
    return _TEMPORARY.fullmatch(name) is not None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically, with ``\\n`` line ends as they are."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a file, atomically; ``sync`` is that of :func:`atomic_writer`."""
    with atomic_writer(path, sync=sync) as stream:
        stream.write(content)


def remove_temporary_files(folder: Path, *, shared: bool = False) -> None:
    """Remove the temporary files of killed writers of this package from ``folder``.

    Files of a process that is running stay, and so do files with other names.

    Args:
        folder: the folder.
        shared: True if other machines may be writing there. Their files stay too.
    """
    for file in folder.glob(".*.tmp"):
        match = _TEMPORARY.fullmatch(file.name)
        if match is None or file.is_symlink() or not file.is_file():
            continue
        if match["machine"] not in (None, machine_digest()):
            is_alive = shared
        else:
            is_alive = match["process"] is not None and is_running(int(match["process"]))
        if not is_alive:
            file.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def machine_name() -> str:
    """Return a name for this machine, or for the container in it. Processes with the same name see each other."""
    with suppress(OSError):
        # Many machines are called localhost.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def machine_digest() -> str:
    """Return eight hexadecimal digits for :func:`machine_name`."""
    return hashlib.sha256(machine_name().encode()).hexdigest()[:8]


def is_running(pid: int) -> bool:
    """Return True if a process of this machine has the number ``pid``."""
    try:
        os.kill(pid, 0)
        # a killed child keeps its number, with the state Z, until its parent has read its exit code
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # no /proc on this system, or a process of another user
        return True


def digests(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return ``sha256`` and ``bytes`` of files, and of those in folders, by their paths from ``folder``."""
    found = (file for name in names for file in (folder / name, *sorted((folder / name).rglob("*"))))
    return {
        file.relative_to(folder).as_posix(): {"sha256": file_digest(file), "bytes": file.stat().st_size}
        for file in found
        if file.is_file()
    }


def require_own(folder: Path, names: Iterable[str], record: str) -> None:
    """Refuse to replace files that this package has not written, or that were changed since.

    Args:
        folder: the folder that is written to.
        names: the files and folders that are replaced there.
        record: the JSON file there whose ``files`` are what :func:`digests` returned of what was written.

    Raises:
        DataError: there is another file.
    """
    try:
        own = dict(read_json_object(folder / record)["files"])
    except (OSError, ValueError, KeyError, TypeError):
        own = {}
    for name, content in digests(folder, names).items():
        if own.get(name) != content and (name != record or not own):
            raise DataError(
                f"{folder / name} would be replaced, and is not as it was written here: it is yours, was changed, or "
                "its command was stopped. "
                "Fix: give another folder, or move it away.",
                code="file_exists",
            )


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before a long job starts.

    Raises:
        DataError: it is a folder or a file that this package did not write, or its folder cannot be written to.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder. Fix: give the name of a file.", code="not_a_file")
    if path.is_file():
        with path.open("rb") as stream:
            if not _OWN.search(stream.read(4096)):
                raise DataError(
                    f"{path} is there already. Fix: give another name, or move it away.", code="file_exists"
                )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(path)  # others who look into the folder know such a name
        temporary.unlink(missing_ok=True)
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.", code="unwritable_file") from error


@contextmanager
def atomic_folder(path: Path, owned: Sequence[str], *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder whose files are those of ``path`` once the block ends without an exception.

    A new folder appears as a whole. In an existing folder, the files in ``owned`` are replaced or removed, and other
    files stay. The last file of ``owned`` is removed first and written last: if it exists, all files are complete.

    Args:
        path: the folder; its parents are created.
        owned: names of all files that the block may write.
        force: accept a folder that is not empty.

    Raises:
        DataError: ``path`` is a file, is not empty, or cannot be written to.
    """
    if path.exists() and not path.is_dir():
        raise DataError(f"{path} is a file. Fix: give the name of a folder.", code="not_a_folder")
    names = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if names and not force:
        raise DataError(
            f"{path} is not empty (found {', '.join(names[:3])}{', …' if len(names) > 3 else ''}). Fix: give another "
            f"--output, or --force to replace what an export has written there.",
            code="folder_not_empty",
        )
    try:
        place = path if path.is_dir() else path.parent
        place.mkdir(parents=True, exist_ok=True)
        temporary = place / f".{path.name}.{secrets.token_hex(4)}.tmp"
        temporary.mkdir()
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror}. Fix: give a folder that you may write to.",
            code="unwritable_folder",
        ) from error
    try:
        yield temporary
        _publish(temporary, path, owned)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, path: Path, owned: Sequence[str]) -> None:
    if not path.exists():
        temporary.rename(path)
        return
    for name in reversed(owned):
        (path / name).unlink(missing_ok=True)
    for name in owned:
        if (temporary / name).exists():
            (temporary / name).replace(path / name)
