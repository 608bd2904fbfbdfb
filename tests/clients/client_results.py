"""Compare what a client reads with what the network reads, and make a table of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ppocr_ext.recognition.ctc_text import Reading

Found = tuple[str | None, float | str]  # text and confidence, or None and the error


@dataclass(frozen=True)
class Comparison:
    """How many texts are equal, and the largest difference of confidence among those."""

    equal: int
    images: int
    difference: float

    @property
    def share(self) -> float:
        return self.equal / self.images

    def __str__(self) -> str:
        return f"{self.equal} of {self.images}"


def compare(found: Sequence[Found], expected: Sequence[Reading]) -> Comparison:
    """Compare a client with the network, image by image."""
    assert len(found) == len(expected)
    pairs = zip(found, expected, strict=True)
    same = [(float(one[1]), other.confidence) for one, other in pairs if one[0] == other.text]
    return Comparison(len(same), len(found), max((abs(a - b) for a, b in same), default=0.0))


@dataclass
class Results:
    """Rows of the table: client → column → comparison."""

    rows: dict[str, dict[str, Comparison]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def add(self, client: str, column: str, comparison: Comparison) -> None:
        self.rows.setdefault(client, {})[column] = comparison

    def table(self) -> str:
        columns = ("squash", "pad", "wide")
        head = ["client", "*squash*", "*pad*", "*pad*, wider than 3200", "confidence"]
        lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        for client, found in self.rows.items():
            cells = [str(found.get(column, "–")) for column in columns]
            largest = max(each.difference for each in found.values())
            lines.append("| " + " | ".join([client, *cells, f"{largest:.0e}"]) + " |")
        return "\n".join([*lines, "", *self.remarks])
