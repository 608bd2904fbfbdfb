"""Limits on what a file may be and claim, checked before it costs memory or time. docs/limits.md lists them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_IMAGE_PIXELS = 50_000_000  # default of Global.max_image_pixels
MAX_CONFIG_BYTES = 1 << 20  # a config in memory takes some 500 times its size
MAX_CONFIG_FILES = 100  # of one config with its bases: two bases in each file double with each level
MAX_CONFIG_VALUES = 100_000  # after aliases are expanded
MAX_DICTIONARY_BYTES = 16 << 20
MAX_DICTIONARY_LINES = 200_000  # Unicode 16 has 154,998 characters
MAX_LABEL_LINE_BYTES = 1 << 16  # thousands of lines are in memory at a time
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
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size <= most:
            return stream.read(most)
    raise OSError(errno.EFBIG, f"it is larger than the limit of {most:,} bytes", str(path))


def most_memory(size: int) -> int:
    """Return the bytes that the content of a pickle or an ``.npz`` of ``size`` bytes may take in memory.

    paddle.save and NumPy write arrays byte by byte, so an honest file stays far below.
    """
    return 4 * size + (256 << 20)
