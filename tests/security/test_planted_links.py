"""A link, or a pipe, where this package writes: it is refused, and what it points to stays as it is."""

from __future__ import annotations

import logging
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.files import write_temporary
from ppocr_ext.checkpoint.official_weights import official
from ppocr_ext.config import Config
from ppocr_ext.errors import DataError
from ppocr_ext.inference.compiled import cached_folder
from ppocr_ext.io.atomic import atomic_folder, atomic_writer, write_text
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.loop.folder_lock import locked_folder
from ppocr_ext.loop.incidents import Incidents
from ppocr_ext.loop.launch import start_processes
from ppocr_ext.loop.signals import start_child, stop_child
from ppocr_ext.run.logs import log_file

NAME = "PP-OCRv6_tiny_rec"


def log(folder: Path) -> None:
    with log_file(folder / "train.log", logger := logging.getLogger("planted")):
        logger.warning("a line")


def weights(folder: Path) -> None:
    official(NAME).fetch()


def lock(folder: Path) -> None:
    with locked_folder(folder):
        pass


def child(folder: Path) -> None:
    stop_child(start_child(["--version"], folder / "trial.log"))


def graph(folder: Path) -> None:
    with cached_folder("a" * 64, lambda part: (part / "model").touch()):
        pass


FILES: dict[str, Callable[[Path], None]] = {
    "train.log": log,
    f"weights/{NAME}.lock": weights,
    ".lock": lock,
    "trial.log": child,
}
FOLDERS: dict[str, Callable[[Path], object]] = {
    "incidents": lambda folder: Incidents(SimpleNamespace(folder=folder), None, None),  # type: ignore[arg-type]
    "processes": lambda folder: start_processes(
        Config({"Global": {"save_model_dir": str(folder)}}), 2, ["no"]
    ),
    "engines": graph,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a file of weights into a cache folder, which is the run folder too."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "run"))
    monkeypatch.delenv("PADDLE_LOCAL_RANK", raising=False)
    official(NAME).file.parent.mkdir(parents=True)
    official(NAME).file.write_bytes(pickle.dumps({"weight": np.zeros(3)}, protocol=2))
    return tmp_path / "run"


@pytest.mark.parametrize("name", FILES)
def test_a_linked_file_is_neither_emptied_nor_written(cache: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (cache / name).symlink_to(target)
    with raises_code(DataError, "not_a_file", str(cache / name)):
        FILES[name](cache)
    assert target.read_text() == "precious"
    (cache / name).unlink()
    FILES[name](cache)


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_is_refused_at_once(cache: Path, name: str) -> None:
    os.mkfifo(cache / name)
    with raises_code(DataError, "not_a_file", str(cache / name)):
        FILES[name](cache)


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_written_into_a_linked_folder(cache: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "target").mkdir()
    (cache / name).symlink_to(tmp_path / "target")
    with raises_code(DataError, "not_a_folder", str(cache / name)):
        FOLDERS[name](cache)
    assert list((tmp_path / "target").iterdir()) == []
    (cache / name).unlink()
    if name != "processes":  # which would start them
        FOLDERS[name](cache)


def test_a_link_under_a_temporary_name_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / f".out.{os.getpid()}.tmp"
    target.write_text("precious")
    link.symlink_to(target)
    with atomic_writer(tmp_path / "out") as stream:
        stream.write(b"mine")
    assert (target.read_text(), (tmp_path / "out").read_bytes()) == ("precious", b"mine")
    assert not (tmp_path / "out").is_symlink()


@pytest.fixture(params=[0o077, 0o002, 0o022])
def mode(request: Any) -> Iterator[int]:
    """Return the mode of a new file under this umask."""
    before = os.umask(request.param)
    yield 0o666 & ~request.param
    os.umask(before)


def test_files_have_the_mode_of_the_umask(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "new"
    write_text(folder / "text", "x")
    log(folder)
    with locked_folder(folder):
        assert oct(stat.S_IMODE((folder / ".lock").stat().st_mode)) == oct(mode)
    files = [write_temporary(folder / "latest.pdparams", b""), folder / "text", folder / "train.log"]
    assert {oct(stat.S_IMODE(file.stat().st_mode)) for file in files} == {oct(mode)}
    with atomic_folder(tmp_path / "out", ["x"]) as place:
        (place / "x").touch()
    assert (tmp_path / "out").stat().st_mode & 0o066 == mode & 0o066
