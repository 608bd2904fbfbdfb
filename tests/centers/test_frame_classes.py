from __future__ import annotations

import itertools

import numpy as np
import paddle

from ppocr_ext.centers.collect import classes_of_frames, read_correctly


def test_read_correctly_is_collapse_and_compare() -> None:
    rng = np.random.default_rng(0)
    best = rng.integers(0, 3, size=[400, 5])
    labels = rng.integers(1, 3, size=[400, 4])
    lengths = rng.integers(0, 5, size=400)
    found = read_correctly(best, labels, lengths)
    expected = [
        [c for c, _ in itertools.groupby(row) if c] == labels[i, : lengths[i]].tolist()
        for i, row in enumerate(best.tolist())
    ]
    assert found.tolist() == expected
    assert 10 < sum(expected) < 390


def test_labels_without_columns() -> None:
    found = read_correctly(np.array([[0, 0], [0, 1]]), np.zeros([2, 0], int), np.array([0, 0]))
    assert found.tolist() == [True, False]


def batch() -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    best = np.array([[1, 0, 2, 2], [1, 1, 0, 3], [0, 0, 2, 1]])
    logits = np.eye(4, dtype=np.float32)[best] * 9
    labels = np.array([[1, 2], [1, 2], [1, 2]])  # read correctly, wrong at its end, wrong order
    return paddle.to_tensor(logits), paddle.to_tensor(labels), paddle.to_tensor([2, 2, 2])


def test_argmax_takes_the_lines_read_correctly() -> None:
    classes, correct = classes_of_frames(*batch())
    assert correct.tolist() == [True, False, False]
    assert classes.tolist() == [[1, 0, 2, 2], [-1] * 4, [-1] * 4]
    classes, _ = classes_of_frames(*batch(), all_lines=True)
    assert classes[1].tolist() == [1, 1, 0, 3]


def test_aligned_takes_every_line_and_never_a_class_outside_its_label() -> None:
    classes, correct = classes_of_frames(*batch(), frames="aligned")
    assert correct.tolist() == [True, False, False]
    assert classes[0].tolist() == [1, 0, 2, 2]
    assert set(classes[1:].ravel().tolist()) <= {0, 1, 2}
    assert all([c for c, _ in itertools.groupby(row) if c] == [1, 2] for row in classes.tolist())
