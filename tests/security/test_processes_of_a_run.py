"""What the processes of a run hand on: JSON in a folder of this user alone, whatever Paddle's store says."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError, ProcessError
from ppocr_ext.io.atomic import private_folder
from ppocr_ext.run import team as module
from ppocr_ext.run.team import Team


class Store:
    """A TCPStore in memory, into which anybody may write."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.texts: dict[str, str] = {}

    def add(self, key: str, count: int) -> int:
        self.counts[key] = self.counts.get(key, 0) + count
        return self.counts[key]

    def set(self, key: str, value: str) -> None:
        self.texts[key] = value

    def get(self, key: str) -> bytes:
        return self.texts[key].encode()


class Program:
    """Runs when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.fixture(params=["--processes", "launcher"])
def two(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Team]:
    """Return two processes that `--processes` has started, or a launcher of the user's."""
    monkeypatch.setenv("PADDLE_LOCAL_RANK", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(module, "_leader_of", lambda rank: 0)
    monkeypatch.setattr(module, "_BLAME_WITHIN", 0.1)
    if request.param == "--processes":
        monkeypatch.setenv("PPOCR_EXT_PROCESSES_FOLDER", str(tmp_path / "made"))
    store = Store()
    return [Team(store, rank, 2) for rank in (0, 1)]


def work_of(member: Team) -> Any:
    return member.once_per_machine("look", lambda: "checked", str, str)


def test_a_file_that_the_store_names_is_not_read(two: list[Team], tmp_path: Path) -> None:
    planted, ran = tmp_path / "planted.pickle", tmp_path / "ran"
    planted.write_bytes(pickle.dumps(Program(ran)))
    two[0]._board.publish("work/0/look/1", str(planted))
    with pytest.raises(Exception) as error:  # noqa: PT011 - the planted pickle is no pair
        work_of(two[1])
    assert not ran.exists()
    assert isinstance(error.value, ProcessError)


def test_a_result_is_handed_on_in_a_closed_folder(two: list[Team], tmp_path: Path) -> None:
    assert [work_of(each) for each in two] == ["checked", "checked"]
    [folder] = [each for each in tmp_path.iterdir() if each.is_dir()]
    assert folder.stat().st_mode & 0o077 == 0
    assert [file.suffix for file in folder.iterdir()] == [".json"]


@pytest.mark.parametrize("planted", ["open", "linked", "of another user"])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, planted: str) -> None:
    folder = tmp_path / "folder"
    assert private_folder(folder) == private_folder(folder) == folder
    if planted == "open":
        folder.chmod(0o755)
    elif planted == "linked":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif os.getuid() == 0:
        os.chown(folder, 12345, 12345)
    else:
        pytest.skip("only root can give a folder away")
    with raises_code(DataError, "unwritable_folder", str(folder)):
        private_folder(folder)
