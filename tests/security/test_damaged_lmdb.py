"""A damaged LMDB is an error with its name; reading beyond the end of its file would end the process (SIGBUS)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest
from error_codes import raises_code

from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.errors import DataError

PAGE, SAMPLES = 4096, 300


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """Return the file of an LMDB of noise."""
    noise = random.Random(0)
    with (
        lmdb.open(str(tmp_path / "whole"), map_size=1 << 24) as environment,
        environment.begin(write=True) as put,
    ):
        put.put(b"num-samples", str(SAMPLES).encode())
        for number in range(1, SAMPLES + 1):
            put.put(b"label-%09d" % number, b"1")
            put.put(b"image-%09d" % number, noise.randbytes(3000))
    return (tmp_path / "whole" / "data.mdb").read_bytes()


def folder_of(tmp_path: Path, name: str, content: bytes) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "data.mdb").write_bytes(content)
    return folder


def test_a_truncated_one_is_refused_wherever_it_ends(tmp_path: Path, whole: bytes) -> None:
    sizes = [
        1,
        100,
        PAGE,
        PAGE + 900,
        2 * PAGE,
        2 * PAGE + 1,
        len(whole) // 2,
        len(whole) - PAGE,
        len(whole) - 1,
    ]
    folders = [folder_of(tmp_path, str(size), whole[:size]) for size in sizes]
    code = (
        "import sys; from ppocr_ext.data.lmdb_sets import open_sets; from ppocr_ext.errors import DataError\n"
        "for folder in sys.argv[1:]:\n"
        "  for _ in range(2):\n"  # the first time leaves nothing that the second would take
        "    try: print(open_sets(folder))\n"
        "    except DataError as error: print(error.code, folder in str(error))"
    )
    ran = subprocess.run([sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["damaged_file True"] * 2 * len(sizes)


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"junk"])
def test_pages_that_were_overwritten_are_named(tmp_path: Path, whole: bytes, fill: bytes) -> None:
    content, pages = bytearray(whole), random.Random(1).sample(range(2, len(whole) // PAGE), 60)
    for page in pages:
        content[page * PAGE : (page + 1) * PAGE] = (fill * PAGE)[:PAGE]
    folder = folder_of(tmp_path, "overwritten", bytes(content))
    with raises_code(DataError, "damaged_file", folder):
        for opened in open_sets(folder):
            for number in range(1, opened.count + 1):
                opened.label(number), opened.image(number)


def test_a_whole_one_and_one_with_more_behind_it_are_read(tmp_path: Path, whole: bytes) -> None:
    for name, content in (("same", whole), ("longer", whole + bytes(3 * PAGE))):
        (opened,) = open_sets(folder_of(tmp_path, name, content))
        assert opened.count == SAMPLES and len(opened.image(SAMPLES) or b"") == 3000
