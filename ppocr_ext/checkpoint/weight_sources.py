"""Weights that a config names, other than by the path of a ``.pdparams``: official names, addresses, released models.

A name is looked for in this order: a file or folder of that name, our cache folder, the cache of the client of
PaddleOCR 3, installed packages, and then the download.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.official_weights import OfficialWeights, linked, table
from ppocr_ext.inference.released import ReleasedModel, find_released

if TYPE_CHECKING:
    from ppocr_ext.checkpoint.conversion import Conversion


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
    def conversion(self) -> Conversion:
        """Its weights in the cache folder, converted if needed.

        Raises:
            WeightsError: the model cannot be converted.
        """
        from ppocr_ext.checkpoint.conversion import conversion_of  # imports Paddle

        return conversion_of(self.model)

    def fetch(self) -> Path:
        """Return the ``.pdparams`` of the conversion."""
        return self.conversion.file

    @property
    def digest(self) -> str:
        """SHA-256 of the files of the model."""
        return self.model.digest

    @property
    def line(self) -> str:
        """A line with the digest, and whether the conversion was compared with the model."""
        doubt = (
            f"; its outputs were not compared with those of the network: `ppocr-ext weights convert {self.model.graph} "
            f"--out NAME.pdparams --trust-model` does it, but runs a program of somebody else"
        )
        return f"{self.place}: sha256 {self.digest}{doubt if self.conversion.difference is None else ''}"

    @property
    def record(self) -> dict[str, str]:
        """Digest and origin, which a run stores."""
        return {"sha256": self.digest, "source": self.model.source}

    @property
    def about(self) -> str:
        """Origin and heads, for a message."""
        get = f"; `ppocr-ext weights get {self.value}` downloads all weights" if self.value in table() else ""
        return f"{self.value} ({self.place}) has CTC alone, no branch that guides a training (NRTR, SAR){get}"

    def charset(self) -> Charset:
        """Return its dictionary.

        Raises:
            CharsetError: its files state none, or one with another number of classes.
        """
        return self.model.charset(self.conversion.classes)


def find_source(value: str) -> OfficialWeights | ReleasedSource | None:
    """Return where the weights called ``value`` are; None if it is the path of a ``.pdparams``, or of nothing.

    Args:
        value: a name of `ppocr-ext weights list`, the path of a released model, or the address of a `.pdparams`, or of
            a tar with `best_accuracy.pdparams`.

    Raises:
        PPOCRExtError: a released model has this path, but its files cannot be used.
    """
    prefix = value.removesuffix(".pdparams")
    if not value or Path(f"{prefix}.pdparams").is_file():
        return None
    if (address := linked(value)) is not None:
        return address
    # A folder without a .pdparams does not count: PaddleX unpacks inference models to folders of these names.
    is_own = Path(value).is_file() or any(Path(value).glob("*.pdparams"))
    official = None if is_own else table().get(value)
    model = find_released(value, by_name=official is not None and not official.is_here)
    return official if model is None else ReleasedSource(value, model)
