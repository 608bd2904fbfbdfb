from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.data.center_table import CenterTable, read_centers
from ppocr_ext.errors import DataError

ABC = Charset(tuple("abc"))


def table(**meta: object) -> CenterTable:
    return CenterTable(
        np.array([0, 1, 3]),
        ("blank", "a", "未"),
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.array([50, 3, 7]),
        np.array([0.5, 0.25, 1.0]),
        meta,
    )


def test_a_table_is_read_back_as_written(tmp_path: Path) -> None:
    table(split="train", charset="词.txt").save(tmp_path / "c.npz")
    back = read_centers(tmp_path / "c.npz")
    for name in ("class_ids", "centers", "counts", "spread"):
        np.testing.assert_array_equal(getattr(back, name), getattr(table(), name))
    assert back.characters == ("blank", "a", "未")
    assert back.meta == {"split": "train", "charset": "词.txt"}
    assert back.centers.dtype == np.float32
    assert back.class_ids.dtype == back.counts.dtype == np.int64


def test_the_pickle_is_what_paddleocr_reads(tmp_path: Path) -> None:
    table().save_pickle(tmp_path / "c.pkl")
    with (tmp_path / "c.pkl").open("rb") as stream:
        content = pickle.load(stream)
    assert sorted(content) == [0, 1, 3]
    assert all(
        type(key) is int and row.dtype == np.float32 and row.shape == (2,) for key, row in content.items()
    )
    back = read_centers(tmp_path / "c.pkl")
    np.testing.assert_array_equal(back.centers, table().centers)
    np.testing.assert_array_equal(back.class_ids, [0, 1, 3])


def test_keys_of_numpy_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "c.pkl").write_bytes(pickle.dumps({np.int64(4): np.ones(2), np.int64(2): np.zeros(2)}))
    assert read_centers(tmp_path / "c.pkl").class_ids.tolist() == [2, 4]


class Hostile:
    def __reduce__(self) -> tuple:
        return (os.mkdir, ("owned",))


def test_code_in_a_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.pkl").write_bytes(pickle.dumps({1: Hostile()}))
    with pytest.raises(DataError, match="it wants to call posix.mkdir"):
        read_centers("c.pkl")
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    "content",
    [{}, [1, 2], {"a": np.ones(2)}, {1: np.ones([2, 2])}, {1: 3.0}, {-1: np.ones(2)}, {True: np.ones(2)}],
)
def test_pickles_of_something_else_are_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / "c.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match="holds no centers by class id"):
        read_centers(tmp_path / "c.pkl")


def test_centers_of_different_sizes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.pkl").write_bytes(pickle.dumps({1: np.ones(2), 2: np.ones(3)}))
    with pytest.raises(DataError, match="different numbers of features"):
        read_centers(tmp_path / "c.pkl")


def test_a_file_cut_short_or_missing_is_refused(tmp_path: Path) -> None:
    table().save(tmp_path / "c.npz")
    whole = (tmp_path / "c.npz").read_bytes()
    for size in (0, 1, 30, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(DataError):
            read_centers(tmp_path / "cut.npz")
    with pytest.raises(DataError, match="There is no file of centers"):
        read_centers(tmp_path / "none.npz")


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", a=np.ones(3))
    with pytest.raises(DataError, match="lacks class_ids"):
        read_centers(tmp_path / "c.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"class_ids": np.array([0, 3, 1])},
        {"class_ids": np.array([0, 1])},
        {"class_ids": np.array([-1, 1, 2])},
        {"counts": np.ones(2)},
        {"characters": ("a",)},
        {"centers": np.ones(3, np.float32)},
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(tmp_path: Path, change: dict) -> None:
    fields = {**table().__dict__, **change}
    CenterTable(**fields).save(tmp_path / "c.npz")
    with pytest.raises(DataError, match="do not fit each other"):
        read_centers(tmp_path / "c.npz")


def test_a_center_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    fields = {**table().__dict__, "centers": np.full([3, 2], np.nan, np.float32)}
    CenterTable(**fields).save(tmp_path / "c.npz")
    with pytest.raises(DataError, match="not finite"):
        read_centers(tmp_path / "c.npz")


def test_another_dictionary_is_refused() -> None:
    table(charset_digest=ABC.digest).check_fits(ABC, "c.npz")
    table().check_fits(ABC, "c.pkl")  # a pickle does not say
    with pytest.raises(DataError, match="another dictionary"):
        table(charset_digest="f" * 8).check_fits(ABC, "c.npz")
    with pytest.raises(DataError, match="class 3, but .* gives 3 classes"):
        table().check_fits(Charset(tuple("ab")), "c.pkl")
