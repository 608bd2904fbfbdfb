"""What the host's data pipeline and decoders are made of, by the names that a config uses."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ppocr_ext.host.complete import HostModules

Part = Callable[..., Any]
PART_KINDS = ("operator", "sampler", "decoder", "collate_fn")


def parts(modules: HostModules, kind: str) -> dict[str, Part]:
    """Return the host's components of ``kind``: transform operators, batch samplers, decoders or collate functions."""
    if kind == "sampler":
        return _samplers(modules.data)
    if kind == "operator":
        return _callables(importlib.import_module(f"{modules.data.__name__}.imaug"))
    if kind == "collate_fn":
        return _callables(importlib.import_module(f"{modules.data.__name__}.collate_fn"))
    if kind == "decoder":
        return _callables(modules.postprocess)
    raise ValueError(f"no such kind of part: {kind!r}")


def _samplers(data: ModuleType) -> dict[str, Part]:
    from paddle.io import BatchSampler, Sampler

    return {
        name: member
        for name, member in vars(data).items()
        if isinstance(member, type) and issubclass(member, (Sampler, BatchSampler)) and member is not Sampler
    }


def _callables(module: ModuleType) -> dict[str, Part]:
    """Return the classes of the module whose objects can be called; the host's factories require no more."""
    return {
        name: member
        for name, member in vars(module).items()
        if isinstance(member, type) and any("__call__" in vars(base) for base in member.__mro__)
    }
