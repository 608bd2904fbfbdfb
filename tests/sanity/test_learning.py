"""Learn one batch by heart: which heads are trained how, and what counts as learned."""

from __future__ import annotations

from pathlib import Path

import paddle
import pytest
from sanity_runs import learner
from tiny_runs import single_head

from ppocr_ext.sanity.learning import APART, TOGETHER, Lesson, Point, learn
from ppocr_ext.sanity.subject import open_subject

NECK = "Architecture.Head.head_list.CTCHead.Neck"
GUIDED = {"name": "svtr", "dims": 48, "depth": 1, "hidden_dims": 48, "kernel_size": [1, 3], "use_guide": True}


def lesson(loss: float, read: int) -> Lesson:
    return Lesson(None, APART, 10.0, "", [Point(0, 10.0, 0), Point(10, loss, read)], [("a", "a")] * 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loss", "read", "passed"),
    [
        (5.0, 9, True),
        (5.0, 8, False),
        (0.9, 5, True),
        (0.9, 4, False),  # the answer may be among the inputs of a decoder
        (float("nan"), 0, False),
    ],
)
def test_what_counts_as_learned(loss: float, read: int, passed: bool) -> None:
    assert lesson(loss, read).passed is passed


@pytest.mark.e2e
def test_both_heads_learn_together_and_apart(short_texts: Path) -> None:
    found = list(learn(open_subject(learner(short_texts), 4), 200))
    ways = [(each.head.name, each.way) for each in found]
    assert ways == [("ctc", TOGETHER), ("gtc", TOGETHER), ("ctc", APART), ("gtc", APART)]
    for each in found:
        assert each.passed and not each.note
        assert each.points[0].read == 0 and each.points[-1].loss < each.points[0].loss / 4
        assert sum(text == label for text, label in each.readings) >= 4 * 0.9
    assert found[0].points[0].loss == pytest.approx(found[2].points[0].loss)  # the same first weights


@pytest.mark.e2e
def test_a_guided_head_gets_the_backbone_that_the_other_one_has_trained(short_texts: Path) -> None:
    subject = open_subject(learner(short_texts, **{NECK: GUIDED}), 4)
    weight = subject.network.backbone.parameters()[0]
    first = weight.clone()
    lessons = learn(subject, 200)
    next(lessons), next(lessons)
    trained = weight.clone()
    ctc, gtc = lessons
    assert not bool(paddle.allclose(first, trained))
    assert "use_guide" in ctc.note and not gtc.note and ctc.passed
    assert ctc.points[0].read < 4  # the head itself begins again


@pytest.mark.e2e
def test_one_head_is_trained_once(short_texts: Path) -> None:
    [only] = learn(open_subject(single_head(learner(short_texts)), 4), 200)
    assert (only.way, only.passed) == (TOGETHER, True)


@pytest.mark.e2e
def test_one_head_with_a_teacher_is_trained_with_it_and_without(short_texts: Path) -> None:
    loss = learner(short_texts, "distill").thaw()["Loss"]
    del loss["loss_config_list"][1]  # of the second head
    found = list(learn(open_subject(learner(short_texts, "distill", Loss=loss), 4), 10))
    assert [(each.head.name, each.way) for each in found] == [("ctc", TOGETHER), ("ctc", APART)]
    assert found[0].points[-1].loss != pytest.approx(found[1].points[-1].loss)
