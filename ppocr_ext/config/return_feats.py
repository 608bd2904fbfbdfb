"""``Global.return_feats`` stands for ``return_feats: true`` in the CTC head of each model of a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ppocr_ext.config.computed import with_computed
from ppocr_ext.config.config import Config

KEY = "return_feats"


def switch_features_on(config: Config) -> Config:
    """``config`` with ``return_feats: true`` in each CTC head, where ``Global.return_feats`` asks for it.

    So one overlay fits a single CTCHead, a MultiHead and a distillation, whose heads stand in different places.
    Other configs are returned as they are.
    """
    if config.at(f"Global.{KEY}", default=None) is not True:
        return config
    lacking = {(*path, KEY): True for path in ctc_heads(config) if config.at((*path, KEY), None) is not True}
    return with_computed(config, lacking, f"Global.{KEY}")


def ctc_heads(config: Config) -> Iterator[tuple[str, ...]]:
    """Paths of the options of every CTC head in ``Architecture``."""
    models = _at(config, "Architecture", "Models")
    within = [("Models", str(name)) for name in models] if isinstance(models, Mapping) else [()]
    for path in (("Architecture", *names, "Head") for names in within):
        head = _at(config, *path)
        if not isinstance(head, Mapping):
            continue
        if head.get("name") == "CTCHead":
            yield path
        entries = head.get("head_list")
        for index, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            if isinstance(entry, Mapping) and "CTCHead" in entry:
                yield (*path, "head_list", str(index), "CTCHead", "Head")


def _at(config: Config, *path: str) -> Any:
    return config.at(path, default=None)
