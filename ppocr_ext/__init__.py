"""Distil and fine-tune PaddleOCR text recognisers from a plain ``pip install``."""

__version__ = "0.1.0"
