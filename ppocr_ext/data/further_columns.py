"""Tell columns of numbers after the label from text that a delimiter inside the label cuts off; imports no Paddle."""

from __future__ import annotations

import re
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
        cut: lines in which something is left out.
        examples: the first of them: line number, label, and what is left out.
    """

    kinds: set[int] = field(default_factory=set)
    cut: int = 0
    examples: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, first: int, lines: Sequence[bytes], usable: Sequence[int], delimiter: bytes) -> None:
        """Take the next lines with their ends, from number ``first`` on, and whether each is usable."""
        if b"".join(lines).count(delimiter) == len(lines) and 0 not in usable:
            self.kinds.add(0)  # without a look at each line
            return
        for number, line in compress(enumerate(lines, first), usable):
            _, label, *rest = line.rstrip(b"\r\n").split(delimiter)
            self.kinds.add(len(rest) if all(map(_IS_NUMBER, rest)) else -1)
            if any(rest):
                self.cut += 1
                if self.cut <= EXAMPLES:
                    self.examples.append((number, label.decode(), delimiter.join(rest).decode()))
