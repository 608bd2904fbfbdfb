"""Each loss gets from a cache what it gets from the teacher, within 1e-3, or says that it cannot."""

import numpy as np
import paddle
import pytest

from ppocr_ext.losses import (
    CombinedLoss,
    CTCFrameKDLoss,
    DistillationCTCLoss,
    DistillationDistanceLoss,
    DistillationDKDLoss,
    DistillationDMLLoss,
    DistillationKLDivLoss,
    DistillCTCLogits,
    MaskedDKDLoss,
)
from ppocr_ext.teacher_cache.lookup import MOST_DROPPED, branches_to_keep, reasons_against
from ppocr_ext.teacher_cache.store import dense_logits, top_classes

PAIR = {"model_name_pairs": [["Student", "Teacher"]], "key": "head_out"}
BOTH = {**PAIR, "multi_head": True}
CLASSES, SHAPES = 800, {"ctc": (4, 20), "gtc": (4, 9)}
# the losses of a teacher, and whether they need all classes
LOSSES = {
    "frames": (CTCFrameKDLoss(**BOTH), False),
    "frames, sharp": (CTCFrameKDLoss(**BOTH, temperature=0.5), False),
    "frames, soft": (CTCFrameKDLoss(**BOTH, temperature=2.0), True),
    "kl of ctc": (DistillationKLDivLoss(**BOTH, dis_head="ctc"), False),
    "kl of nrtr": (DistillationKLDivLoss(**BOTH, dis_head="gtc"), False),
    "target of dkd": (MaskedDKDLoss(**BOTH, beta=0.0), False),
    "dkd": (DistillationDKDLoss(**BOTH, dis_head="gtc"), True),
    "masked dkd": (MaskedDKDLoss(**BOTH), True),
    "masked dkd of ctc": (MaskedDKDLoss(**BOTH, dis_head="ctc"), True),
    "ctc logits": (DistillCTCLogits(**PAIR), True),
    "dml": (DistillationDMLLoss(**BOTH, act="softmax", use_log=True), True),
}


def teacher(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Logits of a teacher that is as sure as `MOST_DROPPED` allows: blanks, and characters with look-alikes."""
    logits = rng.normal(0, 1.5, (*shape, CLASSES))
    flat = logits.reshape(-1, CLASSES)
    rows, is_character = np.arange(len(flat)), rng.random(len(flat)) < 0.5
    for _ in range(5):
        flat[rows, rng.integers(0, CLASSES, len(flat))] += 9 * is_character
    flat[rows, rng.integers(1, CLASSES, len(flat)) * is_character] += 17
    return logits.astype(np.float32)


@pytest.fixture(scope="module", params=["new", "trained"])
def batch_of_logits(request):
    """Logits of the teacher and of a student, by branch, and the batch."""
    rng = np.random.default_rng(11)
    teachers = {name: teacher(rng, shape) for name, shape in SHAPES.items()}
    students = {
        name: rng.normal(0, 1, logits.shape) + (0 if request.param == "new" else logits)
        for name, logits in teachers.items()
    }
    label = np.concatenate([np.full((4, 1), 2), teachers["gtc"].argmax(axis=-1), np.zeros((4, 3))], axis=1)
    batch = [np.zeros((4, 3, 8, 8)), np.zeros((4, 13)), label, np.full(4, 7), np.ones(4)]
    types = ("float32", "int64", "int64", "int64", "float32")
    return (
        teachers,
        students,
        [paddle.to_tensor(each.astype(t)) for each, t in zip(batch, types, strict=True)],
    )


def value(loss, students, teachers, batch) -> float:
    return value_and_gradient(loss, students, teachers, batch)[0]


def value_and_gradient(loss, students, teachers, batch) -> tuple[float, np.ndarray]:
    """Return the loss and its gradient for all logits of the student, in a row."""
    heads = {
        model: {name: paddle.to_tensor(each.astype(np.float32)) for name, each in logits.items()}
        for model, logits in (("Student", students), ("Teacher", teachers))
    }
    for logits in heads["Student"].values():
        logits.stop_gradient = False
    total = loss({model: {"head_out": logits} for model, logits in heads.items()}, batch)["loss"]
    total.backward()
    found = [each.grad.numpy().ravel() for each in heads["Student"].values() if each.grad is not None]
    return float(total), np.concatenate(found)


def restored(teachers: dict[str, np.ndarray], k: int) -> tuple[dict[str, np.ndarray], float]:
    found, dropped = {}, 0.0
    for name, logits in teachers.items():
        kept = top_classes(logits.reshape(-1, CLASSES), k, 0 if name == "ctc" else None)
        found[name] = dense_logits([kept], CLASSES).numpy().reshape(logits.shape)
        dropped = max(dropped, float(kept.mass(CLASSES).mean()))
    return found, dropped


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_differs_by_at_most_a_thousandth_and_its_gradient_by_three(name, batch_of_logits):
    teachers, students, batch = batch_of_logits
    loss, everything = LOSSES[name]
    assert loss.needs_all_classes() is everything
    stored, dropped = restored(teachers, CLASSES if everything else 64)
    assert dropped < MOST_DROPPED
    assert everything or dropped > MOST_DROPPED / 10  # else any loss could be served
    live, gradient = value_and_gradient(loss, students, teachers, batch)
    cached, cached_gradient = value_and_gradient(loss, students, stored, batch)
    assert abs(cached - live) < 1e-3 * max(1.0, live)
    assert np.linalg.norm(cached_gradient - gradient) < 3e-3 * np.linalg.norm(gradient)


@pytest.mark.parametrize("batch_of_logits", ["trained"], indirect=True)
@pytest.mark.parametrize("name", [name for name, (_, everything) in LOSSES.items() if everything])
def test_a_loss_that_needs_all_classes_would_differ(name, batch_of_logits):
    teachers, students, batch = batch_of_logits
    loss = LOSSES[name][0]
    live = value(loss, students, teachers, batch)
    assert abs(value(loss, students, restored(teachers, 64)[0], batch) - live) > 1e-3 * max(1.0, live)


def test_what_is_kept_follows_from_the_losses():
    frames = {**BOTH, "weight": 1.0}
    combined = CombinedLoss(
        [{"CTCFrameKDLoss": frames}, {"DistillationDKDLoss": {**frames, "dis_head": "gtc"}}]
    )
    assert branches_to_keep(combined, "Teacher") == {"ctc": False, "gtc": True}
    assert branches_to_keep(combined, "Other") == {}
    assert reasons_against(combined, "Teacher") == []
    assert branches_to_keep(DistillationCTCLoss(["Student"], "head_out", True), "Teacher") == {}


def test_features_and_unknown_losses_cannot_be_served():
    neck = DistillationDistanceLoss(model_name_pairs=[["Student", "Teacher"]], key="neck_out")
    [reason] = reasons_against(neck, "Teacher")
    assert "DistillationDistanceLoss" in reason and "neck" in reason

    def plugin(predicts, batch):
        raise AssertionError("it is not called")

    [reason] = reasons_against(plugin, "Teacher")
    assert "function" in reason
