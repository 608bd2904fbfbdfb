from __future__ import annotations

import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.charset import Charset
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
    for name in ("class_ids", "centers", "counts", "variance"):
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


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pickles_of_numpy_1_and_2_are_read(tmp_path: Path, module: bytes, dtype: type) -> None:
    """As PaddleOCR's export writes them: keys are NumPy's own integers."""
    written = pickle.dumps({np.int64(c): np.full(3, c / 4, dtype) for c in (7, 0, 2)}, protocol=4)
    here = next(name for name in (b"numpy._core.multiarray", b"numpy.core.multiarray") if name in written)
    renamed = written.replace(bytes([len(here)]) + here, bytes([len(module)]) + module)
    head = len(b"\x80\x04\x95") + 8  # protocol and frame, whose length follows
    (tmp_path / "c.pkl").write_bytes(written[:3] + struct.pack("<Q", len(renamed) - head) + renamed[head:])
    back = read_centers(tmp_path / "c.pkl")
    assert back.class_ids.tolist() == [0, 2, 7]
    assert back.centers.dtype == np.float32
    np.testing.assert_array_equal(back.centers[:, 0], [0.0, 0.5, 1.75])


class Hostile:
    def __reduce__(self) -> tuple:
        return (os.mkdir, ("owned",))


def test_code_in_a_pickle_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.pkl").write_bytes(pickle.dumps({1: Hostile()}))
    with raises_code(DataError, "damaged_file", "posix.mkdir"):
        read_centers("c.pkl")
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    "content",
    [
        {},
        [1, 2],
        {"a": np.ones(2)},
        {1: np.ones([2, 2])},
        {1: 3.0},
        {-1: np.ones(2)},
        {True: np.ones(2)},
        {10**18: np.ones(2)},
        {1: "ab"},
        {1: np.array(["a", "b"])},
        {1: np.ones(2, complex)},
        {1: np.ones(2), 2: np.ones(3)},
    ],
)
def test_pickles_of_something_else_are_refused(tmp_path: Path, content: object) -> None:
    (tmp_path / "c.pkl").write_bytes(pickle.dumps(content))
    with raises_code(DataError, "bad_content"):
        read_centers(tmp_path / "c.pkl")


def test_a_file_cut_short_or_missing_is_refused(tmp_path: Path) -> None:
    table().save(tmp_path / "c.npz")
    whole = (tmp_path / "c.npz").read_bytes()
    for size in (0, 1, 30, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(DataError):
            read_centers(tmp_path / "cut.npz")
    with raises_code(DataError, "missing_file"):
        read_centers(tmp_path / "none.npz")


@pytest.mark.parametrize("rows", [10**13, 10**30])
def test_more_rows_than_the_file_has_are_refused(tmp_path: Path, rows: int) -> None:
    table().save(tmp_path / "c.npz")
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 4), }}".ljust(117).encode() + b"\n"
    with zipfile.ZipFile(tmp_path / "c.npz") as whole, zipfile.ZipFile(tmp_path / "huge.npz", "w") as huge:
        for name in whole.namelist():
            claims = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
            huge.writestr(name, claims if name == "centers.npy" else whole.read(name))
    with raises_code(DataError, "damaged_file"):
        read_centers(tmp_path / "huge.npz")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"class_ids": np.array([0, 3, 1])}, "bad_content"),
        ({"class_ids": np.array([0, 1])}, "bad_content"),
        ({"class_ids": np.array([-1, 1, 2])}, "bad_content"),
        ({"counts": np.ones(2)}, "bad_content"),
        ({"characters": np.array(["a"])}, "bad_content"),
        ({"centers": np.ones(3, np.float32)}, "bad_content"),
        ({"centers": np.ones([3, 2], complex)}, "bad_content"),
        ({"centers": np.ones([3, 0], np.float32)}, "bad_content"),
        ({"variance": np.array(["a", "b", "c"])}, "bad_content"),
        ({"variance": None}, "bad_content"),
        ({"meta": np.array("[1, 2]")}, "bad_content"),
        ({"meta": np.array("{")}, "bad_content"),
        ({"centers": np.full([3, 2], np.nan)}, "not_finite"),
        ({"centers": np.full([3, 2], 1e300)}, "not_finite"),
        ({"characters": np.array([Hostile(), "a", "b"], dtype=object)}, "damaged_file"),
    ],
)
def test_arrays_that_are_no_centers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    table().save(tmp_path / "c.npz")
    with np.load("c.npz") as content:
        arrays = {**content, **change}
    np.savez("c.npz", **{name: array for name, array in arrays.items() if array is not None})
    with raises_code(DataError, code):
        read_centers("c.npz")
    assert not Path("owned").exists()


def test_another_dictionary_is_refused() -> None:
    table(charset_digest=ABC.digest).check_fits(ABC, "c.npz")
    table().check_fits(ABC, "c.pkl")  # a pickle does not say
    with raises_code(DataError, "charset_mismatch"):
        table(charset_digest="f" * 8).check_fits(ABC, "c.npz")
    with raises_code(DataError, "charset_mismatch", "class 3", "3 classes"):
        table().check_fits(Charset(tuple("ab")), "c.pkl")
