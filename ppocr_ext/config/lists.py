"""Items of the lists of single-key mappings that configs are made of: ``- NAME: {options}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ppocr_ext.config.config import Config
from ppocr_ext.errors import ConfigError


def named_items(config: Config, *path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield name and path of each item of the list at ``path``; items of another form are passed over.

    The path goes by name, as one would write it after ``-o``; by index if a name occurs twice.
    """
    try:
        entries = config.at(path, None)
    except ConfigError:  # a key occurs twice in a list on the way
        return
    if not isinstance(entries, tuple):
        return
    names = [str(next(iter(e))) if isinstance(e, Mapping) and len(e) == 1 else None for e in entries]
    for index, name in enumerate(names):
        if name is not None:
            yield name, (*path, name) if names.count(name) == 1 else (*path, str(index), name)
