"""Weights between two checkpoints, without a training."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saved_runs import network_of, save_checkpoint
from tiny_runs import captchas, tiny  # noqa: F401

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import BEFORE
from ppocr_ext.cli.main import main
from ppocr_ext.evaluation import blend
from ppocr_ext.evaluation.general_list import GeneralList

pytestmark = pytest.mark.e2e


@pytest.fixture
def ends(tiny, tmp_path, request):  # noqa: F811
    """A run folder with the weights before a training and others not far from them, and its config."""
    config = tiny(getattr(request, "param", "student"), **{"Eval.loader.num_workers": 0})
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yml").write_text(config.to_yaml(), encoding="utf-8")
    network, charset = network_of(config)
    save_checkpoint(network, charset, run / BEFORE)
    save_changed(network, charset, run / "latest", 0.1)
    return run, config


def save_changed(network, charset, prefix, change):
    """Write the network as a checkpoint, with ``change`` added to each number."""
    for tensor in network.state_dict().values():
        tensor.set_value(tensor + change)
    save_checkpoint(network, charset, prefix)


@pytest.fixture
def forgetting(monkeypatch, ends):
    """Let weights read new lines as far as they are on the way, and 0.9 less half of that of 24 general lines."""
    first = {
        name.removeprefix("Student."): each for name, each in Checkpoint(ends[0] / BEFORE).weights().items()
    }

    def share(run):
        name, tensor = next(iter(run.network.state_dict().items()))
        return float(np.mean(tensor.numpy() - first[name])) / 0.1

    def right(part):
        digests = sorted(part._digests)[part.chooses :]
        return {each: place < (0.9 - share(part._run) / 2) * 12 for place, each in enumerate(digests)}

    def evaluate(run, loader, metric):
        lengths.add(len(loader.dataset))
        return {"acc": share(run)}

    def accuracy(part):
        lengths.add(part.chooses + part.reports)
        return 0.9 - share(part._run) / 2

    lengths = set()
    monkeypatch.setattr(blend, "evaluate_now", evaluate)
    monkeypatch.setattr(GeneralList, "accuracy", accuracy)
    monkeypatch.setattr(GeneralList, "right", right)
    return lengths


def lists(folder):
    """The options of both lists."""
    return ["--list", str(folder / "val_list.txt"), "--general", str(folder / "train_list.txt")]


@pytest.mark.parametrize(("ends", "before"), [("student", "."), ("distill", BEFORE)], indirect=["ends"])
def test_the_best_weights_under_the_limit_are_written(ends, forgetting, captchas, tmp_path, before, capsys):  # noqa: F811
    run, _ = ends
    out = tmp_path / "new" / "kept"
    options = [*lists(captchas), "--max-drop", "0.2", "--out", str(out)]
    assert main(["blend", str(run / before), str(run / "latest"), *options]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith(("%", "best"))]
    assert [row[0] for row in rows if row[-1] == "best"] == [
        "35.2%"
    ]  # reads as much as 37.5 %, but for 3 points
    content = json.loads(Path(f"{out}.json").read_text())
    assert (content["before"], content["max_drop"]) == pytest.approx((0.9, 0.2), abs=1e-5)
    assert content["report"]["lines"] == 12  # the other half chose
    assert (content["report"]["lost"], content["report"]["before"]) == (2, 11 / 12)
    shares = [round(each["share"], 3) for each in content["points"]]
    assert shares == [0, 0.25, 0.281, 0.328, 0.352, 0.375, 0.5, 1]
    first, last, kept = (Checkpoint(path).weights() for path in (run / BEFORE, run / "latest", out))
    of = "" if first.keys() == kept.keys() else "Student."
    assert {name for name in first if name.startswith(of)} == {of + name for name in kept}
    for name, tensor in kept.items():  # BatchNorm's statistics too
        far = last[of + name] - first[of + name]
        np.testing.assert_allclose(tensor, first[of + name] + 0.3515625 * far, atol=1e-5)
    assert "at least 70.00%" in Path(f"{out}.svg").read_text(encoding="utf-8")
    assert main(["eval", str(run), "-o", f"Global.checkpoints={out}"]) == 0


def test_a_list_of_the_command_line_leaves_the_other_one_in_its_folder(ends, forgetting, captchas, tmp_path):  # noqa: F811
    run, config = ends
    general = {
        "Eval.general.dataset.label_file_list": [str(captchas / "train_list.txt")]
    }  # data_dir is that of Eval
    (run / "config.yml").write_text(config.with_values(general).to_yaml(), encoding="utf-8")
    names = [each.split("\t")[0] for each in (captchas / "val_list.txt").read_text().splitlines()]
    for name in ("val_list.txt", *names):
        (tmp_path / "new" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(captchas / name, tmp_path / "new" / name)
    new = tmp_path / "new" / "val_list.txt"
    assert main(["blend", str(run), str(run / "latest"), "--list", str(new), "--max-drop", "0.2"]) == 0
    assert forgetting == {10, 24}


def test_weights_that_gain_nothing_are_not_written(ends, captchas, tmp_path, capsys):  # noqa: F811
    run, _ = ends
    options = [*lists(captchas), "--out", str(tmp_path / "kept")]
    assert main(["blend", str(run), str(run / "latest"), *options]) == 1
    assert "  best" in capsys.readouterr().out
    assert list(tmp_path.glob("kept*")) == []


def other_network(run, config):
    narrow = config.with_values({"Architecture.Head.head_list.0.CTCHead.Neck.dims": 24})
    save_checkpoint(*network_of(narrow), run / "other")


def other_dictionary(run, config):
    network, charset = network_of(config)
    save_checkpoint(network, replace(charset, characters=tuple(reversed(charset.characters))), run / "other")


def larger_dictionary(run, config):
    file = run / "dict.txt"
    file.write_text(
        Path(config.at("Global.character_dict_path")).read_text(encoding="utf-8") + "é\n", encoding="utf-8"
    )
    save_checkpoint(*network_of(config.with_values({"Global.character_dict_path": str(file)})), run / "other")


def test_weights_of_a_larger_dictionary_are_cut_to_that_of_the_run(ends, captchas, capsys):  # noqa: F811
    """As the run's own step 0 cuts released weights; they read what they read there."""
    run, config = ends
    larger_dictionary(run, config)
    given = ["-o", f"Architecture.pretrained_dict={run / 'dict.txt'}"]
    assert main(["blend", str(run / "other"), str(run / "latest"), *lists(captchas), *given]) in (0, 1)
    assert "0 new" in capsys.readouterr().out


def damaged(run, config):
    save_changed(*network_of(config), run / "other", float("nan"))


@pytest.mark.parametrize(
    ("make", "code", "named"),
    [
        (other_network, "weights_mismatch", "head."),
        (other_dictionary, "charset_mismatch", "dict.txt"),
        (larger_dictionary, "weights_mismatch", "ctc_head"),
        (damaged, "nonfinite_weights", "other.pdparams"),
    ],
)
def test_weights_that_do_not_belong_together_are_refused(ends, captchas, make, code, named, capsys):  # noqa: F811
    run, config = ends
    make(run, config)
    assert main(["blend", str(run / "other"), str(run / "latest"), *lists(captchas)]) == 2
    error = capsys.readouterr().err
    assert f"[{code}]" in error and named in error
    if make is damaged:
        assert main(["blend", str(run / BEFORE), str(run / "other"), *lists(captchas)]) == 2
        assert f"[{code}]" in capsys.readouterr().err


def test_what_is_missing_is_said_before_anything_is_read(ends, captchas, tmp_path, capsys):  # noqa: F811
    run, _ = ends
    empty = tmp_path / "empty.txt"
    empty.touch()
    (tmp_path / "kept.json").touch()
    both, latest, before = lists(captchas), str(run / "latest"), str(run / BEFORE)
    for options, code in (
        ([str(run), latest, *both[2:], "--list", str(empty)], "empty_file"),
        ([str(run), latest, *both[:2], "--general", str(empty)], "empty_file"),
        ([str(run), latest, *both[:2]], "bad_arguments"),
        ([str(run), latest, *both, "--out", str(tmp_path / "kept")], "file_exists"),
        ([str(tmp_path), latest, *both], "missing_file"),
        ([before, str(run), *both], "missing_file"),
        ([before, latest, *both, "--max-drop", "1"], "bad_value"),
    ):
        assert main(["blend", *options]) == 2, options
        assert f"[{code}]" in capsys.readouterr().err, options
