"""What the reader of pickles admits, and that nothing in a file can do harm."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppocr_ext.io.plain_pickle import PlainPickleError, load_plain_pickle

ARRAYS = {
    "f4": np.arange(6, dtype="f4").reshape(2, 3),
    "bfloat16": np.arange(5, dtype="u2"),
    "bool": np.array([True, False]),
    "0-d": np.array(3, "i8"),
    "empty": np.zeros([0, 4], "f8"),
    "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "sliced": np.arange(12.0).reshape(3, 4)[:, ::2],
    "big-endian": np.arange(3, dtype=">f4"),
    "text": np.array(["a", "未来"]),
    "bytes": np.array([b"ab"]),
    "complex": np.ones(2, "c8"),
    "large": np.arange(100_000, dtype="f4"),
}


def load(tmp_path: Path, content: bytes) -> Any:
    (tmp_path / "file").write_bytes(content)
    return load_plain_pickle(tmp_path / "file")


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_are_read_as_they_were(tmp_path: Path, protocol: int) -> None:
    for name, array in ARRAYS.items():
        back = load(tmp_path, pickle.dumps({name: array}, protocol))[name]
        assert type(back) is np.ndarray, name
        assert back.dtype.newbyteorder("=") == array.dtype.newbyteorder("="), name
        assert back.flags.writeable, name
        assert back.flags.f_contiguous == array.flags.f_contiguous, name
        np.testing.assert_array_equal(back, array, err_msg=name)


@pytest.mark.parametrize("protocol", range(6))
def test_scalars_and_containers_are_read(tmp_path: Path, protocol: int) -> None:
    content = {
        "scalars": [np.float32(1.5), np.int64(-3), np.bool_(True), np.float64(2.5), np.str_("未")],
        "ordered": OrderedDict([("b", (1, np.ones(2))), ("a", None)]),
        "plain": {"set": {1, 2}, "bytes": b"\xff", "text": "词", "number": 2**70},
        "dtype": np.dtype("f4"),
    }
    back = load(tmp_path, pickle.dumps(content, protocol))
    assert back["scalars"] == content["scalars"]
    assert [type(x) for x in back["scalars"]] == [type(x) for x in content["scalars"]]
    assert list(back["ordered"]) == ["b", "a"]
    np.testing.assert_array_equal(back["ordered"]["b"][1], np.ones(2))
    assert back["plain"] == content["plain"]
    assert back["dtype"] == np.dtype("f4")


def test_what_is_shared_stays_shared(tmp_path: Path) -> None:
    array, pair = np.ones(3), ([],)
    around: list[Any] = [array, array, pair, pair]
    around.append(around)
    back = load(tmp_path, pickle.dumps(around))
    assert back[0] is back[1] and back[2] is back[3] and back[4] is back


class Made:
    """Pickled as a call of ``name`` and a state."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> tuple:
        return self.reduced


RECONSTRUCT = np.empty(0).__reduce__()[0]
START = (np.ndarray, (0,), b"b")
F4 = np.dtype("f4")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Made(np.ndarray, (10**13,)), "not callable"),
        (Made(np.ndarray, ((4,), np.dtype("f4"), b"A" * 16, 0, (1 << 20,))), "not callable"),
        (Made(RECONSTRUCT, START, (1, (3,), np.dtype("O"), False, [1, 2, 3])), "plain number"),
        (Made(RECONSTRUCT, START, (1, (3,), F4, False, b"A" * 11)), "do not fit"),
        (Made(RECONSTRUCT, START, (1, (10**30,), F4, False, b"")), "do not fit"),
        (Made(RECONSTRUCT, START, (1, (2**62, 2**62, 0), F4, False, b"")), "."),
        (Made(RECONSTRUCT, START, (1, (-1,), F4, False, b"")), "plain numbers"),
        (Made(RECONSTRUCT, START, (7, (1,), F4, False, b"AAAA")), "unknown kind"),
        (Made(RECONSTRUCT, START), "without content"),
        (Made(RECONSTRUCT, (list, (0,), b"b")), "unknown kind"),
        (Made(np.dtype, ("f4,f4",)), "plain number"),
        (Made(np.dtype, ("f3",)), "f3"),
        ({"a": np.array([None])}, "plain number"),
        (np.zeros(2, [("x", "f4")]), "plain number"),
    ],
)
def test_hostile_arrays_are_refused(tmp_path: Path, value: object, said: str) -> None:
    with pytest.raises(PlainPickleError, match=said):
        load(tmp_path, pickle.dumps(value, 4))


def test_a_state_does_not_make_objects_of_numbers(tmp_path: Path) -> None:
    """A flag of ``dtype.__setstate__`` would have NumPy take the bytes for pointers."""
    dtype = Made(np.dtype, ("i8", False, True), (3, "<", None, None, None, -1, -1, 63))
    back = load(tmp_path, pickle.dumps(Made(RECONSTRUCT, START, (1, (3,), dtype, False, b"A" * 24))))
    assert back.dtype == np.int64 and back.tolist() == [0x4141414141414141] * 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04",
        b"\x80\x02J\x01",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**50),
        b"\x80\x04\x8e" + struct.pack("<Q", 2**63),
        b"\x80\x05\x96" + struct.pack("<Q", 2**33) + b"a",
        b"(" * 9 + b"]" + b"t" * 2000 + b".",
        b"\x80\x04" + b"]" + b"\x94" + b"(" * 3000 + b"t" * 3000 + b".",
        b"c_codecs\nencode\n(Vx\nVzlib_codec\ntR.",
        b"c_codecs\nencode\n(Vx\nVno_such\ntR.",
        b"c_codecs\nencode\n}X\x01\x00\x00\x00aK\x01sb.",
        b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb.",
    ],
)
def test_damage_is_one_kind_of_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PlainPickleError):
        load(tmp_path, content)


def test_an_index_of_the_file_makes_no_table_as_long(tmp_path: Path) -> None:
    assert load(tmp_path, b"\x80\x02}r" + struct.pack("<I", 2**32 - 1) + b".") == {}


FLIPS = """
import pickle, random, sys
from pathlib import Path
import numpy as np
from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.errors import DataError
random.seed(int(sys.argv[2]))
file = Path(sys.argv[1])
whole = pickle.dumps({0: np.ones(3, "f4"), np.int64(1): np.zeros(3, "f4")}, int(sys.argv[2]))
refused = 0
for _ in range(400):
    content = bytearray(whole)
    content[random.randrange(len(content))] ^= random.randrange(1, 256)
    file.write_bytes(content)
    try:
        read_centers(file)
    except DataError:
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_flipped_bytes_neither_kill_nor_surprise(tmp_path: Path, protocol: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FLIPS, str(tmp_path / "c.pkl"), str(protocol)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200
