"""Frames of a batch and their classes, added up."""

import itertools

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.centers.collect import CenterAccumulator, classes_of_frames, read_correctly
from ppocr_ext.errors import DataError


def frames(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(3.0, 2.0, size=[count, 4]).astype(np.float32), rng.integers(-1, 6, size=count)


def test_means_counts_and_variance_are_those_of_plain_loops():
    added = CenterAccumulator(7, 4)
    features, ids = frames(0)
    added.add(features[:90], ids[:90])
    added.add(features[90:], ids[90:])
    assert added.present.tolist() == [0, 1, 2, 3, 4, 5]
    for row, c in enumerate(added.present):
        own = features[ids == c].astype(np.float64)
        assert added.counts[c] == len(own)
        np.testing.assert_allclose(added.centers()[row], own.mean(axis=0), rtol=1e-12)
        expected = ((own - own.mean(axis=0)) ** 2).sum(axis=1).mean()
        assert added.variance()[row] == pytest.approx(expected, rel=1e-9)


def test_a_partial_file_goes_on(tmp_path):
    features, ids = frames(2)
    first = CenterAccumulator(7, 4)
    first.add(features[:100], ids[:100])
    first.save(tmp_path / "partial.npz", 25, "model a")
    again = CenterAccumulator(7, 4)
    assert again.load(tmp_path / "partial.npz", "model a") == 25
    again.add(features[100:], ids[100:])
    whole = CenterAccumulator(7, 4)
    whole.add(features, ids)
    np.testing.assert_allclose(again.centers(), whole.centers(), rtol=1e-12)


def test_a_partial_file_of_something_else_is_refused(tmp_path):
    CenterAccumulator(7, 4).save(tmp_path / "partial.npz", 25, "model a")
    with raises_code(DataError, "other_pass", str(tmp_path / "partial.npz")):
        CenterAccumulator(7, 4).load(tmp_path / "partial.npz", "model b")
    (tmp_path / "partial.npz").write_bytes(b"PK\x03\x04 cut")
    with raises_code(DataError, "damaged_file"):
        CenterAccumulator(7, 4).load(tmp_path / "partial.npz", "model a")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sums", np.zeros([7, 3])),
        ("sums", np.zeros([7, 4], np.float32)),
        ("counts", np.zeros(6, np.int64)),
        ("counts", np.zeros(7)),
        ("counts", np.full(7, -1)),
        ("squares", np.zeros([7, 1])),
        ("squares", np.zeros(7, "U3")),
        ("done", np.zeros(2, np.int64)),
        ("done", np.zeros(3)),
        ("done", np.array([-1, 0, 0])),
        ("identity", np.array(["model a"])),
        ("identity", np.array(3)),
    ],
)
def test_every_array_of_a_partial_file_is_checked(tmp_path, name, value):
    path = tmp_path / "partial.npz"
    CenterAccumulator(7, 4).save(path, 25, "model a")
    with np.load(path) as content:
        arrays = {key: content[key] for key in content}
    np.savez(path, **{**arrays, name: value})
    again = CenterAccumulator(7, 4)
    with raises_code(DataError, "other_pass" if name == "identity" else "damaged_file"):
        again.load(path, "model a")
    assert again.sums.shape == (7, 4)
    assert not again.sums.any()


def test_a_byte_that_changed_is_found(tmp_path):
    path = tmp_path / "partial.npz"
    CenterAccumulator(7, 4).save(path, 25, "model a")
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)
    with raises_code(DataError, "damaged_file", str(path)):
        CenterAccumulator(7, 4).load(path, "model a")


def test_read_correctly_is_collapse_and_compare():
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


def test_labels_without_columns():
    found = read_correctly(np.array([[0, 0], [0, 1]]), np.zeros([2, 0], int), np.array([0, 0]))
    assert found.tolist() == [True, False]


def batch() -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    best = np.array([[1, 0, 2, 2], [1, 1, 0, 3], [0, 0, 2, 1]])
    logits = np.eye(4, dtype=np.float32)[best] * 9
    labels = np.array([[1, 2], [1, 2], [1, 2]])  # read correctly, wrong at its end, wrong order
    return paddle.to_tensor(logits), paddle.to_tensor(labels), paddle.to_tensor([2, 2, 2])


def test_argmax_takes_the_lines_read_correctly():
    classes, correct = classes_of_frames(*batch())
    assert correct.tolist() == [True, False, False]
    assert classes.tolist() == [[1, 0, 2, 2], [-1] * 4, [-1] * 4]
    classes, _ = classes_of_frames(*batch(), all_lines=True)
    assert classes[1].tolist() == [1, 1, 0, 3]


def test_aligned_takes_every_line_and_never_a_class_outside_its_label():
    classes, correct = classes_of_frames(*batch(), frames="aligned")
    assert correct.tolist() == [True, False, False]
    assert classes[0].tolist() == [1, 0, 2, 2]
    assert set(classes[1:].ravel().tolist()) <= {0, 1, 2}
    assert all([c for c, _ in itertools.groupby(row) if c] == [1, 2] for row in classes.tolist())
