"""Write ``vectors.json``: images with what each step makes of them, to test a reader in another language."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.io.atomic import write_text
from ppocr_ext.recognition.ctc_text import is_reordered, read
from ppocr_ext.recognition.engines import Engine
from ppocr_ext.recognition.resize import WidthPolicy

VECTORS_FILE = "vectors.json"


def write_vectors(
    path: Path, images: Sequence[np.ndarray], policy: WidthPolicy, engine: Engine, charset: Charset
) -> None:
    """Write one entry for each image: the encoded image, sums after each step, best classes, text.

    Args:
        path: the file.
        images: drawn ones, uint8 [H, W, 3]: the file goes to others, and data of a user do not.
        policy: how they are prepared.
        engine: that reads them.
        charset: the dictionary.
    """
    entries = [_entry(image, policy, engine, charset) for image in images]
    settings = {"width_policy": policy.to_json(), "reorder": is_reordered(charset)}
    content = {"format": 1, **settings, "vectors": entries}
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _entry(image: np.ndarray, policy: WidthPolicy, engine: Engine, charset: Charset) -> dict[str, Any]:
    _, encoded = cv2.imencode(".png", image)
    prepared = policy.prepare(image)
    probabilities = engine.probabilities(prepared[None])[0]
    reading = read(probabilities, charset)
    return {
        "png": base64.b64encode(encoded.tobytes()).decode("ascii"),
        "image_shape": list(image.shape),
        "image_sums": image.sum(axis=(0, 1), dtype=np.int64).tolist(),  # of blue, green, red
        "input_shape": list(prepared.shape),
        "input_sums": _rounded(prepared.sum(axis=(1, 2), dtype=np.float64)),
        "input_first_row": _rounded(prepared[0, 0, :8]),
        "frames": len(probabilities),
        "classes": probabilities.argmax(axis=1).tolist(),
        "probabilities": _rounded(probabilities.max(axis=1)),
        "text": reading.text,
        "confidence": round(reading.confidence, 6),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]
