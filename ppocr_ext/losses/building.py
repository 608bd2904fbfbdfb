"""Build losses from their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppocr_ext.errors import ConfigError
from ppocr_ext.registry import LOSSES


def plain(config: Any) -> Any:
    """A copy as plain dicts and lists: a foreign component may pop from what it gets."""
    if isinstance(config, Mapping):
        return {key: plain(value) for key, value in config.items()}
    if isinstance(config, (list, tuple)):
        return [plain(value) for value in config]
    return config


def build_loss(config: Mapping[str, Any]) -> Any:
    """The loss that the ``Loss`` section of a config names; ``config`` is not changed.

    Raises:
        ConfigError: no name, an unknown name or key, or options that cannot be used.
    """
    options = plain(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"Loss: `name` is missing. One of: {', '.join(LOSSES.names())}.")
    return LOSSES.build(name, options)


def listed_losses(entries: Any, owner: str) -> list[tuple[str, dict[str, Any]]]:
    """``loss_config_list`` of a config as (name, options): a list of mappings of one key each.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
        raise ConfigError(f"{owner}: loss_config_list must be a list of losses, but is {entries!r}.")
    listed = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise ConfigError(
                f"{owner}: loss_config_list[{position}] must be one loss and its options, "
                f"such as `- CTCLoss: {{weight: 1.0}}`, but is {entry!r}."
            )
        [(name, options)] = entry.items()
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"{owner}: the options of {name} must be a mapping, but are {options!r}.")
        listed.append((str(name), plain(options or {})))
    return listed
