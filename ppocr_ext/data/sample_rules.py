"""Which labels PaddleOCR's encoders take, as in ``ppocr/data/imaug/label_ops.py``; imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any, Literal

from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import LabelLine, quotes_hint
from ppocr_ext.messages import shortened

Gtc = Literal["nrtr", "sar"]
UnknownChar = Literal["drop_line", "drop_char"]
_MARKS = {"nrtr": "NRTR's <s> and </s>", "sar": "SAR's <BOS> and <EOS>"}


def repeats_of(label: Sequence[Any]) -> int:
    """Return how many neighbours in ``label`` (characters or class ids) are equal."""
    return sum(map(eq, label, label[1:]))


def frames_needed(label: Sequence[Any]) -> int:
    """Return the frames that CTC needs for ``label``: one a character, and a blank between equal neighbours."""
    return len(label) + repeats_of(label)


@dataclass(frozen=True)
class FrameLimit:
    """The frames that labels have to fit: one for each character and one more between equal neighbours.

    Attributes:
        frames: T of the CTC output, the least if batches have several.
        by_ratio: T by the rounded ratio of width to height of a line's image (``ds_width``); None: ``frames`` for all.
        required: a label that does not fit is unusable, as in training; False: it stays, and counts as read wrongly.
        fixed: the network gives this T in training at any width, so that wider images do not help.
        key: config path of the size of the images, for messages.
        width: their width there, of several the least; None if it is not known.
    """

    frames: int
    by_ratio: Mapping[int, int] | None = None
    required: bool = True
    fixed: bool = False
    key: str = "RecResizeImg.image_shape"
    width: int | None = None

    def of(self, line: LabelLine) -> int:
        """Return T for the image of ``line``."""
        if not self.by_ratio or len(line.extra) < 2:
            return self.frames
        ratio = max(1, round(float(line.extra[0]) / float(line.extra[1])))
        return self.by_ratio[min(ratio, max(self.by_ratio))]


class LabelRules:
    """Judges the text of a line.

    ``CTCLabelEncode`` takes labels of 1 to ``max_text_length`` characters, counted before those outside
    the dictionary are removed. ``NRTRLabelEncode`` and ``SARLabelEncode`` ask besides that the
    characters left are at most ``max_text_length - 2``: a start and an end mark take two places.

    Args:
        charset: the dictionary.
        max_text_length: ``Global.max_text_length``.
        gtc: the encoder of the second label, if there is one.
        frames: what CTC's output holds, if it is to be checked.
        unknown_char: ``"drop_line"``, or ``"drop_char"``: the line is used without the character,
            which the host's encoder removes.
    """

    def __init__(
        self,
        charset: Charset,
        max_text_length: int,
        gtc: Gtc | None = None,
        frames: FrameLimit | None = None,
        unknown_char: UnknownChar = "drop_line",
    ) -> None:
        self.charset = charset
        self.max_text_length = max_text_length
        self.reserved = 0 if gtc is None else 2
        self.reserved_for = "" if gtc is None else _MARKS[gtc]
        self.frames = frames
        self.drop_line = unknown_char == "drop_line"
        self._known = frozenset(charset.characters)

    def fault(self, line: LabelLine) -> tuple[str, str] | None:
        """``(reason, detail)`` of the first thing wrong with the line's format or label, or None."""
        if line.fault is not None:
            return "bad_format", line.fault
        label = line.label
        if not label:
            return "empty_label", f"{line.images[0]} has no text"
        if len(label) > self.max_text_length:
            return "too_long", self._too_long(len(label))
        if self.charset.folds_case:
            label = label.lower()
        if not self._known.issuperset(label):
            unknown = self.charset.unknown(label)
            kept = "".join(c for c in label if c in self._known)
            if self.drop_line or not kept:
                return "unknown_char", self._unknown(line.label, unknown)
            label = kept
        if len(label) > self.max_text_length - self.reserved:
            return "too_long", self._too_long(len(label))
        return self._misfit(line, label) if self.frames is not None and self.frames.required else None

    def misfit(self, line: LabelLine) -> tuple[str, str] | None:
        """Return ``(reason, detail)`` if the label of a usable line does not fit the frames, whatever that costs."""
        if self.frames is None or 2 * len(line.label) - 1 <= self.frames.frames:  # as if all were the same
            return None
        return self._misfit(line, self._encoded(line.label))

    def frames_needed(self, label: str) -> int:
        """Return the frames that CTC needs for ``label`` as it is encoded, however long it is."""
        return frames_needed(self._encoded(label))

    def _encoded(self, label: str) -> str:
        if self.charset.folds_case:
            label = label.lower()
        return label if self.drop_line else "".join(c for c in label if c in self._known)

    def _misfit(self, line: LabelLine, label: str) -> tuple[str, str] | None:
        frames = 0 if self.frames is None else self.frames.of(line)
        count = frames_needed(label)
        if count <= frames:
            return None
        needed = f"{len(label)} characters with {repeats_of(label)} repeats need {count} frames"
        return "too_long_for_frames", f"{needed}, CTC has {frames}"

    def _too_long(self, length: int) -> str:
        reserved = f", less {self.reserved} for {self.reserved_for}" if self.reserved else ""
        return f"{length} characters, max_text_length is {self.max_text_length}{reserved}"

    def _unknown(self, label: str, unknown: list[str]) -> str:
        named = shortened([f"{c!r} (U+{ord(c):04X})" for c in unknown], 5)
        hint = ""
        if " " in unknown:
            own = "" if self.charset.path else " with a dictionary in Global.character_dict_path"
            hint = f"; Global.use_space_char: true{own} admits the space"
        hint += quotes_hint(label) if '"' in unknown else ""
        return f"{named} of {label!r} not in {self.charset.name}{hint}"
