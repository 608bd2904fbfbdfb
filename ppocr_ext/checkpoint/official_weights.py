"""The table of official weights: which names there are, and what is known of each file.

official_weights.json has the entries; its `sources` say which file of which release states them.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ppocr_ext.errors import WeightsError
from ppocr_ext.io.file_names import cache_folder, file_digest
from ppocr_ext.limits import read_at_most
from ppocr_ext.messages import did_you_mean, near_match

_SAFETENSORS = (
    "_safetensors",
    "-safetensors",
)  # how repositories with weights in the other format are called


@dataclass(frozen=True)
class OfficialWeights:
    """One entry of the table.

    Attributes:
        name: as a config writes it, `PP-OCRv5_mobile_rec`.
        address: of the file, HTTPS.
        source: the file that states the address, with its version.
        kind: `"pdparams"`, or `"tar"`: then `member` is the one file that is read from it.
        config: the official config of the network.
        dictionary: its path in PaddleOCR; None: no published dictionary has that many classes.
        classes: CTC classes, the blank and the space included.
        config_dictionary: the dictionary of `config`, where the one of the weights is not known to be it.
        branches: heads that the file has weights of: `ctc`, `gtc`, `sar`.
        tried: False: the file was never opened by the authors of this table.
        member: path inside a tar.
        prefix: in front of the names of the recogniser, in a file that has several.
        sha256: published digest; None where none is published.
    """

    name: str
    address: str
    source: str
    kind: str
    config: str
    dictionary: str | None
    classes: int
    branches: tuple[str, ...]
    config_dictionary: str | None = None
    tried: bool = False
    member: str | None = None
    prefix: str = ""
    sha256: str | None = None

    @property
    def file(self) -> Path:
        """Return where the weights lie, or will lie, in the cache folder."""
        return cache_folder("weights") / f"{self.name}.pdparams"

    @property
    def its_dictionary(self) -> str:
        """Return which dictionary the weights have, for messages and lists."""
        return (
            self.dictionary
            or "not included. Take `PostProcess.character_dict` from the inference.yml of the released model "
            "(docs/networks.md)"
        )


@cache
def table() -> dict[str, OfficialWeights]:
    """Return all entries by name."""
    content = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {
        name: OfficialWeights(
            name,
            **{**entry, "source": content["sources"][entry["source"]], "branches": tuple(entry["branches"])},
        )
        for name, entry in content["weights"].items()
    }


def official(name: str) -> OfficialWeights:
    """Return the entry called `name`.

    Raises:
        WeightsError: there is none.
    """
    found = table().get(name)
    if found is None:
        hint = did_you_mean(near_match(name, table()))
        raise WeightsError(
            f"There are no official weights called {name!r}.{hint} Fix: give a name of `ppocr-ext weights list`.",
            code="unknown_weights",
        )
    return found


def is_official(value: str) -> bool:
    """Return whether ``value`` names official weights, and no checkpoint here has that name.

    A folder without a ``.pdparams`` is none: PaddleX unpacks inference models to folders with these names.
    """
    here = Path(value)
    return (
        value in table()
        and not here.is_file()
        and not Path(f"{value}.pdparams").exists()
        and not any(here.glob("*.pdparams"))
    )


def pin_file(weights: OfficialWeights) -> Path:
    """Return the file that keeps the digest of the first file that was called `weights`."""
    return weights.file.with_suffix(".sha256")


def known_digest(weights: OfficialWeights) -> str | None:
    """Return the published digest, or else the one that was kept; None if there is neither."""
    if weights.sha256 is None and pin_file(weights).exists():
        return read_at_most(pin_file(weights), 100).decode("ascii", "replace").strip()
    return weights.sha256


def digest_of(weights: OfficialWeights) -> str:
    """Return the SHA-256 of the file of `weights`, which a download has compared with it."""
    return known_digest(weights) or file_digest(weights.file)


def digest_line(weights: OfficialWeights) -> str:
    """Return a line with the digest of the file of `weights`, and who says that it is the right one."""
    kept = pin_file(weights) if pin_file(weights).exists() else weights.file
    since = datetime.date.fromtimestamp(kept.stat().st_mtime)
    unpublished = f"none is published; kept since {since}, when a file of this name was first used here"
    return f"{weights.name}: sha256 {digest_of(weights)} ({'published' if weights.sha256 else unpublished})"


def about(value: str | Path) -> str:
    """Return a line with network and dictionary of the official weights called ``value``; empty for other values."""
    if not is_official(str(value)):
        return ""
    entry = table()[str(value)]
    return f"\n  {entry.name} is of {entry.config}: {entry.classes} CTC classes, dictionary: {entry.its_dictionary}"


def similar_name(value: str) -> str | None:
    """Return the official name that ``value`` is a misspelling of, or its file's path; None if it is near none."""
    name = Path(value).name.removesuffix(".pdparams").removesuffix("_pretrained")
    return near_match(name, table(), cutoff=0.85)


def other_format(path: str | Path) -> str | None:
    """Return why ``path`` cannot be loaded if it is in the safetensors format, or a folder of such files; else None.

    The message names the `.pdparams` to use instead.
    """
    place = Path(path)
    if place.is_dir() and (any(place.glob("*.pdparams")) or not any(place.glob("*.safetensors"))):
        return None
    if not place.is_dir() and place.suffix != ".safetensors" and not Path(f"{path}.safetensors").is_file():
        return None
    words = (place if place.is_dir() else place.parent).name, place.name.removesuffix(".safetensors")
    names = (word.removesuffix(end) for word in words for end in ("", *_SAFETENSORS))
    name = next((name for name in names if name in table()), None)
    remedy = (
        f"give {name}, whose .pdparams is downloaded"
        if name
        else "give the .pdparams of the same model; `ppocr-ext weights list` shows those that have a name"
    )
    return f"{path}: weights in the safetensors format cannot be loaded. Fix: {remedy}."
