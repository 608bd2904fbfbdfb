"""Decide which samples are usable, by the rules of ``ppocr/data/imaug/label_ops.py``; imports no Paddle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, Literal, NamedTuple

from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import BOXES, LabelLine
from ppocr_ext.limits import MAX_IMAGE_PIXELS, MAX_LABEL_LINE_BYTES
from ppocr_ext.messages import shortened

Gtc = Literal["nrtr", "sar"]
ImageCheck = Literal["header", "decode", "none"]
FRAME_WIDTH = 8  # pixels of an image that become a frame under `train_frames: width`
FRAMES_A_CHARACTER = (
    2  # least T for each character of the longest label, so that a blank can stand beside each
)
_MARKS = {"nrtr": "NRTR's <s> and </s>", "sar": "SAR's <BOS> and <EOS>"}


def most_characters(width: int) -> int:
    """Return how many characters can be read of images that are all ``width`` pixels wide."""
    return width // FRAME_WIDTH // FRAMES_A_CHARACTER


class SampleIssue(NamedTuple):
    """Why a sample is unusable: the reason, a key of ``RULES`` of issue_rules.py, and the details."""

    reason: str
    detail: str


def frames_needed(label: Sequence[Any]) -> int:
    """Return how many frames CTC needs for ``label`` (characters or class ids): one for each, and one per repeat."""
    return len(label) + _repeats(label)


def frames_needed_each(labels: Sequence[str], encoded: str) -> Any:
    """Return :func:`frames_needed` for all labels at once: int [labels].

    Args:
        labels: the labels as they stand, each of at least one character.
        encoded: the same labels encoded, joined without a separator. It has as many characters as they have.
    """
    import numpy as np

    ends = np.cumsum(np.fromiter(map(len, labels), np.int64, len(labels)))
    codes = np.frombuffer(encoded.encode("utf-32-le", "surrogatepass"), np.uint32)
    frames = np.ones(len(codes), np.int64)
    frames[1:] += codes[1:] == codes[:-1]
    starts = np.append(0, ends[:-1])
    frames[starts] = 1  # the last character of the label before does not count
    return np.add.reduceat(frames, starts)


def describe_frames(label: Sequence[Any], frames: int) -> str:
    """Return length, repeats and frames of a misfit (a label that needs more than ``frames``), for a message."""
    needed = f"{len(label)} characters with {_repeats(label)} repeats need {frames_needed(label)} frames"
    return f"{needed}, CTC has {frames}"


def _repeats(label: Sequence[Any]) -> int:
    """Return how many characters equal the one before, since CTC needs a blank between them."""
    return sum(map(eq, label, label[1:]))


@dataclass(frozen=True)
class FrameLimit:
    """The number of frames of the CTC output, which labels must fit.

    Attributes:
        frames: T of the CTC output; the smallest if batches differ.
        by_ratio: T by the rounded ratio of width to height of an image (``ds_width``); None if all have ``frames``.
        required: True if a misfit is unusable, as in training; False if it is evaluated, and counts as read wrongly.
        fixed_by: config paths of ``train_frames`` that give this T at any width, so that wider images do not help.
        key: config path of the size of the images, for messages.
        width: the image width at ``key``, the smallest of several; None if it is not known.
    """

    frames: int
    by_ratio: Mapping[int, int] | None = None
    required: bool = True
    fixed_by: tuple[str, ...] = ()
    key: str = "RecResizeImg.image_shape"
    width: int | None = None

    def of(self, line: LabelLine) -> int:
        """Return T for the image of ``line``."""
        if not self.by_ratio or len(line.extra) < 2:
            return self.frames
        ratio = max(1, round(float(line.extra[0]) / float(line.extra[1])))
        return self.by_ratio[min(ratio, max(self.by_ratio))]


@dataclass(frozen=True)
class SampleRules:
    """What makes a sample usable.

    ``CTCLabelEncode`` accepts labels of 1 to ``max_text_length`` characters, counted before characters outside the
    dictionary are removed. ``NRTRLabelEncode`` and ``SARLabelEncode`` also require that at most
    ``max_text_length - 2`` characters remain, since a start and an end mark take two places.

    Attributes:
        charset: the dictionary; None if any character is allowed. A character outside it makes the sample unusable,
            unless the charset maps or drops it.
        max_text_length: ``Global.max_text_length``; None if any length is allowed.
        gtc: the encoder of the second label: ``"nrtr"``, ``"sar"`` or None.
        frames: the frames of the CTC output; None if they are not checked.
        min_text_length: ``Global.min_text_length``: the fewest characters of an encoded label.
        image_check: how to check an image. ``"header"`` decodes it only if its first and last bytes do not tell whether
            it is whole, ``"decode"`` decodes every image, and ``"none"`` only checks that the file is not empty.
        allow_outside_data_dir: False makes an image outside ``data_dir`` unusable.
        max_pixels: an image with more pixels is unusable, since decoding it would take too much memory.
    """

    charset: Charset | None
    max_text_length: int | None
    gtc: Gtc | None = None
    frames: FrameLimit | None = None
    image_check: ImageCheck = "header"
    allow_outside_data_dir: bool = True
    max_pixels: int = MAX_IMAGE_PIXELS
    min_text_length: int | None = None

    @property
    def reserved(self) -> int:
        """Return how many places of ``max_text_length`` the marks of the second label take."""
        return 0 if self.gtc is None else 2

    @property
    def reserved_for(self) -> str:
        """Return the names of these marks, for messages."""
        return _MARKS.get(self.gtc or "", "")

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.charset.characters if self.charset else ())

    def encoded(self, label: str) -> str:
        """Return ``label`` as the host encodes it: case folded, unknown characters mapped or removed."""
        return label if self.charset is None else self.charset.encoded(label)

    def plain_lines(self, delimiter: str) -> Callable[[str], list[tuple[str, str]]]:
        """Return the function that quickly finds path and label of most usable lines.

        It takes lines with their ends, decoded with ``surrogateescape``, and returns a pair for each line. Both are
        empty for a line that it does not accept, which must be parsed. A label that it returns fits T, and is encoded
        as it stands except for its case. It accepts none if more than the header of an image must be checked.
        """
        most = [MAX_LABEL_LINE_BYTES]
        if self.max_text_length is not None:
            most.append(self.max_text_length - self.reserved)
        if self.frames is not None:  # enough frames even if all characters are the same
            most.append((min((self.frames.by_ratio or {}).values(), default=self.frames.frames) + 1) // 2)
        least = max(1, self.min_text_length or 1)
        end = re.escape(delimiter)
        known = self._known - {delimiter, "\r", "\n"}
        if self.charset is not None and self.charset.folds_case:
            known = frozenset(
                c for c in known | set(map(str.upper, known)) if c.isascii() and c.lower() in known
            )
        characters = "".join(re.escape(c) for c in known if len(c) == 1)
        other = r"\r\n\udc80-\udcff"  # ends of lines, and bytes that are not UTF-8
        any_of = characters if self.charset is not None else f"^{end}{other}"
        if (
            self.image_check != "header"
            or not any_of
            or len(delimiter) != 1
            or delimiter in "\r\n"
            or min(most) < least
        ):
            return re.compile(r"()()(?:[^\n]*\n|[^\n]+)").findall  # this pattern accepts no line
        path = rf"[^{end}\[\s\udc80-\udcff][^{end}{other}]*"
        label = f"(?!{BOXES})[{any_of}]{{{least},{min(most)}}}"
        return re.compile(rf"({path}){end}({label})(?:{end}[^{other}]*)?\n|[^\n]*\n|[^\n]+").findall

    def label_issue(self, line: LabelLine) -> SampleIssue | None:
        """Return the first issue of a line's format or label; None if the label is usable."""
        if line.issue is not None:
            return SampleIssue("bad_format", line.issue)
        if not line.label:
            return SampleIssue("empty_label", f"{line.images[0]} has no text")
        label = self.encoded(line.label)
        most = self.max_text_length
        if most is not None and len(line.label) > most:
            return SampleIssue("too_long", self._too_long(len(line.label)))
        if self.charset is not None and (not label or not self._known.issuperset(label)):
            return SampleIssue("unknown_char", self._unknown(self.charset, line.label))
        if most is not None and len(label) > most - self.reserved:
            return SampleIssue("too_long", self._too_long(len(label)))
        if len(label) < (self.min_text_length or 1):
            detail = f"{len(label)} characters, min_text_length is {self.min_text_length}"
            return SampleIssue("too_short", detail)
        return self.misfit(line) if self.frames is not None and self.frames.required else None

    def misfit(self, line: LabelLine) -> SampleIssue | None:
        """Return the issue of a label that needs more frames than T; None if it fits, or T is not known."""
        if self.frames is None:
            return None
        label = self.encoded(line.label)
        frames = self.frames.of(line)
        # The first condition is cheap, and is enough even if all characters are the same.
        if 2 * len(label) - 1 <= frames or frames_needed(label) <= frames:
            return None
        return SampleIssue("too_long_for_frames", describe_frames(label, frames))

    def _too_long(self, length: int) -> str:
        reserved = f", less {self.reserved} for {self.reserved_for}" if self.reserved else ""
        return f"{length} characters, max_text_length is {self.max_text_length}{reserved}"

    def _unknown(self, charset: Charset, label: str) -> str:
        unknown = charset.unknown(label)
        named = shortened([f"{c!r} (U+{ord(c):04X})" for c in unknown], 5)
        own = "" if charset.path else " with a dictionary in Global.character_dict_path"
        hint = f"; Global.use_space_char: true{own} allows the space" if " " in unknown else ""
        # a label with a comma was split there, so its closing quotation mark is missing
        is_quoted = '"' in unknown and label.startswith('"') and '"' not in label[1:-1]
        hint += "; the columns are in quotes, as in CSV: write them without" if is_quoted else ""
        return f"{named} of {label!r} not in {charset.name}{hint}"
