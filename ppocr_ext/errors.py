"""Errors that a tool prints as a sentence: what is wrong, where, and what to do."""

from __future__ import annotations

from pathlib import Path


class PPOCRExtError(Exception):
    """Base of all errors that a user can act on.

    A tool prints the message without a traceback and leaves with ``exit_code``.
    """

    exit_code = 2


class ConfigError(PPOCRExtError):
    """A configuration file, overlay or ``-o`` option cannot be used."""


class CharsetError(PPOCRExtError):
    """A dictionary file cannot be used, or does not fit what it is used with."""


class HostError(PPOCRExtError):
    """PaddleOCR cannot be found, completed or imported."""


class UnknownComponentError(ConfigError):
    """A config names a backbone, head, loss, … that nobody provides."""


class ModelError(PPOCRExtError):
    """A network cannot be built or run as its configuration asks.

    Attributes:
        sub_model: the entry of ``Architecture.Models`` that cannot be built, if it is one of them.
    """

    sub_model: str | None = None


class DataError(PPOCRExtError):
    """Label files or images cannot be used.

    Attributes:
        record: a file that was written about them and that the message names; None if there is none.
    """

    record: Path | None = None


class WeightsError(PPOCRExtError):
    """A checkpoint is missing, damaged, or does not fit the model."""


class ProcessError(PPOCRExtError):
    """Another process of a run on several processes has failed, so that this one cannot go on."""


class MissingPackageError(PPOCRExtError):
    """An optional package is needed; the message gives the command that installs it."""
