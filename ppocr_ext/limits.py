"""Limits for files, which are checked before a file takes memory or time; docs/data.md lists them."""

from __future__ import annotations

import errno
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

MAX_IMAGE_PIXELS = 50_000_000  # default of Global.max_image_pixels
MAX_CONFIG_BYTES = 1 << 20  # a config takes about 500 times its size in memory
MAX_CONFIG_FILES = (
    100  # files of a config with its bases; with two bases in each file they double at each level
)
MAX_CONFIG_VALUES = 100_000  # after aliases are expanded
MAX_DICTIONARY_BYTES = 16 << 20
MAX_DICTIONARY_LINES = 200_000  # Unicode 16 has 154,998 characters
MAX_LABEL_LINE_BYTES = 1 << 16  # thousands of lines are in memory at a time
MAX_TEXT_BYTES = 256 << 20  # metrics.jsonl or a file of predictions: a million lines and more
MAX_RECORD_BYTES = 16 << 20  # a JSON file: it takes up to 24 times its size in memory
MAX_INPUT_WIDTH = 3200  # pixels of an image at the height of the network, as in the client of PaddleOCR 3.x
MAX_IMAGE_SCANS = 100  # scans of a JPEG; cameras write 10
_LEAST_READ = 1 << 16  # bytes, since a file of the system may not state its size
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_descriptor(path: str | Path, flags: int = os.O_RDONLY) -> tuple[int, int]:
    """Open a regular file; return its descriptor, which the caller closes, and its size.

    A pipe is refused without waiting for its other end. A file that ``flags`` create has the mode of the umask.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a device or a socket.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode):
        return handle, status.st_size
    os.close(handle)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((name for matches, name in _KINDS if matches(status.st_mode)), "no regular file")
    raise OSError(errno.EINVAL, f"it is {kind}, and only regular files are read", str(path))


def open_regular(path: str | Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: as :func:`open_descriptor`.
    """
    return os.fdopen(open_descriptor(path)[0], "rb")


def read_at_most(path: str | Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Raises:
        OSError: it is larger, or as :func:`open_descriptor`.
    """
    handle, size = open_descriptor(path)
    with os.fdopen(handle, "rb") as stream:
        if size <= most:  # not `most` at once: so much memory would be taken, and given back
            return stream.read(min(most, max(size + 1, _LEAST_READ)))
    raise OSError(errno.EFBIG, f"it is larger than the limit of {most:,} bytes", str(path))


def read_text(path: str | Path) -> str:
    """Return the text of a regular file in UTF-8 of at most ``MAX_TEXT_BYTES``, with its line ends as they are.

    Raises:
        OSError: as :func:`read_at_most`.
        ValueError: it is not UTF-8.
    """
    return read_at_most(path, MAX_TEXT_BYTES).decode("utf-8-sig")


def read_json_object(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a regular file of at most ``MAX_RECORD_BYTES``.

    Raises:
        OSError: as :func:`read_at_most`.
        ValueError: it holds anything else.
    """
    return json_object(read_at_most(path, MAX_RECORD_BYTES))


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return the object that a JSON text holds.

    Raises:
        ValueError: it holds none, or is nested too deeply.
    """
    with suppress(RecursionError):
        if isinstance(content := json.loads(text), dict):
            return content
    raise ValueError("it is not a JSON object, or is nested too deeply")


def most_memory(size: int) -> int:
    """Return the bytes that the content of a pickle or an ``.npz`` of ``size`` bytes may take in memory.

    paddle.save and NumPy write arrays byte by byte, so files of theirs stay far below this limit.
    """
    return 4 * size + (256 << 20)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit() -> int:
    """Return the bytes of memory that processes here may use: those of the machine, or of its container if fewer."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of cgroups 2 and 1; "max" means none
        with suppress(OSError, ValueError):
            limits.append(int(read_at_most(Path("/sys/fs/cgroup", name), 1 << 16)))
    return min(limits)
