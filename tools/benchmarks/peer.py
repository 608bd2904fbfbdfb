"""A PaddleOCR checkout to compare with; it is not the host of this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ppocr_ext.errors import HostError

_UNUSED = ("imgaug", "imgaug.augmenters")  # ppocr.data imports them for the augmentation of detection


def require_peer(root: Path) -> None:
    """Raise HostError if the folder has no ``ppocr/modeling``."""
    if not (root / "ppocr" / "modeling").is_dir():
        raise HostError(
            f"--peer {root}: it has no ppocr/modeling. Fix: give the folder of a PaddleOCR checkout.",
            code="not_a_checkout",
        )


def imported(root: Path, *names: str) -> list[Any]:
    """Import modules of the checkout ``root`` instead of the host's; names without ``tools`` are below ``ppocr``.

    Raises:
        HostError: it is not a checkout, or cannot be imported. ``tools`` of a wheel, which has no models, can be.
    """
    if not all(name.startswith("tools") for name in names):
        require_peer(root)
    try:
        importlib.import_module(_UNUSED[0])
    except (ImportError, AttributeError):  # numpy 2 breaks it
        for name in _UNUSED:
            sys.modules[name] = ModuleType(name)
        sys.modules[_UNUSED[0]].augmenters = sys.modules[_UNUSED[1]]  # type: ignore[attr-defined]
    for name in [each for each in sys.modules if each.partition(".")[0] in ("ppocr", "tools")]:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    try:
        return [
            importlib.import_module(name if name.startswith("tools") else f"ppocr.{name}") for name in names
        ]
    except ImportError as error:
        raise HostError(f"--peer {root} cannot be imported: {error}.", code="missing_package") from error
    finally:
        sys.path.remove(str(root))


def take_weights(network: Any, state: Mapping[str, Any]) -> None:
    """Give a checkout's network our weights; raise HostError if it has other parameters."""
    if any(network.set_state_dict(state)):
        raise HostError(
            "The network of this checkout has other parameters, so it cannot be compared. Fix: use a checkout of "
            "PaddleOCR 2.8 or later.",
            code="weights_mismatch",
        )
