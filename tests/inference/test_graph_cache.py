"""The folder of compiled networks: complete or missing, one for several processes, bounded, not needed."""

import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import paddle
import pytest

from ppocr_ext.inference import compiled
from ppocr_ext.inference.compiled import cached_folder, discard, graph_key
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.modeling import TRAIN

PLUGIN = """
import paddle

class Columns(paddle.nn.Layer):
    def __init__(self, act, mask=1.0, table=2.0):
        super().__init__()
        self.fc, self.act, self.table = paddle.nn.Linear(3, 3), act, paddle.full([2], table)
        self.register_buffer("mask", paddle.full([3], mask), persistable=False)

    def forward(self, x):
        return self.act(self.fc(x) * self.mask)
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


def write(folder: Path, text: str = "graph") -> None:
    (folder / "file").write_text(text)


def use(key: str, text: str = "graph") -> str:
    with cached_folder(key, lambda folder: write(folder, text)) as folder:
        return (folder / "file").read_text()


def test_a_folder_is_written_once_and_only_whole(root):
    def fail(folder: Path) -> None:
        write(folder, "half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), cached_folder("a", fail):
        pass
    assert list(root.iterdir()) == []
    assert [use("a", "first"), use("a", "second")] == ["first", "first"]
    discard("a")
    assert use("a", "third") == "third"


def test_of_two_processes_that_write_the_same_one_stays_and_both_read(root):
    def slow(folder: Path) -> None:
        write(folder, "slow")
        assert use("a", "fast") == "fast"  # another process, meanwhile

    with cached_folder("a", slow) as folder:
        assert (folder / "file").read_text() in ("slow", "fast")
    assert use("a") == "fast"
    assert [each.name for each in root.iterdir()] == ["a"]


def test_the_folders_that_were_not_used_for_longest_go(root, monkeypatch):
    for age, key in ((30, "a"), (20, "b"), (10, "c")):
        use(key, "12345")
        before = (root / key).stat().st_mtime - age
        os.utime(root / key, (before, before))
    (left := root / f"{compiled._PART}killed").mkdir()
    os.utime(left, (0, 0))
    use("a")  # the oldest is used again
    monkeypatch.setattr(compiled, "LIMIT", 16)
    use("d", "12345")
    assert sorted(each.name for each in root.iterdir()) == ["a", "c", "d"]


def test_a_clock_that_is_a_day_off_removes_nothing_that_is_being_written(root, monkeypatch):
    (written := root / f"{compiled._PART}by_another").mkdir(parents=True)
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 2 * 24 * 3600)
    use("a")
    assert written.is_dir()


def test_without_a_folder_to_write_to_a_graph_is_of_this_process(root):
    root.parent.write_text("a file")
    with cached_folder("a", write) as folder:
        assert (folder / "file").read_text() == "graph"
    assert not folder.exists()


@pytest.fixture
def key(tmp_path, monkeypatch):
    """The key of a network of a plugin whose source is ``text``, built anew as by another process."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def build(text: str = PLUGIN, **options: Any) -> str:
        (tmp_path / "own_columns.py").write_text(text)
        monkeypatch.delitem(sys.modules, "own_columns", raising=False)
        paddle.seed(1)
        options = {"act": paddle.nn.functional.relu, **options}
        return graph_key(import_module("own_columns").Columns(**options), TRAIN, (3, 32, None))

    return build


def test_the_key_follows_from_all_that_a_network_computes_with(key, tmp_path, monkeypatch):
    same = key()
    assert key() == same
    others = [
        key(PLUGIN.replace("* self.mask", "+ self.mask")),
        key(act=paddle.nn.functional.gelu),
        key(mask=0.5),  # a buffer that no state has
        key(table=3.0),  # nor this
    ]
    (tmp_path / "version.py").write_text('__version__ = "0.0.1"')
    monkeypatch.setattr(sys.modules["ppocr_ext"], "__file__", str(tmp_path / "version.py"))
    others.append(key())
    assert len({same, *others}) == 6


def test_a_graph_of_another_user_is_not_opened(root, monkeypatch):
    assert use("a", "theirs") == "theirs"
    with monkeypatch.context() as patch:
        patch.setattr(compiled.os, "getuid", lambda: root.stat().st_uid + 1)
        assert use("a", "ours") == "ours"
    assert use("a") == "theirs"
