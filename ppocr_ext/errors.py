"""Errors that a command prints as a message: where, what is wrong, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class PPOCRExtError(Exception):
    """Base of all errors that a user can fix.

    A command prints the message without a traceback and ends with ``exit_code``.

    Args:
        message: what is wrong, where, and how to fix it.
        code: stable name of this kind of error, such as ``"missing_file"``; it is printed behind the message.
        key: the config key that it is about, below the part that raises it; empty for the part itself.
    """

    exit_code = 2
    code = "error"

    def __init__(self, message: str = "", *, code: str | None = None, key: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.key = key
        if code is not None:
            self.code = code


@contextmanager
def error_below(*key: str) -> Iterator[None]:
    """Put ``key`` before the key of an error of this package that leaves this context."""
    try:
        yield
    except PPOCRExtError as error:
        error.key = (*key, *error.key)
        raise


def with_code(text: str, code: str) -> str:
    """Return ``text`` with the code behind its first line; unchanged if the error has no code."""
    first, newline, rest = text.partition("\n")
    return text if code == PPOCRExtError.code else f"{first} [{code}]{newline}{rest}"


def interruption_behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return Ctrl-C if it caused ``error``: a package that is being imported turns it into an ImportError."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__cause__ or cause.__context__
    return cause


class ConfigError(PPOCRExtError):
    """A configuration file, overlay or ``-o`` option cannot be used."""


class CharsetError(PPOCRExtError):
    """A dictionary file cannot be used, or does not fit a model or a label."""


class HostError(PPOCRExtError):
    """PaddleOCR cannot be found, completed or imported."""


class UnknownComponentError(ConfigError):
    """A config names a backbone, head, loss, … that does not exist."""


class ModelError(PPOCRExtError):
    """A network cannot be built or run with its configuration."""


class SubModelsError(PPOCRExtError):
    """Several sub-models cannot be built.

    Args:
        errors: one for each sub-model.
    """

    def __init__(self, errors: Sequence[PPOCRExtError]) -> None:
        super().__init__("\n".join(map(str, errors)), code="several_errors")
        self.errors = errors


class DataError(PPOCRExtError):
    """Label files or images cannot be used.

    Attributes:
        record: a file with details, which the message names; None if there is none.
    """

    record: Path | None = None


class WeightsError(PPOCRExtError):
    """A checkpoint is missing, damaged, or does not fit the model."""


class ProcessError(PPOCRExtError):
    """Another process of the run has failed, so this one ends too."""


class MissingPackageError(PPOCRExtError):
    """An optional package is needed; the message gives the command that installs it."""
