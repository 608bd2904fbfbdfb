"""Write ``vectors.json``: images with what each step makes of them, to test a reader in another language."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ppocr_ext.io.atomic import write_text
from ppocr_ext.recognition.ctc_text import is_reordered, read
from ppocr_ext.recognition.opening import RecognizerParts

VECTORS_FILE = "vectors.json"


def write_vectors(path: Path, images: Sequence[np.ndarray], parts: RecognizerParts) -> None:
    """Write one entry for each image: the encoded image, sums after each step, best classes, text.

    Args:
        path: the file.
        images: drawn ones, uint8 [H, W, 3]: the file goes to others, and data of a user do not.
        parts: what reads them.

    Raises:
        WeightsError: the engine's classes are not those of the dictionary.
    """
    entries = [_entry(image, parts) for image in images]
    settings = {"width_policy": parts.policy.to_json(), "reorder": is_reordered(parts.charset)}
    content = {"format": 1, **settings, "vectors": entries}
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _entry(image: np.ndarray, parts: RecognizerParts) -> dict[str, Any]:
    _, encoded = cv2.imencode(".png", image)
    prepared = parts.policy.prepare(image)
    probabilities = parts.probabilities(prepared[None])[0]
    reading = read(probabilities, parts.charset)
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
