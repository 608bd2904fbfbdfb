"""Weights that a config names, other than by the path of a ``.pdparams``: official names and released models.

A name is looked for in this order: a file or folder of that name, our cache folder, the cache of the client of
PaddleOCR 3, installed packages, and then the download.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.official_weights import (
    OfficialWeights,
    digest_line,
    digest_of,
    fetch,
    is_official,
    table,
)
from ppocr_ext.inference.released import ReleasedModel, find_released, releases_of


@dataclass(frozen=True)
class OfficialSource:
    """Official weights, in the cache folder or to be downloaded.

    Attributes:
        entry: the row of the table.
    """

    entry: OfficialWeights

    @property
    def is_here(self) -> bool:
        """True if they need not be downloaded."""
        return self.entry.is_here

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return str(self.entry.file) if self.is_here else self.entry.address

    @cached_property
    def file(self) -> Path:
        """The ``.pdparams``, downloaded if needed.

        Raises:
            WeightsError: it cannot be downloaded.
        """
        return fetch(self.entry)

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return digest_of(self.entry)

    @property
    def line(self) -> str:
        """A line with the digest of weights that are here, and where it is from."""
        return digest_line(self.entry)

    @property
    def record(self) -> dict[str, str]:
        """What a run stores about them."""
        return {"sha256": self.digest, "address": self.entry.address, "source": self.entry.source}

    @property
    def about(self) -> str:
        """Network and dictionary, for a message."""
        entry = self.entry
        return f"{entry.name} is of {entry.config}: {entry.classes} CTC classes, dictionary: {entry.its_dictionary}"


@dataclass(frozen=True)
class ReleasedSource:
    """A released inference model, which is converted into weights.

    Attributes:
        value: what the config says: a name or a path.
        model: its files.
    """

    value: str
    model: ReleasedModel
    is_here = True

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"released inference model, {self.model.source}"

    @cached_property
    def file(self) -> Path:
        """The ``.pdparams`` in the cache folder, converted if needed.

        Raises:
            WeightsError: the model cannot be converted.
        """
        from ppocr_ext.checkpoint.conversion import converted  # imports Paddle

        return converted(self.model).file

    @property
    def digest(self) -> str:
        """SHA-256 of the files of the model."""
        return self.model.digest

    @property
    def line(self) -> str:
        """A line with the digest."""
        return f"{self.place}: sha256 {self.digest}"

    @property
    def record(self) -> dict[str, str]:
        """What a run stores about it."""
        return {"sha256": self.digest, "source": self.model.source}

    @property
    def about(self) -> str:
        """What it has, for a message."""
        get = f"; `ppocr-ext weights get {self.value}` downloads all weights" if self.value in table() else ""
        return f"{self.value} ({self.place}) has CTC alone, no branch that guides a training (NRTR, SAR){get}"

    def charset(self) -> Charset:
        """Return its dictionary.

        Raises:
            CharsetError: its files state none, or one with another number of classes.
        """
        from ppocr_ext.checkpoint.conversion import converted  # imports Paddle

        return self.model.charset(converted(self.model).classes)


def find_source(value: str) -> OfficialSource | ReleasedSource | None:
    """Return where the weights called ``value`` are; None if it is the path of a ``.pdparams``, or of nothing.

    Args:
        value: a name of `ppocr-ext weights list`, or the path of a released model.

    Raises:
        PPOCRExtError: a released model has this path, but its files cannot be used.
    """
    prefix = value.removesuffix(".pdparams")
    if not value or Path(f"{prefix}.pdparams").is_file():
        return None
    model = find_released(value)
    if model is None and is_official(value):
        model = None if table()[value].is_here else next(releases_of(value), None)
        if model is None:
            return OfficialSource(table()[value])
    return None if model is None else ReleasedSource(value, model)


def about(value: str) -> str:
    """Return a line for a message about the weights called ``value``; empty for a ``.pdparams``."""
    source = find_source(value)
    return "" if source is None else f"\n  {source.about}"
