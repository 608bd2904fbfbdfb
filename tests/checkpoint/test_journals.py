"""A journal beside weights that come from elsewhere: carried out only if it is one of ours."""

import json
import os
import stat
from contextlib import nullcontext

import paddle
import pytest
from error_codes import raises_code
from saved_runs import save_run

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState, write_checkpoint
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.cli.main import main
from ppocr_ext.errors import WeightsError

ENDINGS = (".pdparams", ".pdopt", ".states")
RENAMES = {f".w{ending}.abcd_123.tmp": f"w{ending}" for ending in ENDINGS}


def changed(position, temporary=None, final=None):
    """RENAMES with another name at one place."""
    rows = list(RENAMES.items())
    rows[position] = (temporary or rows[position][0], final or rows[position][1])
    return json.dumps(dict(rows)).encode()


def a_folder(journal):
    journal.mkdir()
    (journal / "mine.txt").write_text("mine")


def a_link(journal):
    other = journal.with_name("other.txt")
    other.write_text(json.dumps(RENAMES))
    journal.symlink_to(other)


CONTENTS = {
    "absolute-target": changed(1, final="/etc/hostname"),
    "target-above": changed(1, final="../w.pdopt"),
    "another-target": changed(1, final="mine.txt"),
    "target-twice": changed(1, final="w.states"),
    "absolute-source": changed(1, "/tmp/.w.pdopt.abcd_123.tmp"),
    "source-above": changed(1, "../.w.pdopt.abcd_123.tmp"),
    "source-of-another-name": changed(1, "mine.txt"),
    "source-of-another-target": changed(1, ".w.states.abcd_124.tmp"),
    "too-few": json.dumps({".w.pdopt.abcd_123.tmp": "w.pdopt"}).encode(),
    "empty-object": b"{}",
    "not-json": b"latest",
    "empty": b"",
    "a-list": json.dumps(list(RENAMES)).encode(),
    "numbers": json.dumps(dict.fromkeys(RENAMES, 1)).encode(),
    "not-utf8": b'{"\xff": "w.pdopt"}',
    "nested": b"[" * 8000,
    "too-long": json.dumps(RENAMES).encode() + b" " * 10_000,
    "a-folder": a_folder,
    "a-link": a_link,
    "a-pipe": os.mkfifo,
}


@pytest.fixture(params=CONTENTS.values(), ids=CONTENTS)
def bad(request, tmp_path):
    """A folder with a bad ``w.journal`` and the temporary files that it might rename."""
    for name in RENAMES:
        (tmp_path / name).write_text("planted")
    (tmp_path / "mine.txt").write_text("mine")
    journal = tmp_path / "w.journal"
    if callable(request.param):
        request.param(journal)
    else:
        journal.write_bytes(request.param)
    return tmp_path


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_bad_journal_without_weights_is_refused(bad):
    before = contents(bad)
    with raises_code(WeightsError, "bad_journal", str(bad / "w.journal")):
        Checkpoint(bad / "w")
    assert contents(bad) == before


def test_a_bad_journal_beside_weights_is_ignored(bad, caplog):
    layer = paddle.nn.Linear(1, 1)
    paddle.save(layer.state_dict(), str(bad / "w.pdparams"))
    before = contents(bad)
    with caplog.at_level("WARNING", "ppocr_ext"):
        load_weights(layer, bad / "w")
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [f"{bad}/w.journal"]
    assert contents(bad) == before


def test_a_checkpoint_is_saved_where_a_bad_journal_lies(bad):
    layer = paddle.nn.Linear(1, 1)
    optimizer = paddle.optimizer.SGD(parameters=layer.parameters())
    is_folder = stat.S_ISDIR((bad / "w.journal").lstat().st_mode)
    with pytest.raises(IsADirectoryError) if is_folder else nullcontext():
        write_checkpoint(bad / "w", layer.state_dict(), optimizer, TrainState())
    if is_folder:
        assert (bad / "w.journal" / "mine.txt").read_text() == "mine"
        return
    assert all((bad / f"w{ending}").stat().st_size > 20 for ending in ENDINGS)
    assert not os.path.lexists(bad / "w.journal")
    assert (bad / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_source_that_is_no_file_is_refused(tmp_path, kind):
    (tmp_path / "w.journal").write_text(json.dumps(RENAMES))
    source = tmp_path / ".w.pdparams.abcd_123.tmp"
    source.mkdir() if kind == "folder" else source.symlink_to("/etc/hostname")
    with raises_code(WeightsError, "bad_journal"):
        Checkpoint(tmp_path / "w")
    assert not os.path.lexists(tmp_path / "w.pdparams")


def test_evaluating_beside_a_planted_journal_leaves_other_files_alone(tiny, tmp_path, monkeypatch, capsys):
    finished = tmp_path / "run"
    save_run(tiny("student"), finished)
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "w.pdparams").write_bytes((finished / "best_accuracy.pdparams").read_bytes())
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (folder / "planted").write_text("planted")
    (folder / "w.journal").write_text(json.dumps({"planted": str(mine)}))
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    code = main(["eval", "-c", str(finished / "config.yml"), "-o", "Global.pretrained_model=s/w"])
    said = "".join(capsys.readouterr())
    assert code == 0, said
    assert mine.read_text() == "mine"
    assert said.count("s/w.journal") == 1
