"""Tell columns of numbers after the label from text that is cut off, and find labels in quotes; imports no Paddle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

EXAMPLES = 3
_IS_NUMBER = re.compile(rb" *[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)? *|").fullmatch  # or no value


@dataclass
class FurtherColumns:
    """The columns after the label, which PaddleOCR leaves out, of the usable lines of one label file.

    Attributes:
        kinds: how many columns of numbers a line has; -1 for a line with text in one.
        counts: lines whose label begins with a quotation mark, as programs write CSV (``quoted_label``; where a tab
            is the delimiter, the mark is text), and other lines in which something is left out (``cut_label``).
        examples: the first lines of each: what they count as, line number, label, and what is left out.
    """

    kinds: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, int, str, str]] = field(default_factory=list)

    def add(self, first: int, lines: Sequence[bytes], usable: Sequence[int], delimiter: bytes) -> None:
        """Take the next lines with their ends, from number ``first`` on, and whether each is usable."""
        text, quote = b"".join(lines), b'"' if delimiter != b"\t" else b"\n"  # no label contains a line end
        if text.count(delimiter) == len(lines) and delimiter + quote not in text and 0 not in usable:
            self.kinds.add(0)  # without a look at each line
            return
        for number, line in compress(enumerate(lines, first), usable):
            _, label, *rest = line.rstrip(b"\r\n").split(delimiter)
            self.kinds.add(len(rest) if all(map(_IS_NUMBER, rest)) else -1)
            code = "quoted_label" if label.startswith(quote) and label != quote else "cut_label"
            if code == "quoted_label" or any(rest):
                self.counts[code] += 1
                if self.counts[code] <= EXAMPLES:
                    self.examples.append((code, number, label.decode(), delimiter.join(rest).decode()))
