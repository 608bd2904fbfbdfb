"""Turn the probabilities of CTC into text, as PaddleOCR's ``CTCLabelDecode`` does; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset


@dataclass(frozen=True)
class Character:
    """One character of a reading.

    Its columns are those of the frames in which the network sees it. CTC needs only one or two frames for a character,
    so the columns lie inside the character and seldom cover all of it. A character of an NRTR decoder has no columns.

    Attributes:
        text: the character.
        confidence: its probability, from 0 to 1.
        first_column: the first of its pixel columns in the image; None if unknown.
        last_column: the last of its pixel columns; None if unknown.
    """

    text: str
    confidence: float
    first_column: int | None = None
    last_column: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the attributes for a JSON file, without unknown columns."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Reading:
    """The text of one image.

    Attributes:
        text: may be empty.
        confidence: mean probability of the characters; 0.0 without characters.
        characters: each character with its own probability and its place in the image.
        image: the given path, or the number of the image, from 0.
        error: the reason why the image cannot be read; None if it was read.
        tall: it was read as it is, but clients turn images of this shape.
        loss: -log of the probability of the label (:func:`label_losses`); NaN without a label that can be judged.
    """

    text: str = ""
    confidence: float = 0.0
    characters: tuple[Character, ...] = field(default=(), repr=False)
    image: str | int = 0
    error: str | None = None
    tall: bool = field(default=False, repr=False)
    loss: float = field(default=math.nan, repr=False, compare=False)

    def to_json(self, characters: bool = False) -> dict[str, Any]:
        """Return the attributes for a JSON file, with the characters if ``characters`` is true."""
        content: dict[str, Any] = {"image": self.image, "text": self.text, "confidence": self.confidence}
        if characters:
            content["characters"] = [character.to_json() for character in self.characters]
        return content if self.error is None else {"image": self.image, "error": self.error}


def best_classes(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best class of each frame and its probability: int64 and float32, [..., T].

    Args:
        probabilities: float32 [..., T, C].
    """
    ids = probabilities.argmax(axis=-1)
    return ids, np.take_along_axis(probabilities, ids[..., None], axis=-1)[..., 0]


def label_losses(probabilities: np.ndarray, labels: Sequence[Sequence[int] | None]) -> np.ndarray:
    """Return the CTC loss of each label, -log p(label): float64 [B]. Graves et al. 2006, equations 6 to 8.

    It is infinite if the label needs more frames than there are.

    Args:
        probabilities: float32 [B, T, C].
        labels: class ids of each label; None gives NaN.
    """
    losses = np.full(len(labels), np.nan)
    rows = [row for row, ids in enumerate(labels) if ids is not None]
    known = [ids for ids in labels if ids is not None]
    if not known:
        return losses
    states = np.zeros((len(known), 2 * max(map(len, known)) + 1), np.int64)  # a blank before and after each
    for row, ids in zip(states, known, strict=True):
        row[1 : 2 * len(ids) : 2] = ids
    emitted = np.take_along_axis(probabilities[rows], states[:, None], axis=2)  # [B, T, S]
    emitted = np.log(np.maximum(emitted, 1e-20, dtype=np.float64))
    outside = np.full((len(known), 2), -np.inf)
    ends = np.arange(len(known)), 2 * np.array([len(ids) for ids in known])
    # Only between two different characters no blank is needed.
    skips = np.where((states[:, 2:] != 0) & (states[:, 2:] != states[:, :-2]), 0.0, -np.inf)
    skips = np.hstack([outside, skips])[:, : states.shape[1]]
    paths = np.full(states.shape, -np.inf)
    paths[:, :2] = emitted[:, 0, :2]
    for frame in range(1, emitted.shape[1]):
        before = np.hstack([outside, paths])
        paths = np.logaddexp(np.logaddexp(paths, before[:, 1:-1]), before[:, :-2] + skips) + emitted[:, frame]
    padded = np.hstack([outside, paths])
    losses[rows] = -np.logaddexp(padded[ends[0], ends[1] + 2], padded[ends[0], ends[1] + 1])
    return losses


def read(probabilities: np.ndarray, charset: Charset, **options: Any) -> Reading:
    """Return the text of one image.

    Args:
        probabilities: float32 [T, C], one row for each frame; C is ``charset.ctc_classes``.
        charset: the dictionary.
        options: the other arguments of :func:`read_classes`.
    """
    return read_classes(*best_classes(probabilities), charset, **options)


def read_classes(
    ids: np.ndarray,
    best: np.ndarray,
    charset: Charset,
    *,
    pixels_per_frame: float = 1.0,
    width: int | None = None,
    image: str | int = 0,
) -> Reading:
    """Return the text of one image: the best class of each frame, without repeats and blanks.

    Args:
        ids: int64 [T], the best class of each frame.
        best: float32 [T], its probability.
        charset: the dictionary.
        pixels_per_frame: columns of the image for one frame; may be a fraction.
        width: the width of the image, pixels; None if the columns of a character are not limited.
        image: the path of the image, or its number.
    """
    classes, confidences = ids.tolist(), best.tolist()  # for so few numbers Python is faster than NumPy
    edges = [frame for frame, each in enumerate(classes) if not frame or each != classes[frame - 1]]
    runs = [run for run in pairwise([*edges, len(classes)]) if classes[run[0]] != charset.blank_id]
    symbols = charset.ctc_symbols
    last = math.inf if width is None else width - 1
    characters = [
        Character(
            symbols[classes[start]],
            confidences[start],
            int(min(last, start * pixels_per_frame)),
            int(min(last, math.ceil(end * pixels_per_frame) - 1)),
        )
        for start, end in runs
    ]
    # The mean in the order of the frames, so that it equals PaddleOCR's in every bit.
    confidence = float(best[[start for start, _ in runs]].mean()) if runs else 0.0
    return _as_read(characters, confidence, charset, image)


def _as_read(
    characters: Sequence[Character], confidence: float, charset: Charset, image: str | int
) -> Reading:
    """Return the reading with its characters in the order in which people read them."""
    order = charset.as_read([each.text for each in characters])
    ordered = tuple(replace(characters[place], text=symbol) for place, symbol in order)
    return Reading("".join([each.text for each in ordered]), confidence, ordered, image)


START, END = "<s>", "</s>"


def read_sequence(ids: np.ndarray, best: np.ndarray, charset: Charset, image: str | int = 0) -> Reading:
    """Return the text of one image: the characters up to ``</s>``, without the first ``<s>``.

    The characters have no columns, since a decoder sees the whole image at each step.

    Args:
        ids: int64 [L], NRTR class ids; unknown ids are skipped.
        best: float32 [L], the probability of each character.
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
    # The mean of float32 numbers, so that it equals PaddleOCR's in every bit.
    mean = float(np.mean(confidences)) if confidences else 0.0
    return _as_read(characters, mean, charset, image)
