from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.centers.collect import CenterAccumulator
from ppocr_ext.errors import DataError


def frames(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(3.0, 2.0, size=[count, 4]).astype(np.float32), rng.integers(-1, 6, size=count)


def test_means_counts_and_variance_are_those_of_plain_loops() -> None:
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


def test_a_partial_file_goes_on(tmp_path: Path) -> None:
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


def test_a_partial_file_of_something_else_is_refused(tmp_path: Path) -> None:
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
def test_every_array_of_a_partial_file_is_checked(tmp_path: Path, name: str, value: np.ndarray) -> None:
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


def test_a_byte_that_changed_is_found(tmp_path: Path) -> None:
    path = tmp_path / "partial.npz"
    CenterAccumulator(7, 4).save(path, 25, "model a")
    content = bytearray(path.read_bytes())
    content[200] ^= 255
    path.write_bytes(content)
    with raises_code(DataError, "damaged_file", str(path)):
        CenterAccumulator(7, 4).load(path, "model a")
