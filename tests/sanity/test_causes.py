"""What is said of lessons: the most likely cause of each head that has not learned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import paddle
import pytest

from ppocr_ext.sanity.head_probe import Finding
from ppocr_ext.sanity.learning import APART, TOGETHER, Lesson, Point, remarks, sanity_page

HEAD: Any = SimpleNamespace(name="ctc", takes_labels=False, images=paddle.zeros([4, 3, 32, 64]))
DECODER: Any = SimpleNamespace(name="ctc", takes_labels=True)


def lesson(way: str, *losses: float, read: int = 0, head: Any = HEAD) -> Lesson:
    points = [Point(10 * n, loss, 0) for n, loss in enumerate(losses)]
    points[-1] = Point(points[-1].step, losses[-1], read)
    return Lesson(head, way, 20.0, "", points, [("a", "a")] * 4)


def said(*lessons: Lesson, findings: dict[str, list[Finding]]) -> str:
    return "\n".join(remarks(lessons, findings, 300))


def test_the_first_fault_is_the_most_likely_cause() -> None:
    found = [
        Finding("shift", "fault", "F1"),
        Finding("end", "fault", "F2"),
        Finding("positions", "ok", "fine"),
    ]
    text = said(lesson(TOGETHER, 20.0, 19.0), findings={"ctc": found})
    assert text.index("most likely cause: F1") < text.index("also: F2") and "fine" not in text


@pytest.mark.parametrize(
    ("lessons", "word"),
    [
        ([lesson(TOGETHER, 20.0, 19.0), lesson(APART, 20.0, 0.1, read=4)], "weights of the losses"),
        ([lesson(TOGETHER, 20.0, float("nan"))], "clip_norm_global"),
        ([lesson(TOGETHER, 20, 19, 18, 17, 16, 14, 10, 6)], "--steps 900"),
        ([lesson(TOGETHER, 20, 6, 6, 6, 6, 6, 6, 6)], "--samples 4"),
        ([lesson(TOGETHER, 20, 1, 1, 1, 1, 1, 1, 1)], "--samples 4"),  # CTC that finds only blanks
        ([lesson(TOGETHER, 20, 1, 1, 1, 1, 1, 1, 1, head=DECODER)], "max_len"),
    ],
)
def test_another_cause_if_the_structure_has_no_fault(lessons: list[Lesson], word: str) -> None:
    assert word in said(*lessons, findings={"ctc": [Finding("class_count", "ok", "")]})


def test_a_rate_so_far_outside_that_the_loss_falls_at_none() -> None:
    found = [Finding("learning_rate", "not tested", "It falls at none of them.")]
    text = said(lesson(TOGETHER, 20, 20, 20, 20, 20, 20, 20), findings={"ctc": found})
    assert "falls at none" in text and "Optimizer.lr.learning_rate" in text


def test_the_rate_of_a_head_that_learns_is_not_blamed() -> None:
    found = [Finding("learning_rate", "fault", "F1"), Finding("class_count", "ok", "")]
    assert "F1" not in said(lesson(TOGETHER, 20, 0.1, read=4), findings={"ctc": found})


def test_a_page_shows_success_in_the_colour_of_success() -> None:
    sound = [Finding("class_count", "ok", "fine")]
    learned = [lesson(TOGETHER, 20.0, 0.1, read=4)]
    failed = [lesson(TOGETHER, 20.0, 19.0)]
    good = sanity_page(learned, "t", "s", remarks(learned, {"ctc": sound}, 300))
    bad = sanity_page(failed, "t", "s", remarks(failed, {"ctc": sound}, 300))
    assert good.count('class="note finished"') == 2 and 'class="note"' not in good
    assert 'note finished"' not in bad and 'class="note"' in bad
