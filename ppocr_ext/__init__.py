"""Distil and fine-tune PaddleOCR text recognisers from a plain ``pip install``."""

# Before Paddle, wherever that is imported: Paddle 2.6 brings an old zlib under the same symbols. A Python whose
# zlib is a shared module of its own binds to the one that came first, and crashes if it is Paddle's.
import zlib as _zlib  # noqa: F401

__version__ = "0.1.0"
