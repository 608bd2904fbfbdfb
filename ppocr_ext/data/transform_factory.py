"""Give a dataset of ours PaddleOCR's transforms without importing PaddleOCR.

The host sets its factory here when it is opened; a dataset asks for its transforms here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ppocr_ext.errors import HostError

Operator = Any  # a callable of one dict; some have attributes that a dataset reads
Factory = Callable[[list[dict[str, Any]], dict[str, Any]], list[Operator]]
# PaddleOCR builds a dataset from config, mode, logger and seed alone, so the factory cannot be an argument.
_factory: Factory | None = None


def set_transform_factory(factory: Factory | None) -> None:
    """Set what makes transforms from ``dataset.transforms`` and ``Global``; None removes it."""
    global _factory
    _factory = factory


def create_transforms(
    transforms: Sequence[Mapping[str, Any]], global_config: Mapping[str, Any]
) -> list[Operator]:
    """Return the transforms of a list; PaddleOCR's factory writes into what it is given, so it gets copies.

    Raises:
        HostError: no host has been opened.
    """
    if _factory is None:
        raise HostError(
            "Transforms are PaddleOCR's, and no host is open. Fix: call open_host() before datasets are built.",
            code="host_not_open",
        )
    return _factory(copy.deepcopy([dict(t) for t in transforms]), copy.deepcopy(dict(global_config)))


def apply_transforms(data: dict[str, Any], operators: Sequence[Operator]) -> Any:
    """Return what the transforms make of ``data`` in turn; None as soon as one of them refuses it."""
    result: Any = data
    for operator in operators:
        result = None if result is None else operator(result)
    return result
