"""SARLoss against a plain loop, alone, in MultiLoss, and for sub-models."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ppocr_ext.errors import ModelError
from ppocr_ext.losses import build_loss

CLASSES, PADDING = 7, 7  # 5 characters, <UKN>, <BOS/EOS>; the padding is never predicted
LABELS = np.array([[6, 1, 2, 6, 7], [6, 3, 6, 7, 7]])


def drawn() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((2, LABELS.shape[1], CLASSES)).astype(np.float32)


def naive(logits: np.ndarray) -> float:
    losses = []
    for row, label in zip(logits, LABELS, strict=True):
        for position in range(LABELS.shape[1] - 1):
            target = label[position + 1]
            if target != PADDING:
                scores = np.exp(row[position].astype(np.float64))
                losses.append(-np.log(scores[target] / scores.sum()))
    return float(np.mean(losses))


def batch() -> list[paddle.Tensor]:
    """[image, label_ctc, label_sar, length, valid_ratio]; the label of CTC must not be read."""
    rest = [np.zeros((2, 3)), np.full((2, 5), 99), LABELS, np.array([2, 1]), np.ones(2)]
    return [paddle.to_tensor(each) for each in rest]


def test_sar_loss_alone() -> None:
    loss = build_loss({"name": "SARLoss", "ignore_index": PADDING})
    single = [each for index, each in enumerate(batch()) if index != 1]
    assert float(loss(paddle.to_tensor(drawn()), single)["loss"]) == pytest.approx(naive(drawn()), rel=1e-5)
    assert loss.required_outputs() == {(None, "sar")}


def test_sar_loss_in_multi_loss() -> None:
    entries = [{"SARLoss": {"ignore_index": PADDING}}]
    loss = build_loss({"name": "MultiLoss", "loss_config_list": entries, "weight_2": 0.5})
    parts = loss({"sar": paddle.to_tensor(drawn())}, batch())
    assert float(parts["loss"]) == pytest.approx(0.5 * naive(drawn()), rel=1e-5)


def test_sar_loss_of_sub_models() -> None:
    options = {"model_name_list": ["Student", "Teacher"], "key": "head_out", "multi_head": True}
    entry = {"DistillationSARLoss": {"weight": 1.0, **options, "ignore_index": PADDING}}
    loss = build_loss({"name": "CombinedLoss", "loss_config_list": [entry]})
    other = drawn()[::-1].copy()
    outputs = {
        name: {"head_out": {"sar": paddle.to_tensor(value)}}
        for name, value in (("Student", drawn()), ("Teacher", other))
    }
    parts = loss(outputs, batch())
    assert float(parts["loss_sar_Student_0"]) == pytest.approx(naive(drawn()), rel=1e-5)
    assert float(parts["loss_sar_Teacher_1"]) == pytest.approx(naive(other), rel=1e-5)
    assert loss.required_outputs() == {("Student", "sar"), ("Teacher", "sar")}


def test_labels_of_another_length_are_refused() -> None:
    loss = build_loss({"name": "SARLoss", "ignore_index": PADDING})
    single = [each for index, each in enumerate(batch()) if index != 1]
    with pytest.raises(ModelError) as error:
        loss(paddle.to_tensor(drawn()[:, :3]), single)
    assert error.value.code == "shape_mismatch"
