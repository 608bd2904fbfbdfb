"""Turn texts of right-to-left scripts into the order of the image, and back; imports no Paddle.

A CTC output runs from the left of the image to the right. A label of Arabic or Hebrew is stored as it is read (logical
order) or as the image shows it from left to right (visual order).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

LEFT_TO_RIGHT = "left_to_right"
RIGHT_TO_LEFT = "right_to_left"
RIGHT_TO_LEFT_VISUAL = "right_to_left_visual"
TEXT_DIRECTIONS = (LEFT_TO_RIGHT, RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL)
ARABIC = "arabic_"  # PaddleOCR's names of models for Arabic begin so
LOGICAL, VISUAL = "logical", "visual"

_RIGHT = ("R", "AL")  # classes of Unicode's bidirectional algorithm: letters of Hebrew and of Arabic
_KINDS = {"L": "a", "EN": "1", "AN": "1"}  # letters and digits that are written from left to right
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_JOINS = {" ": " ", **dict.fromkeys(":*./%+-,;&@_'\"#=!?|", ".")}  # keep their order between those
_RUN = re.compile(r"[a1](?:[ .]*[a1])*")
_WHOLE = re.compile(".+")
_NUMBERS = re.compile(
    r"1(?:\.*1)*|."
)  # numbers stand from right to left, the digits of each from left to right
_LETTERS = r"\u05d0-\u05ea\u0620-\u064a\u066e-\u06d3"
_MARKS = r"\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670"
_WORD = re.compile(rf"[{_LETTERS}][{_LETTERS}{_MARKS}\"'״׳]*[{_LETTERS}]|[{_LETTERS}]")
_FINAL = "ךםןףץة"  # letters that stand only at the end of a word
_ARTICLE = "ال"
_SURE = 3  # times as many words in one order as in the other


def default_direction(dictionary: str | None) -> str:
    """Return the direction that PaddleOCR takes for ``character_dict_path`` as it is written in a config."""
    return RIGHT_TO_LEFT_VISUAL if dictionary and "arabic" in dictionary else LEFT_TO_RIGHT


def client_direction(model_name: str | None) -> str:
    """Return the direction of a model of this name in PaddleOCR 3's client, which turns texts by the name alone.

    Nothing says how labels are stored that such a model is compared with: as they are read, unless their words show it.
    """
    return RIGHT_TO_LEFT if model_name and model_name.startswith(ARABIC) else LEFT_TO_RIGHT


def is_right_to_left(text: Iterable[str]) -> bool:
    """Return True if a letter of ``text`` is of a script that is written from right to left."""
    return any(
        letter.isalpha() and unicodedata.bidirectional(letter) in _RIGHT  # U+200F is a mark
        for part in text
        for letter in part
    )


def turned_symbols(symbols: Sequence[str]) -> list[tuple[int, str]]:
    """Return the symbols of a text in the other order, each with its position in the first one.

    Words of left-to-right scripts keep their order, as do the digits of a number; brackets are mirrored. To turn twice
    changes nothing, and so does turning a text without right-to-left letters. PaddleOCR 2.x also keeps spaces beside
    numbers and rows of numbers; this is the order of Unicode's bidirectional algorithm, which PaddleOCR 3 and RapidOCR
    use.

    Args:
        symbols: the characters of the text, in either order.
    """
    if not is_right_to_left(symbols):
        return list(enumerate(symbols))
    classes = [unicodedata.bidirectional(each[:1] or "x") for each in symbols]
    # 50% stays in Hebrew, and is %50 in an Arabic image.
    known = _KINDS if "AL" in classes else {**_KINDS, "ET": "1"}
    kinds = "".join(
        known.get(name) or _JOINS.get(each, "x") for name, each in zip(classes, symbols, strict=True)
    )
    parts: list[Sequence[int]] = []
    at = 0
    for run in _RUN.finditer(kinds):
        parts += ([place] for place in range(at, run.start()))
        kept = _WHOLE if "a" in run[0] else _NUMBERS
        parts += (range(*part.span()) for part in kept.finditer(kinds, *run.span()))
        at = run.end()
    parts += ([place] for place in range(at, len(kinds)))
    return [(place, symbols[place].translate(_MIRRORED)) for part in reversed(parts) for place in part]


def turned(text: str) -> str:
    """Return ``text`` in the other order, see :func:`turned_symbols`."""
    return "".join(symbol for _, symbol in turned_symbols(text))


def order_votes(text: str) -> Iterator[str]:
    """Yield :data:`LOGICAL` or :data:`VISUAL` for each word whose letters show its order.

    Final letters of Hebrew and ة end a word, and the article ال begins it.
    """
    for word in _WORD.findall(text):
        if len(word) > 1 and (word[-1] in _FINAL or (len(word) > 3 and word.startswith(_ARTICLE))):
            yield LOGICAL
        elif len(word) > 1 and (word[0] in _FINAL or (len(word) > 3 and word.endswith(_ARTICLE[::-1]))):
            yield VISUAL


def order_of(votes: Counter[str]) -> str:
    """Return the order of most words, or an empty text if the votes do not decide."""
    return next(
        (one for one, two in ((LOGICAL, VISUAL), (VISUAL, LOGICAL)) if votes[one] > _SURE * votes[two]), ""
    )


def in_order(labels: Sequence[str], direction: str) -> list[str]:
    """Return labels in the order that belongs to a direction, turned if their words show that they have another one."""
    own = {RIGHT_TO_LEFT: LOGICAL, RIGHT_TO_LEFT_VISUAL: VISUAL}.get(direction, "")
    order = order_of(Counter(vote for label in labels for vote in order_votes(label)))
    return [turned(label) if own and order not in ("", own) else label for label in labels]
