"""Record which official weights a run loaded, so that a later run from its config loads the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.official_weights import digest_of, fetch, is_official, table
from ppocr_ext.config import Config, load
from ppocr_ext.config.global_keys import shown
from ppocr_ext.errors import ConfigError, WeightsError

_KEY = "Global.official_weights"

Records = Mapping[str, Mapping[str, Any]]


def require_recorded(config: Config, path: str | Path) -> None:
    """Compare the official weights called ``path`` with the digest that the config has of them, if any.

    Raises:
        ConfigError: the record has another form.
        WeightsError: the digest is another one, or the weights cannot be downloaded.
    """
    name = str(path)
    record = _records(config).get(name)
    if record is None or not is_official(name):
        return
    file = fetch(table()[name])
    found = digest_of(table()[name])
    if found != record["sha256"]:
        raise WeightsError(
            f"{file}: the digest is {found}, but the run of this config loaded {name} with {record['sha256']} "
            f"({config.where(_KEY)}). Fix: put the file with that digest there, or take {_KEY} out of the config.",
            code="digest_mismatch",
        )


def official_records(config: Config, loaded: Iterable[str], checkpoint: Path | None) -> Records:
    """Return digest, address and source of the official weights that a run uses, by name.

    A resumed run keeps the records of its first start, whose weights it need not load again.

    Args:
        config: of the run.
        loaded: names and paths that weights were loaded from.
        checkpoint: prefix of the checkpoint that the run is resumed from, if any.
    """
    records = {
        name: {
            "sha256": digest_of(table()[name]),
            "address": table()[name].address,
            "source": table()[name].source,
        }
        for name in loaded
        if is_official(name)
    }
    before = dict(_records(config))
    if checkpoint is not None and (file := checkpoint.parent / "config.yml").is_file():
        with suppress(ConfigError):  # a file of somebody else's: it has no record
            before |= _records(load([file]))
    kept = {name: dict(before[name]) for name in before.keys() & _named(config)}
    return dict(sorted({**kept, **records}.items()))


def _records(config: Config) -> Records:
    """Return what the config records.

    Raises:
        ConfigError: it is not a mapping of names to digests.
    """
    given = config.at(_KEY, default=None) or {}
    if not isinstance(given, Mapping) or not all(
        isinstance(each, Mapping) and isinstance(each.get("sha256"), str) for each in given.values()
    ):
        raise ConfigError(
            f"{config.where(_KEY)}: {_KEY}: found {shown(given)}, expected `sha256` by name, as a run writes it. Fix: "
            f"remove the key.",
            code="bad_value",
        )
    return given


def _named(config: Config) -> set[str]:
    """Return the values of the config that name weights."""
    models = config.at("Architecture.Models", default=None) or {}
    paths = ["Global.pretrained_model", *(f"Architecture.Models.{name}.pretrained" for name in models)]
    return {str(value) for value in (config.at(path, default=None) for path in paths) if value}
