"""A pickle or an .npz takes at most some memory for its size, however it is written."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.checkpoint.files import read_plain_pickle
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.io.plain_pickle import load_plain_pickle
from ppocr_ext.limits import most_memory


class Call:
    """Pickled as a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call


def copies_of_an_array() -> bytes:
    bytes_, make = b"A" * 400_000, np.empty(0).__reduce__()[0]
    state = (1, (100_000,), np.dtype("f4"), False, bytes_)
    return pickle.dumps([Call(make, (np.ndarray, (0,), b"b"), state) for _ in range(3000)], 4)


def copies_of_a_list(kind: type) -> bytes:
    items = list(range(100_000))
    return pickle.dumps([Call(kind, (items,)) for _ in range(5000)], 4)


HOSTILE = {
    "arrays": copies_of_an_array,
    "tuples": lambda: copies_of_a_list(tuple),
    "lists": lambda: copies_of_a_list(list),
    "sets": lambda: copies_of_a_list(set),
    "empty sets": lambda: b"\x80\x04(" + b"\x8f" * 1_500_000 + b"l.",
    "marks": lambda: b"\x80\x04" + b"(" * 1_500_000 + b".",
    "memo": lambda: b"\x80\x04]" + b"\x94" * 1_500_000 + b".",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_pickle_that_takes_too_much_memory_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "weights.pdparams"
    file.write_bytes(HOSTILE[name]())
    with raises_code(WeightsError, "damaged_file", f"{most_memory(file.stat().st_size):,}"):
        read_plain_pickle(file)


def test_the_memory_of_the_process_stays_near_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(copies_of_an_array())
    code = (
        "import resource, sys; from pathlib import Path; from ppocr_ext.io.plain_pickle import *\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: load_plain_pickle(Path(sys.argv[1]))\n"
        "except PlainPickleError: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 400_000  # KiB; without the limit 1.2 GB


@pytest.mark.parametrize("protocol", [2, 4])
def test_honest_files_stay_far_below(tmp_path: Path, protocol: int) -> None:
    centers = {number: np.full(64, number, np.float32) for number in range(18_000 if protocol == 2 else 100)}
    weights = {f"layer{number}.weight": np.ones((64, 64), np.float32) for number in range(500)}
    for content in (centers, weights):
        (tmp_path / "file").write_bytes(pickle.dumps(content, protocol))
        back = load_plain_pickle(tmp_path / "file")
        assert all((back[key] == content[key]).all() for key in content)


def test_an_npz_that_was_compressed_from_gigabytes_is_refused(tmp_path: Path) -> None:
    table = CenterTable(
        np.arange(2), ("blank", "a"), np.ones((2, 4), np.float32), np.ones(2, np.int64), np.ones(2), {}
    )
    table.save(tmp_path / "good.npz")
    assert read_centers(tmp_path / "good.npz").centers.tolist() == table.centers.tolist()
    with zipfile.ZipFile(tmp_path / "good.npz") as good, zipfile.ZipFile(tmp_path / "bomb.npz", "w") as bomb:
        for name in good.namelist():
            bomb.writestr(name, good.read(name))
        bomb.writestr("zeros.npy", bytes(300_000_000), zipfile.ZIP_DEFLATED, 1)
    assert (tmp_path / "bomb.npz").stat().st_size < 2_000_000
    with raises_code(DataError, "damaged_file", "limit"):
        read_centers(tmp_path / "bomb.npz")
