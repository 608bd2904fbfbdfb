"""Digests of a network: of its weights, and of the code that computes with them."""

from __future__ import annotations

import hashlib
import inspect
import sys
from pathlib import Path

from paddle.nn import Layer

from ppocr_ext.io.resources import file_digest


def state_digest(layer: Layer) -> str:
    """Return the SHA-256 over names and bytes of all parameters and buffers of ``layer``."""
    digest = hashlib.sha256()
    for name, tensor in sorted(layer.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def code_digest(layer: Layer) -> str:
    """Return the SHA-256 over the source files that define ``layer``, without Paddle's.

    These are the modules of the classes of all layers and of their bases, of functions in attributes of layers, and
    the file with the version of this package. Imports of these modules are not followed.
    """
    layers = layer.sublayers(include_self=True)
    functions = (value for each in layers for value in vars(each).values() if inspect.isroutine(value))
    parts = {
        str(part.__module__)
        for part in (*functions, *(base for each in layers for base in type(each).__mro__))
    }
    files = {name: str(getattr(sys.modules.get(name), "__file__", "")) for name in (*parts, "ppocr_ext")}
    digests = {
        name: file_digest(file)
        if Path(file).is_file()
        else ""  # classes of an interactive session have no file
        for name, file in sorted(files.items())
        if not name.startswith("paddle.")
    }
    return hashlib.sha256(repr(digests).encode()).hexdigest()
