"""Open the client of PaddleOCR 2.x, to compare it with a trained network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any


def open_text_recognizer(options: Sequence[str]) -> Any:
    """Return a ``TextRecognizer`` of the installed PaddleOCR 2.x.

    Call it in a process of its own: importing ``paddleocr`` puts its modules in place of those that networks run in.

    Args:
        options: of its command line.
    """
    import_module("paddleocr")  # makes its `tools` importable
    args = import_module("tools.infer.utility").init_args().parse_args(list(options))
    return import_module("tools.infer.predict_rec").TextRecognizer(args)
