"""Send log lines to the terminal, and all of them to ``train.log``."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import own_file
from ppocr_ext.messages import LOG, for_people

_FORMAT = "[%(asctime)s] %(name)s %(levelname)s: %(message)s"
_DATES = "%Y/%m/%d %H:%M:%S"


class _PrintableFormatter(logging.Formatter):
    """Format lines so that they are safe to show on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return for_people(super().format(record))


class _LogFile(logging.FileHandler):
    """Write to a regular file, never through a link."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=own_file)


class ConsoleHandler(logging.Handler):
    """Write to standard output or standard error without breaking a progress bar; warnings are marked."""

    def __init__(self, to_stderr: bool = False) -> None:
        super().__init__()
        self.to_stderr = to_stderr
        self.on_closed: Callable[[], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless it is only for the log file."""
        if getattr(record, "file_only", False):
            return
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        stream = sys.stderr if self.to_stderr else sys.stdout
        try:
            tqdm.write(for_people(f"{mark}{record.getMessage()}"), file=stream)
            stream.flush()
        except OSError as error:
            if self.on_closed is None or error.errno not in (errno.EPIPE, errno.EIO):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if error.errno == errno.EPIPE:  # after EIO (terminal closed), SIGHUP decides whether the run ends
                self.on_closed()


def set_up_console(to_stderr: bool = False) -> None:
    """Show our log lines on the terminal; further calls only choose the stream.

    Args:
        to_stderr: write to standard error, for a command whose result goes to standard output.
    """
    LOG.setLevel(logging.DEBUG)
    LOG.propagate = False
    handlers = [handler for handler in LOG.handlers if isinstance(handler, ConsoleHandler)]
    for handler in handlers:  # another command in this process has already added the handler
        handler.to_stderr = to_stderr
    if not handlers:
        handler = ConsoleHandler(to_stderr)
        handler.setLevel(logging.INFO)
        LOG.addHandler(handler)


@contextmanager
def console_may_close(on_closed: Callable[[], None]) -> Iterator[None]:
    """Inside this context, call ``on_closed`` if the reader of our output (``| head``) ends, and raise no error."""
    handlers = [each for each in LOG.handlers if isinstance(each, ConsoleHandler)]
    try:
        for handler in handlers:
            handler.on_closed = on_closed
        yield
    finally:
        for handler in handlers:
            handler.on_closed = None


def quiet_host(host_logger: logging.Logger) -> None:
    """Show only warnings of the host on the terminal; ``train.log`` has all of its lines."""
    for handler in host_logger.handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.WARNING)
            handler.setFormatter(_PrintableFormatter(_FORMAT, _DATES))


def set_up_logs(host_path: str | None, to_stderr: bool = False) -> None:
    """Set up the console, and quiet the host at ``host_path``; None searches for one."""
    set_up_console(to_stderr)
    quiet_host(open_host(host_path).logger)


@contextmanager
def log_file(path: Path, *loggers: logging.Logger) -> Iterator[None]:
    """Append the lines of ``loggers`` to ``path`` inside this context."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _LogFile(path, "a", encoding="utf-8")
    handler.setFormatter(_PrintableFormatter(_FORMAT, _DATES))
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()
