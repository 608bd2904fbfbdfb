"""A PaddleOCR checkout to compare with, which is not the host of this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from ppocr_ext.errors import HostError

_UNUSED = ("imgaug", "imgaug.augmenters")  # imported by ppocr.data, used by augmentation of detection alone


def require_peer(root: Path) -> None:
    """Refuse a folder that is no checkout.

    Raises:
        HostError: it has no ``ppocr/modeling``.
    """
    if not (root / "ppocr" / "modeling").is_dir():
        raise HostError(
            f"--peer {root}: it has no ppocr/modeling. Fix: give the folder of a PaddleOCR checkout.",
            code="not_a_checkout",
        )


@contextmanager
def peer_first(root: Path) -> Iterator[None]:
    """Imports of ``ppocr`` and ``tools`` are of the checkout ``root`` for as long as the context lasts.

    Raises:
        HostError: it is no checkout.
    """
    require_peer(root)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("ppocr", "tools")]:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))


def stand_in_for_unused() -> None:
    """Let ``ppocr.data`` of PaddleOCR 2.8 be imported where imgaug cannot be (numpy 2)."""
    try:
        importlib.import_module(_UNUSED[0])
    except (ImportError, AttributeError):
        for name in _UNUSED:
            sys.modules[name] = ModuleType(name)
        sys.modules[_UNUSED[0]].augmenters = sys.modules[_UNUSED[1]]  # type: ignore[attr-defined]
