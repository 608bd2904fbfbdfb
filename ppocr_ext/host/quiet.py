"""Keep the noise of importing PaddleOCR and Paddle off the console; real problems still show."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Said at each import or start, about things that a user of this package cannot need: Paddle's compiler cache for
# custom operators, AI Studio's encryption of models, and that a parameter's own weight decay replaces the optimizer's.
_NO_CCACHE = "No ccache found"
_LINES = ("Skipping import of the encryption module", "If regularizer of a Parameter has been set by")


def _worth_saying(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_LINES)


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Import Paddle and the host inside this context."""
    # albumentations asks the network for its newest version at import.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    host_logger = logging.getLogger("ppocr")
    host_logger.addFilter(_worth_saying)
    logging.getLogger().addFilter(_worth_saying)  # Paddle's optimizers log there, after the import
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NO_CCACHE)
            yield
    finally:
        host_logger.removeFilter(_worth_saying)


def import_paddle() -> None:
    """Import Paddle; a SIGTERM that arrives meanwhile takes effect afterwards, without a C++ traceback."""
    held = [signal.SIGTERM] if hasattr(signal, "pthread_sigmask") else []  # not on Windows
    if held:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        with quiet_imports():
            import paddle  # noqa: F401
        quiet_signals()
    finally:
        if held:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def quiet_signals() -> None:
    """Take signals back from Paddle, which prints a C++ traceback where a process is told to end.

    For use once the host, and Paddle with it, is imported. Handlers of Python are as they were before.
    """
    paddle = sys.modules.get("paddle")
    if paddle is None:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    paddle.disable_signal_handler()
    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if handler is not None:  # None: it is no handler of Python's
            signal.signal(number, handler)
