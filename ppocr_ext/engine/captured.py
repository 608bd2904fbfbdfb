"""Call C++ code of Paddle and its converter, whose messages go to the terminal only if it fails."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TypeVar

from ppocr_ext.errors import ModelError
from ppocr_ext.messages import error_text

T = TypeVar("T")
_SHOWN = 3  # lines of what was printed


def captured(call: Callable[[], T], failure: str, code: str) -> T:
    """Return what ``call`` returns; what it prints is not shown.

    Args:
        call: takes no arguments.
        failure: begin of the message if it raises an exception, such as ``"The network cannot be compiled"``.
        code: of that error.

    Raises:
        ModelError: ``call`` raised an exception; the message has the last lines that it printed.
    """
    with tempfile.TemporaryFile() as printed:
        try:
            with _printing_to(printed):
                return call()
        except Exception as error:  # whatever Paddle raises
            printed.seek(0)
            lines = printed.read().decode("utf-8", "replace").split("\n")
            said = "\n  ".join([line for line in lines if line.strip()][-_SHOWN:])
            raise ModelError(
                f"{failure}: {error_text(error)}{f' It printed:{chr(10)}  {said}' if said else ''}", code=code
            ) from error


@contextmanager
def _printing_to(file: IO[bytes]) -> Iterator[None]:
    """Inside this context, what is written to the descriptors 1 and 2 goes to ``file``: C++ knows no Python stream."""
    _flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(file.fileno(), number)
        yield
    finally:
        _flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
