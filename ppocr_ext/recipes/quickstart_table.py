"""The table of results of the quickstart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TEST_IMAGES = 1_000


@dataclass(frozen=True)
class StageResult:
    """One row of the table.

    Attributes:
        name: of the stage.
        parameters: of the whole network, both heads.
        steps: optimizer steps.
        minutes: training time, with evaluations.
        accuracy: share of held-out images without an error.
        similarity: 1 - normalised edit distance, mean over the images.
    """

    name: str
    parameters: int
    steps: int
    minutes: float
    accuracy: float
    similarity: float


def to_markdown(results: Sequence[StageResult]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"| model | parameters | steps | minutes | accuracy on {TEST_IMAGES:,} held-out images | 1 - NED |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.name} | {r.parameters / 1e6:.2f} M | {r.steps} | {r.minutes:.1f} "
        f"| {r.accuracy:.1%} | {r.similarity:.4f} |"
        for r in results
    ]
    return "\n".join(lines)
