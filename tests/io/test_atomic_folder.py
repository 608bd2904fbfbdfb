"""A folder of files appears as a whole, and files of others stay."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.io import atomic
from ppocr_ext.io.atomic import atomic_folder, check_writable, digests, require_own
from ppocr_ext.report.page_template import page
from ppocr_ext.synth.contact_sheet import Caption, Picture, contact_sheet

OWNED = ("a.bin", "b.bin", "index.json")


def write(path: Path, *names: str, force: bool = False, fails: bool = False) -> None:
    with atomic_folder(path, OWNED, force=force) as folder:
        for name in names:
            (folder / name).write_text("new", encoding="utf-8")
        if fails:
            raise RuntimeError("a test")


def content(path: Path) -> dict[str, str]:
    return {file.name: file.read_text(encoding="utf-8") for file in path.iterdir()}


def test_force_replaces_and_removes_its_own_files_alone(tmp_path: Path) -> None:
    for name in (*OWNED, "mine.txt"):
        (tmp_path / name).write_text("old", encoding="utf-8")
    with raises_code(DataError, "folder_not_empty", "a.bin"):
        write(tmp_path, *OWNED)
    write(tmp_path, "a.bin", "index.json", force=True)
    assert content(tmp_path) == {"a.bin": "new", "index.json": "new", "mine.txt": "old"}


@pytest.mark.parametrize("exists", [False, True])
def test_after_an_exception_all_is_as_before(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "folder"
    if exists:
        path.mkdir()
        (path / "a.bin").write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError):
        write(path, *OWNED, force=True, fails=True)
    assert (content(path) if exists else path.exists()) == ({"a.bin": "old"} if exists else False)
    assert [*tmp_path.iterdir()] == [path] * exists


def test_a_file_and_a_folder_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with raises_code(DataError, "not_a_folder"):
        write(tmp_path / "file")
    with raises_code(DataError, "unwritable_folder"):
        write(Path("/proc/1/no/such"))


def test_files_that_another_machine_is_writing_stay_in_a_shared_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt), atomic.atomic_writer(tmp_path / "shard"):
        [temporary] = tmp_path.iterdir()
        (
            tmp_path / temporary.name.replace(f".{os.getpid()}-", ".999999999-")
        ).touch()  # of a killed process here
        atomic.remove_temporary_files(tmp_path, shared=True)
        assert list(tmp_path.iterdir()) == [temporary]
        monkeypatch.setattr(atomic, "machine_digest", lambda: "0" * 8)  # what another machine sees
        atomic.remove_temporary_files(tmp_path, shared=True)
        assert list(tmp_path.iterdir()) == [temporary]
        atomic.remove_temporary_files(tmp_path)  # one that has locked the folder
        assert not list(tmp_path.iterdir())
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "content",
    [
        b"a.png\tlabel\n",
        b'{"image": "a.png", "text": "label"}\n',
        b"<!doctype html>",
        b"\x89PNG",
        b"",
        b"\x80\x04",
    ],
)
def test_a_file_of_somebody_else_is_never_replaced(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with raises_code(DataError, "file_exists"):
        check_writable(file)
    require_own(tmp_path, ["gone"], "record.json")
    with raises_code(DataError, "file_exists"):
        require_own(tmp_path, ["file"], "record.json")
    (tmp_path / "record.json").write_text(json.dumps({"files": digests(tmp_path, ["file"])}))
    require_own(tmp_path, ["file", "record.json"], "record.json")
    assert file.read_bytes() == content


def test_what_a_command_has_written_may_be_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "file"
    sheet = contact_sheet([Picture(np.zeros((9, 9, 3), np.uint8), (Caption("a", None),))])
    readings = (
        b"image\tlabel\tprediction\tconfidence\n",
        b'{"image": "a", "text": "b", "confidence": 1.0}\n',
    )
    for content in (page("title", "", "").encode(), sheet, *readings):
        file.write_bytes(content)
        check_writable(file)
    file.write_bytes(b"image\tlabel\tprediction\tconfidence\tgroup\n")  # groups are written by hand
    with raises_code(DataError, "file_exists"):
        check_writable(file)
