"""What the machines of a run must have in common."""

import shutil
from types import SimpleNamespace

from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.run import agreement
from ppocr_ext.run.run import Run


def facts(config):
    run = Run.build(config, "train")
    return agreement.facts_of(run.context, run.data.preflight)


def test_folders_of_their_own_make_no_difference(tiny, captchas, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(captchas, copy)
    config = tiny("student")
    moved = tiny(
        "student",
        **{
            "Global.save_model_dir": str(tmp_path / "other_run"),
            "Global.character_dict_path": str(copy / "dict.txt"),
            "Train.dataset.data_dir": str(copy),
            "Train.dataset.label_file_list": [str(copy / "train_list.txt")],
            "Train.loader.num_workers": 1,
        },
    )
    assert agreement.differences(facts(config), facts(moved), "here", "there") == []


def test_each_difference_is_named_with_both_machines(tiny, captchas, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(captchas, copy)
    first, second, *others = (copy / "dict.txt").read_text().splitlines()
    (copy / "dict.txt").write_text("\n".join([second, first, *others, ""]))
    lines = (copy / "train_list.txt").read_text().splitlines()
    image, label = lines[0].split("\t")
    (copy / "train_list.txt").write_text("\n".join([f"{image}\t{label[::-1]}", *lines[1:], ""]))
    (copy / "val_list.txt").write_text((captchas / "val_list.txt").read_text() * 2)

    def config(folder, rate):
        lists = {name: [str(folder / f"{name}_list.txt")] for name in ("train", "val")}
        values = {
            "Global.character_dict_path": str(folder / "dict.txt"),
            "Train.dataset.label_file_list": lists["train"],
            "Train.mix": [{"dataset": {"label_file_list": lists["val"]}, "share": 0.3}],
            "Optimizer.lr.learning_rate": rate,
        }
        return tiny("student", **values)

    found = agreement.differences(
        facts(config(copy, 0.5)), facts(config(captchas, 0.005)), "10.0.0.2", "10.0.0.1"
    )
    assert [line.partition(":")[0] for line in found] == [
        "dictionary",
        "label file 1 of Train (train_list.txt)",
        "usable samples of Train.mix.0",
        "label file 1 of Train.mix.0 (val_list.txt)",
        "Optimizer.lr.learning_rate",
    ]
    assert found[-1] == "Optimizer.lr.learning_rate: 0.5 on 10.0.0.2, 0.005 on 10.0.0.1"


def test_other_weights_differ(tiny, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.pdparams").write_bytes(name.encode())
    config = tiny("student")

    def of(name):
        context = SimpleNamespace(
            config=config.with_values({"Global.pretrained_model": str(tmp_path / name / "weights")}),
            charset=SimpleNamespace(digest="d"),
            host=SimpleNamespace(version="1"),
        )
        return agreement.facts_of(context, {})

    [line] = agreement.differences(of("one"), of("two"), "here", "there")
    assert line.startswith("weights of Global.pretrained_model: weights, digest ")


def test_a_difference_ends_the_run_before_its_first_step(monkeypatch):
    barriers = []
    team = SimpleNamespace(
        text_of_first=lambda name, text: '{"address": "10.0.0.1", "a": "1"}',
        barrier=lambda: barriers.append(1),
    )
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:1,10.0.0.2:1")
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "10.0.0.2:1")
    monkeypatch.setattr(agreement, "is_leader", lambda: True)
    monkeypatch.setattr(agreement, "facts_of", lambda context, preflight: {"a": "1"})
    agreement.require_agreement(SimpleNamespace(team=team), {})
    assert barriers == [1]
    monkeypatch.setattr(agreement, "facts_of", lambda context, preflight: {"a": "2"})
    with raises_code(DataError, "data_differs", "a: 2 on 10.0.0.2, 1 on 10.0.0.1"):
        agreement.require_agreement(SimpleNamespace(team=team), {})
    assert barriers == [1]
    monkeypatch.setenv(
        "PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:1,10.0.0.1:2"
    )  # one machine reads its files once
    agreement.require_agreement(SimpleNamespace(team=None), {})
