"""Wherever a config or a label file names a file, a pipe does not hang and a device is not read."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import HANG

from ppocr_ext.characters.look_alikes import read_groups
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import read_plain_pickle
from ppocr_ext.config import load
from ppocr_ext.data.image_check import content_issue, read_image_file
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.errors import DataError, PPOCRExtError
from ppocr_ext.io.plain_pickle import load_plain_pickle
from ppocr_ext.io.resources import file_digest
from ppocr_ext.limits import open_regular
from ppocr_ext.recognition.images import read_image


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Fail instead of waiting for a writer."""

    def fail(*_: object) -> None:
        raise TimeoutError("it waits for the pipe")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(HANG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=["pipe", "device", "link"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "device":
        return Path("/dev/zero")
    path = tmp_path / "special"
    os.mkfifo(path) if request.param == "pipe" else path.symlink_to("/dev/zero")
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "config": load,
    "dictionary": Charset.from_file,
    "label file": lambda path: list(read_label_file(path)),
    "image": read_image,
    "weights": read_plain_pickle,
    "groups": read_groups,
}


@pytest.mark.parametrize("reader", READERS)
def test_it_is_refused_by_name(special: Path, reader: str) -> None:
    with pytest.raises(PPOCRExtError) as error:
        READERS[reader](special)
    assert str(special) in str(error.value) and error.value.code in (
        "unreadable_file",
        "missing_file",
        "broken_image",
    )


def test_a_base_is_refused_with_the_file_that_names_it(special: Path, tmp_path: Path) -> None:
    (tmp_path / "my.yml").write_text(f"_BASE_: {special}\n")
    with pytest.raises(PPOCRExtError) as error:
        load(tmp_path / "my.yml")
    assert str(special) in str(error.value) and "my.yml:1" in str(error.value)


def test_an_image_of_a_label_file_is_unusable(special: Path) -> None:
    for how in ("header", "decode", "none"):
        issue = content_issue(read_image_file(special), "image", how)  # type: ignore[arg-type]
        assert issue and issue.reason == "broken_image" and str(special) in issue.detail


@pytest.mark.parametrize("read", [file_digest, open_regular, load_plain_pickle])
def test_it_is_an_error_of_the_system(special: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(OSError, match="regular"):
        read(special)


def test_a_folder_stays_a_folder(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(DataError, match="directory"):
        list(read_label_file(tmp_path))
