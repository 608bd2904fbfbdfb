"""Forced alignment against all paths, tried one by one."""

import itertools

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.losses import CenterLoss
from ppocr_ext.losses.center_loss import forced_alignment


def best_path(scores: np.ndarray, label: list[int]) -> list[int]:
    """The most probable path that reads ``label``, of all there are; -1 throughout if there is none."""
    frames = len(scores)
    best, found = -np.inf, [-1] * frames
    for path in itertools.product(sorted({0, *label}), repeat=frames):
        read = [c for c, _ in itertools.groupby(path) if c]
        score = sum(float(scores[t, c]) for t, c in enumerate(path))
        if read == label and score > best:
            best, found = score, list(path)
    return found


@pytest.mark.parametrize("frames", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("longest", [1, 2, 3])
def test_equals_the_best_of_all_paths(frames, longest):
    rng = np.random.default_rng(frames * 10 + longest)
    scores = rng.normal(size=[8, frames, 4]).astype("float32")
    labels = rng.integers(1, 4, size=[8, longest])  # repeated neighbours among them
    lengths = rng.integers(0, longest + 1, size=8)
    found = forced_alignment(*map(paddle.to_tensor, (scores, labels, lengths))).numpy()
    for line in range(8):
        assert found[line].tolist() == best_path(scores[line], labels[line, : lengths[line]].tolist())


def test_a_label_that_does_not_fit_has_no_path():
    found = forced_alignment(
        paddle.zeros([3, 3, 5]),
        paddle.to_tensor([[1, 1, 0], [1, 2, 3], [1, 2, 3]]),
        paddle.to_tensor([2, 3, 2]),
    ).numpy()
    assert (found[0] >= 0).all()  # 1, blank, 1: just fits
    assert found[1].tolist() == [1, 2, 3]
    found = forced_alignment(
        paddle.zeros([1, 2, 5]), paddle.to_tensor([[1, 1]]), paddle.to_tensor([2])
    ).numpy()
    assert found.tolist() == [[-1, -1]]


@pytest.mark.parametrize("padding", [-1, -100, 999, 2])
def test_labels_are_padded_with_anything(padding):
    paddle.seed(0)
    scores, lengths = paddle.randn([2, 6, 5]), paddle.to_tensor([3, 1])
    expected = forced_alignment(scores, paddle.to_tensor([[1, 2, 3], [1, 0, 0]]), lengths)
    padded = paddle.to_tensor([[1, 2, 3], [1, padding, padding]])
    assert forced_alignment(scores, padded, lengths).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("label", "length", "found"), [([1, 2], 3, 3), ([1, 2], -1, -1), ([1, 5], 2, 5), ([-1, 2], 2, -1)]
)
def test_labels_that_cannot_be_are_refused(label, length, found):
    labels, lengths = paddle.to_tensor([[1, 2], label]), paddle.to_tensor([1, length])
    with raises_code(DataError, "bad_label", found):
        forced_alignment(paddle.zeros([2, 6, 5]), labels, lengths)


def test_scores_may_be_logits_or_log_probabilities():
    paddle.seed(0)
    logits = paddle.randn([4, 9, 7]) * 3
    labels, lengths = paddle.randint(1, 7, [4, 3]), paddle.to_tensor([3, 2, 1, 3])
    normalised = paddle.nn.functional.log_softmax(logits, axis=-1)
    assert (
        forced_alignment(logits, labels, lengths).numpy()
        == forced_alignment(normalised, labels, lengths).numpy()
    ).all()


@pytest.mark.parametrize("frames", ["argmax", "aligned"])
def test_center_loss_takes_float64(frames):
    paddle.seed(0)
    features, logits = paddle.randn([2, 6, 4]), paddle.randn([2, 6, 5])
    batch = [None, paddle.to_tensor([[1, 2, 3], [1, 1, -1]]), paddle.to_tensor([3, 2])]
    found = []
    for kind in ("float32", "float64"):
        given = paddle.to_tensor(features.numpy().astype(kind), stop_gradient=False)
        loss = CenterLoss(5, 4, update="ema", frames=frames)((given, logits.astype(kind)), batch)["loss"]
        loss.backward()
        assert given.grad.dtype == given.dtype and float(given.grad.abs().sum()) > 0
        found.append(float(loss))
    assert found[0] == found[1]
