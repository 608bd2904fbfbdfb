"""Distil and fine-tune PaddleOCR text recognisers from a plain ``pip install``."""

# Before Paddle, wherever that is imported: Paddle 2.6 brings an old zlib under the same symbols. A Python whose
# zlib is a shared module of its own binds to the one that came first, and crashes if it is Paddle's.
import zlib as _zlib  # noqa: F401
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from ppocr_ext.recognition.recognizer import Recognizer as Recognizer

__version__ = "0.1.0"
_LAZY = {
    "Recognizer": "ppocr_ext.recognition.recognizer"
}  # imported when they are asked for: they need NumPy, OpenCV


def __getattr__(name: str) -> _Any:
    """Return ``Recognizer``, imported now."""
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
