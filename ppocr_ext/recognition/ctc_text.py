"""Turn the probabilities of CTC into text, as PaddleOCR's ``CTCLabelDecode`` does; imports no Paddle."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset

# what PaddleOCR leaves in its order when it turns the text of an Arabic dictionary
_LEFT_TO_RIGHT = re.compile(r"[a-zA-Z0-9 :*./%+-]")


@dataclass(frozen=True)
class Character:
    """One character that was read.

    The columns are those of the frames in which the network sees it. CTC needs only one or two frames of a
    character, so they lie in it and seldom cover it.

    Attributes:
        text: the character.
        confidence: its probability, from 0 to 1.
        first_column: the first of its pixel columns in the image.
        last_column: the last one.
    """

    text: str
    confidence: float
    first_column: int
    last_column: int


@dataclass(frozen=True)
class Reading:
    """What was read from one image.

    Attributes:
        text: the text; empty if nothing was read.
        confidence: mean probability of the characters, 0.0 if there are none.
        characters: each character with its own probability and its place in the image.
        image: the path that was given, or the number of the image from 0.
        error: why the image cannot be read; None if it was read.
    """

    text: str = ""
    confidence: float = 0.0
    characters: tuple[Character, ...] = field(default=(), repr=False)
    image: str | int = 0
    error: str | None = None

    def to_json(self, characters: bool = False) -> dict[str, Any]:
        """Return the attributes for a JSON file; the characters only if they are asked for."""
        content: dict[str, Any] = {"image": self.image, "text": self.text, "confidence": self.confidence}
        if characters:
            content["characters"] = [vars(character) for character in self.characters]
        return content if self.error is None else {"image": self.image, "error": self.error}


def read(
    probabilities: np.ndarray,
    charset: Charset,
    *,
    pixels_per_frame: float = 1.0,
    width: int | None = None,
    reorder: bool | None = None,
) -> Reading:
    """Return the text of one image: the best class of each frame, without repeats and blanks.

    Args:
        probabilities: float32 [T, C], a frame in each row; C is ``charset.ctc_classes``.
        charset: the dictionary.
        pixels_per_frame: columns of the image for one frame, which need not be a whole number.
        width: of the image, pixels; None: the columns of a character are not limited.
        reorder: turn the text as PaddleOCR does for Arabic; None: as :func:`is_reordered` says.
    """
    ids = probabilities.argmax(axis=1)
    best = probabilities[np.arange(len(ids)), ids]
    starts = np.flatnonzero(np.diff(ids, prepend=-1))  # of the runs of equal classes
    ends = np.append(starts[1:], len(ids))
    kept = ids[starts] != charset.blank_id
    starts, ends = starts[kept], ends[kept]
    last = math.inf if width is None else width - 1
    characters = tuple(
        Character(
            charset.ctc_symbols[ids[start]],
            float(best[start]),
            int(min(last, start * pixels_per_frame)),
            int(min(last, max(start, math.ceil(end * pixels_per_frame) - 1))),
        )
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    if is_reordered(charset) if reorder is None else reorder:
        characters = _reordered(characters)
    # the mean of the frames as they follow each other, so that it equals PaddleOCR's in every bit
    confidence = float(np.mean(best[starts])) if len(starts) else 0.0
    return Reading("".join(each.text for each in characters), confidence, characters)


def is_reordered(charset: Charset) -> bool:
    """Return True if PaddleOCR turns texts of this dictionary: the path of the file has ``arabic`` in it."""
    return charset.path is not None and "arabic" in str(charset.path)


def with_image(reading: Reading, image: str | int) -> Reading:
    """Return ``reading`` with the name or number of its image."""
    return replace(reading, image=image)


def _reordered(characters: tuple[Character, ...]) -> tuple[Character, ...]:
    """Return the characters from the last to the first; Latin letters, digits and spaces in a row keep their order."""
    groups: list[list[Character]] = []
    in_row = False
    for character in characters:
        latin = bool(_LEFT_TO_RIGHT.search(character.text))
        if latin and in_row:
            groups[-1].append(character)
        else:
            groups.append([character])
        in_row = latin
    return tuple(character for group in reversed(groups) for character in group)
