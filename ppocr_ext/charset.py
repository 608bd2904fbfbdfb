"""The dictionary of a recogniser: characters, special symbols and class counts; imports no Paddle."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ppocr_ext.errors import CharsetError
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, MAX_DICTIONARY_LINES, read_at_most
from ppocr_ext.text_direction import LEFT_TO_RIGHT, RIGHT_TO_LEFT, is_right_to_left, turned, turned_symbols

_BOM = b"\xef\xbb\xbf"
# the replacement character, two that hardly any dictionary has, and one that is no character
_NEVER_READ = ("\ufffd", "\u2047", "\u2bd1", "\uffff")
PLAIN = re.compile("[0-9A-Za-z]")  # the characters that ``Metric.is_filter: true`` compares
_SHOWN = 10  # limit of lines in a message


@dataclass(frozen=True)
class Charset:
    """The characters that a recogniser knows, in the order of their class ids.

    Class counts are PaddleOCR's. With ``n`` = characters + 1 (the CTC blank, id 0): SAR adds
    ``<UKN>``, ``<BOS/EOS>``, ``<PAD>`` after the characters and has no blank (n + 2); NRTR adds
    ``blank``, ``<unk>``, ``<s>``, ``</s>`` before them (n + 3), and its projection has one row more.

    A character that occurs twice (the space of PaddleOCR's ``en_dict.txt`` with ``use_space_char: true``) has two
    classes; labels use the second one, as in PaddleOCR's encoders.

    Args:
        characters: dictionary lines, then ``" "`` with ``use_space``; no special symbols.
        use_space: ``Global.use_space_char``.
        path: the dictionary file; None for the default characters.
        folds_case: whether labels are lowercased before they are encoded. PaddleOCR does so only without a dictionary.
        unknown_symbol: the character whose class stands for all unknown characters; empty without one.
        drops_unknown: whether unknown characters are removed from labels.
        direction: one of ``TEXT_DIRECTIONS``: the order of labels and of texts.
    """

    characters: tuple[str, ...]
    use_space: bool = False
    path: Path | None = field(default=None, compare=False)
    folds_case: bool = False
    unknown_symbol: str = field(default="", compare=False)
    drops_unknown: bool = field(default=False, compare=False)
    direction: str = field(default=LEFT_TO_RIGHT, compare=False)
    blank_id: ClassVar[int] = 0

    @classmethod
    def from_file(cls, path: str | Path, use_space_char: bool = False, *, lenient: bool = False) -> Charset:
        """Read a dictionary file: UTF-8, one character per line, which ends in ``\\n`` or ``\\r\\n``.

        Args:
            path: the file.
            use_space_char: add the space as the last character, also if the file has it.
            lenient: read the lines of :attr:`unused_lines` as PaddleOCR does. Use it for the dictionary of a network.

        Raises:
            CharsetError: the file is missing, not a regular file, empty, too large or not UTF-8. Unless ``lenient``,
                also if it has a byte order mark, blank lines or repeated lines, which the message lists by number.
        """
        path = Path(path)
        lines = _read_lines(path)
        problems = _problems(lines)
        if problems and not lenient:
            raise CharsetError(
                f"{path}: the dictionary cannot be used:\n{_listing(problems)}\n"
                "Fix: give each character one line of its own, in UTF-8 without a byte order mark.",
                code="bad_dictionary",
            )
        return cls((*lines, " ") if use_space_char else tuple(lines), bool(use_space_char), path)

    @classmethod
    def default(cls) -> Charset:
        """Return PaddleOCR's characters without a dictionary: 0-9 and a-z, labels lowercased.

        There is no space, not even with ``use_space_char``.
        """
        return cls(tuple("0123456789abcdefghijklmnopqrstuvwxyz"), folds_case=True)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of the characters in their order, without path and line ends."""
        return hashlib.sha256("\n".join(self.characters).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def name(self) -> str:
        """Return the name of the dictionary for messages: its path, and whether the space is added."""
        if self.folds_case:
            return "the default characters 0-9a-z"
        space = " with use_space_char" if self.use_space else ""
        return f"{self.path or 'a dictionary without a file'}{space}"

    @property
    def has_space(self) -> bool:
        """Return True if the space is a class."""
        return " " in self._ctc_ids

    @property
    def line_of_second_space(self) -> int | None:
        """Return the number of the dictionary line with the space, if ``use_space_char`` adds a second space.

        The space then has two classes. Labels use the class of the added space, and that of the line is never used.
        The result is None if there is no second space.
        """
        return self.characters.index(" ") + 1 if self.use_space and " " in self.characters[:-1] else None

    @property
    def unused_lines(self) -> list[str]:
        """Return the lines of the dictionary that no label uses, each with its number and the reason.

        They are blank, repeated, or of several characters. PaddleOCR gives each a class. It encodes labels character
        by character, and takes the last of two equal lines, so labels never use these classes.
        """
        return _problems(self.characters[: len(self.characters) - self.use_space], several=True)

    @property
    def ctc_classes(self) -> int:
        """Return n: the characters and the blank."""
        return len(self.characters) + 1

    @property
    def sar_classes(self) -> int:
        """Return n + 2: the characters and ``<UKN>``, ``<BOS/EOS>``, ``<PAD>``."""
        return self.ctc_classes + 2

    @property
    def sar_padding_id(self) -> int:
        """Return n + 1: the id of ``<PAD>``, which SAR losses ignore."""
        return self.ctc_classes + 1

    @property
    def nrtr_classes(self) -> int:
        """Return n + 3: the characters and ``blank``, ``<unk>``, ``<s>``, ``</s>``."""
        return self.ctc_classes + 3

    @property
    def nrtr_rows(self) -> int:
        """Return n + 4: rows of the NRTR projection and embedding; in PaddleOCR, one of them is never used."""
        return self.nrtr_classes + 1

    @cached_property
    def ctc_symbols(self) -> tuple[str, ...]:
        """Return the symbol of each CTC class id."""
        return ("blank", *self.characters)

    @property
    def nrtr_symbols(self) -> tuple[str, ...]:
        """Return the symbol of each NRTR class id."""
        return ("blank", "<unk>", "<s>", "</s>", *self.characters)

    @cached_property
    def _ctc_ids(self) -> dict[str, int]:
        return {character: index for index, character in enumerate(self.characters, start=self.blank_id + 1)}

    def ids(self, text: str) -> list[int]:
        """Return the CTC class ids of the characters of ``text``.

        Raises:
            CharsetError: a character is not in the dictionary; the message names all of them.
        """
        if unknown := self.unknown(text):
            named = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in unknown)
            hint = " Fix: set `Global.use_space_char: true` for the space." if " " in unknown else ""
            raise CharsetError(
                f"{text!r} has characters that are not in {self.name}: {named}.{hint}", code="unknown_char"
            )
        return [self._ctc_ids[character] for character in self._folded(text)]

    def unknown(self, text: str) -> list[str]:
        """Return the characters of ``text`` without a class, each once, in the order of the text."""
        return [c for c in dict.fromkeys(self._folded(text)) if c not in self._ctc_ids]

    def has_other_case(self, text: str) -> bool:
        """Return True if ``text`` has unknown characters, and the dictionary has each of them in the other case."""
        unknown = self.unknown(text)
        return bool(unknown) and all(letter.swapcase() in self._ctc_ids for letter in unknown)

    def encoded(self, label: str) -> str:
        """Return the characters of ``label`` that are encoded: case folded, unknown ones mapped or removed."""
        label = self._folded(label)
        if not (self.unknown_symbol or self.drops_unknown):
            return label
        return "".join(c if c in self._ctc_ids else self.unknown_symbol for c in label)

    @property
    def turns_texts(self) -> bool:
        """Return True if a text is turned around after it was read."""
        return self.direction != LEFT_TO_RIGHT

    @cached_property
    def is_right_to_left(self) -> bool:
        """Return True if the dictionary has letters of Arabic, Hebrew or a like script."""
        return is_right_to_left(self.characters)

    def in_image_order(self, label: str) -> str:
        """Return a label of the data in the order of the image, in which it is encoded."""
        return turned(label) if self.direction == RIGHT_TO_LEFT else label

    def as_read(self, symbols: Sequence[str]) -> list[tuple[int, str]]:
        """Return decoded symbols in the order in which people read them, each with its position in the image."""
        return turned_symbols(symbols) if self.turns_texts else list(enumerate(symbols))

    def decoded_label(self, encoded: str) -> str:
        """Return the text that a reading must equal: in the order of texts, and with no unknown symbol.

        A character that is never read replaces the symbol.

        Args:
            encoded: what the class ids of the label stand for.
        """
        if self.unknown_symbol:
            other = next(c for c in _NEVER_READ if c not in self._ctc_ids)
            encoded = encoded.replace(self.unknown_symbol, other)
        return "".join(symbol for _, symbol in self.as_read(encoded))

    def label_to_compare(self, label: str) -> str:
        """Return the text that a reading must equal, from a label of the data, as an evaluation compares it."""
        return self.decoded_label(self.in_image_order(self.encoded(label)))

    def ids_to_read(self, label: str) -> list[int] | None:
        """Return the class ids of a label of the data in the order of the image; None if a character has none."""
        encoded = self.in_image_order(self.encoded(label))
        return None if self.unknown(encoded) else self.ids(encoded)

    def _folded(self, text: str) -> str:
        return text.lower() if self.folds_case else text


def characters_in(text: str) -> str:
    """Return the characters that an option names, each once: ``0-9A-Z`` is 36; a ``-`` at an end is itself.

    Raises:
        CharsetError: there is none, or a range runs backwards.
    """
    listed: list[str] = []
    for part in re.findall(r"(?s:.)-(?s:.)|(?s:.)", text):
        first, last = (part[0], part[2]) if len(part) == 3 else (part, part)
        if last < first:
            raise CharsetError(
                f"{part!r} is no range of characters (found {first!r} after {last!r}). Fix: write {last}-{first}.",
                code="bad_value",
            )
        listed += map(chr, range(ord(first), ord(last) + 1))
    if not listed:
        raise CharsetError("No character is named. Fix: write them, such as 0-9A-Z.", code="bad_value")
    return "".join(dict.fromkeys(listed))


def _read_lines(path: Path) -> list[str]:
    """Return the lines of the file without their ends, split as PaddleOCR splits them: only at ``\\n``."""
    try:
        data = read_at_most(path, MAX_DICTIONARY_BYTES)
    except OSError as error:
        raise CharsetError(
            f"{path}: the dictionary cannot be read: {error.strerror or error}.", code="unreadable_file"
        ) from error
    if not data.strip():
        raise CharsetError(
            f"{path}: the dictionary is empty. Fix: write one character per line.", code="empty_file"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CharsetError(
            f"{path}:{line}: the dictionary is not UTF-8: byte 0x{data[error.start]:02x} at offset "
            f"{error.start}. Fix: save it as UTF-8.",
            code="not_utf8",
        ) from error
    count = text.removesuffix("\n").count("\n") + 1
    if count > MAX_DICTIONARY_LINES:
        raise CharsetError(
            f"{path}: the dictionary has {count:,} lines, and the limit is {MAX_DICTIONARY_LINES:,}. Fix: write one "
            f"character per line, each once.",
            code="too_many_lines",
        )
    return [line.strip("\r") for line in text.removesuffix("\n").split("\n")]


def _problems(lines: Sequence[str], several: bool = False) -> list[str]:
    """Return the problems of the lines, each with its number; with ``several``, also lines of several characters."""
    bom = _BOM.decode("utf-8")
    first_at: dict[str, int] = {}
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.startswith(bom):
            problems.append("line 1: starts with a byte order mark")
            line = line.removeprefix(bom)
        if line == "":
            problems.append(f"line {number}: blank")
        elif line in first_at:
            problems.append(f"line {number}: {line!r} again, first on line {first_at[line]}")
        elif "\r" in line:
            problems.append(f"line {number}: a carriage return inside the line; end lines with \\n")
        elif several and len(line) > 1:
            problems.append(f"line {number}: {line!r}")
        first_at.setdefault(line, number)
    return problems


def _listing(entries: Sequence[str]) -> str:
    more = f"\n  … and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
    return "\n".join(f"  {entry}" for entry in entries[:_SHOWN]) + more
