"""Turn the characters of an NRTR decoder into text, as PaddleOCR's ``NRTRLabelDecode`` does; imports no Paddle."""

from __future__ import annotations

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.recognition.ctc_text import Character, Reading

START, END = "<s>", "</s>"


def read_sequence(ids: np.ndarray, best: np.ndarray, charset: Charset, image: str | int = 0) -> Reading:
    """Return the text of one image: the characters up to ``</s>``, without the ``<s>`` that they begin with.

    Its characters have no columns, since a decoder sees the whole image at each step.

    Args:
        ids: int64 [L], NRTR class ids; those of no class are skipped.
        best: float32 [L], the probability of each.
        charset: the dictionary.
        image: the path of the image, or its number.
    """
    symbols = charset.nrtr_symbols
    characters, confidences = [], []
    for place, (token, confidence) in enumerate(zip(ids.tolist(), best, strict=True)):
        symbol = symbols[token] if token < len(symbols) else ""
        if symbol == END:
            break
        if symbol and not (place == 0 and symbol == START):
            characters.append(Character(symbol, float(confidence)))
            confidences.append(confidence)
    # of float32, so that it equals PaddleOCR's in every bit
    mean = float(np.mean(confidences)) if confidences else 0.0
    return Reading("".join([each.text for each in characters]), mean, tuple(characters), image)
