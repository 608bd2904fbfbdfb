"""Distil and fine-tune PaddleOCR text recognisers from a plain ``pip install``."""

# zlib must be imported before Paddle: Paddle 2.6 has an old zlib with the same symbols, and a Python whose zlib is a
# shared module uses the symbols that were loaded first, and crashes with Paddle's.
import zlib as _zlib  # noqa: F401
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from ppocr_ext.first_run.inspect import inspect_data as inspect_data
    from ppocr_ext.recognition.recognizer import Recognizer as Recognizer

__version__ = "1.0.0"
# Imported at the first use, since they need NumPy and OpenCV.
_LAZY = {
    "Recognizer": "ppocr_ext.recognition.recognizer",
    "inspect_data": "ppocr_ext.first_run.inspect",
}


def __getattr__(name: str) -> _Any:
    """Import and return a public name."""
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
