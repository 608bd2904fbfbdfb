"""`ppocr-ext init` as a user calls it: what it says, what it writes, and that the config is ready to train."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle
import pytest
from error_codes import raises_code
from released import CHARACTERS, describe, paddle_release, write_network
from saved_runs import save_checkpoint, save_run
from tiny_runs import captchas, tiny

from ppocr_ext import inspect_data
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.data.label_file import read_label_file, write_label_file
from ppocr_ext.errors import DataError
from ppocr_ext.first_run import decisions, trial, writing
from ppocr_ext.first_run.split import OWN_SPLIT
from ppocr_ext.inference import released

pytestmark = pytest.mark.usefixtures("no_released_models")
__all__ = ["captchas", "tiny"]
PACKAGES = released.released_packages()  # tests have none, see conftest.py


@pytest.fixture(autouse=True)
def fewer_drawn_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decisions, "DRAWN", 40)
    monkeypatch.setattr(writing, "GENERAL_LINES", 24)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(captchas: Path, tmp_path: Path) -> Path:
    """34 images of 4 to 6 digits in one folder, with one list."""
    folder = tmp_path / "photos"
    rows = []
    for split in ("train", "val"):
        for line in read_label_file(captchas / f"{split}_list.txt"):
            name = f"{split}_{Path(line.images[0]).name}"
            folder.mkdir(exist_ok=True)
            (folder / name).write_bytes((captchas / line.images[0]).read_bytes())
            rows.append((name, line.label))
    write_label_file(folder / "labels.txt", rows)
    return folder


def digest(folder: Path, left_out: tuple[str, ...] = ()) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in left_out)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def labels(file: Path) -> dict[str, str]:
    return {line.images[0]: line.label for line in read_label_file(file)}


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_from_nothing_to_a_config_that_passes_its_check(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digest(photos)
    text = said(capsys, "init", photos)
    assert "samples: 34 usable" in text and "ppocr-ext train -c my/config.yml" in text
    assert text.index("recognised: tsv (labels.txt)") < text.index("written:")
    assert len(text.splitlines()) <= 40
    train, val = labels(Path("my/train.txt")), labels(Path("my/val.txt"))
    assert "warning: val has 8 samples" in text
    assert len(train) == 26 and len(val) == 8 and not set(train) & set(val)
    assert {Path(name).name: text for name, text in (train | val).items()} == labels(photos / "labels.txt")
    assert Path("my/dict.txt").read_text(encoding="utf-8").split() == sorted(
        set("".join((train | val).values()))
    )
    assert len(Path("my/config.yml").read_text(encoding="utf-8").splitlines()) <= 30
    assert "no issues" in said(capsys, "config", "-c", "my/config.yml", "--check")
    assert digest(photos) == before

    first = digest(Path("my"), ("init.html", "init.json"))
    assert {"config.yml", "look.png", "drawn.txt", "drawn/train_list.txt"} <= set(first)
    assert main(["init", str(photos)]) == 2  # the folder is there
    assert "[folder_exists]" in capsys.readouterr().err
    said(capsys, "init", photos, "--force")
    again = digest(Path("my"), ("init.html", "init.json", "config.yml"))
    assert again == {name: value for name, value in first.items() if name != "config.yml"}
    said(capsys, "init", photos, "--force", "--seed", "2")
    assert labels(Path("my/val.txt")) != val


def test_what_init_did_not_write_and_what_is_read_is_never_replaced(
    photos: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(code: str, *words: str | Path) -> None:
        before = digest(tmp_path)
        assert main([str(word) for word in ("init", *words, "--force")]) == 2
        assert f"[{code}]" in capsys.readouterr().err and digest(tmp_path) == before

    (photos / "labels.txt").rename(photos / "train.txt")  # the user's only list
    refused("folder_exists", photos, "--out", photos)
    said(capsys, "init", photos)
    refused("file_exists", "my", "--out", "my", "--labels", "drawn.txt")
    refused("file_exists", photos, "--general", "my/drawn.txt")
    write_label_file(tmp_path / "list.txt", [("my/drawn/train/0000/000000.png", "1")])
    refused("file_exists", photos, "--more", "list.txt")
    save_run(tiny("student", **{"Global.character_dict_path": "my/dict.txt"}), tmp_path / "my" / "run")
    refused("file_exists", photos, "--base", "my/run")
    refused("file_exists", photos)  # the run reads the dictionary
    shutil.rmtree("my/run")
    for name in ("train.txt", "drawn/notes.txt", "crops/photo.png", "general.txt"):  # edited, or of the user
        file = Path("my", name)
        content = file.read_bytes() if file.exists() else None
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"mine")
        refused("file_exists", photos)
        file.unlink() if content is None else file.write_bytes(content)
    Path("my/notes.txt").write_text("mine")  # in no one's way
    Path("my/init.json").write_text("[]")
    refused("file_exists", photos)


def test_a_config_that_cannot_be_trained_is_found_before_anything_is_drawn(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decisions, "_frames", lambda *_: iter(()))  # `use_pos` knows 80 frames
    monkeypatch.setattr(writing, "_draw", lambda *_: pytest.fail("lines are drawn"))
    wide = [(name, text * 10) for name, text in labels(photos / "labels.txt").items()]
    write_label_file(photos / "labels.txt", wide)
    assert main(["init", str(photos)]) == 2
    assert "80 positions" in capsys.readouterr().err
    assert not Path("my").exists()


def test_wide_lines_can_be_trained(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = [(name, text * 10) for name, text in labels(photos / "labels.txt").items()]
    write_label_file(photos / "labels.txt", wide)
    said(capsys, "init", photos)
    text = said(capsys, "config", "-c", "my/config.yml", "--check")
    assert "few_frames" not in text and "no issues" in text


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_an_interrupted_init_leaves_is_no_data(
    photos: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    draw = writing._draw

    def interrupt(*given: Any) -> None:
        draw(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(writing, "_draw", interrupt)
    if how == "killed":
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    before = inspect_data(photos).source.images
    assert main(["init", str(photos), "--out", str(photos / "my")]) == 130
    assert (photos / "my" / "drawn").exists() == (how == "killed")
    assert inspect_data(photos).source.images == before


def test_looking_alone_writes_nothing(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digest(tmp_path)
    content = json.loads(said(capsys, "init", photos, "--dry", "--json"))
    assert content["samples"] == 34 and content["split"]["val"] == 8
    assert {"Global.character_dict_path", "Global.epoch_num"} <= {
        each["key"] for each in content["decisions"]
    }
    assert digest(tmp_path) == before
    assert json.loads(json.dumps(inspect_data(photos).to_json())) == content


def test_what_is_left_out_is_left_out_before_anything_is_decided(photos: Path) -> None:
    every = labels(photos / "labels.txt")
    (photos / next(name for name, text in every.items() if "9" not in text)).write_bytes(b"broken")
    usable = [text for text in every.values() if "9" not in text]
    found = inspect_data(photos, characters="012345678")
    assert sum(found.split.counts().values()) == len(usable) - 1
    assert found.found.texts.samples == len(usable) and max(map(len, usable)) == found.found.texts.longest[0]
    assert {each.code: each.count for each in found.found.skipped} == {"unknown_char": 34 - len(usable)}
    assert found.plan.share == 0.75
    assert found.plan.drawn == decisions.DRAWN - found.split.counts()["train"]
    with raises_code(DataError, "no_characters"):
        inspect_data(photos, characters="xyz")


@pytest.mark.parametrize("factor", [0.6, 1.15])
def test_a_brighter_or_darker_copy_stays_with_its_original(photos: Path, factor: float) -> None:
    rows = list(labels(photos / "labels.txt").items())
    for name, _ in rows:
        pixels = np.clip(cv2.imread(str(photos / name)) * factor, 0, 255).astype(np.uint8)
        cv2.imwrite(str(photos / f"other_{name}"), pixels)
    write_label_file(photos / "labels.txt", rows + [(f"other_{name}", text) for name, text in rows])
    for seed in range(3):
        found = inspect_data(photos, seed=seed)
        parts = dict(zip((each.image for each in found.source.samples()), found.split.codes, strict=True))
        assert all(parts[name] == parts[f"other_{name}"] for name, _ in rows)
        assert found.split.counts()["val"] >= 4


def test_the_ceiling_of_val_is_said(photos: Path, tiny: Any, tmp_path: Path) -> None:
    rows = list(labels(photos / "labels.txt").items())
    for split, part in (("train", rows[:24]), ("val", rows[24:])):
        marked = [
            (name, f"{text}X" if split == "val" and number % 2 else text)
            for number, (name, text) in enumerate(part)
        ]
        write_label_file(photos / f"{split}.txt", marked)
    (photos / "labels.txt").unlink()
    save_run(tiny("student"), tmp_path / "run")
    found = inspect_data(photos, base=str(tmp_path / "run"))
    assert found.split.by == OWN_SPLIT and any("at most 50%" in note for note in found.notes)
    # drawn lines have the character
    assert not any("at most" in note for note in inspect_data(photos).notes)


def test_a_base_says_how_much_it_reads_as_eval_says_it(
    photos: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(tiny("student").with_values({"Global.pretrained_model": "old"}), tmp_path / "run")
    text = said(capsys, "init", photos, "--base", "run", "--characters", "0-8")
    found = re.search(r"Before you train: ([\d.]+)% of val \((\d+) samples", text)
    assert found is not None
    assert set("".join(labels(Path("my/train.txt")).values())) <= set("012345678")
    assert re.search(r"\d+ of 34 texts are skipped: unknown_char", text)
    config = load("my/config.yml")
    assert config.at("Architecture.pretrained_dict") is not None
    assert config.at("Global.pretrained_model") == "run/best_accuracy"
    evaluated, trained = (labels(Path(f"my/{name}.txt")) for name in ("general", "general_taught"))
    assert (
        len(evaluated) == 24
        and 6 < len(trained) <= 12
        and set(evaluated.values()).isdisjoint(trained.values())
    )
    assert config.at("Train.mix.0.dataset.label_file_list") == ("my/general_taught.txt",)
    assert config.at("Eval.general.max_drop") == 0.05
    text = said(capsys, "eval", "-c", "my/config.yml")
    accuracy = re.search(r"^acc: ([\d.]+)$", text, re.MULTILINE)
    assert accuracy is not None and float(found[1]) / 100 == pytest.approx(float(accuracy[1]), abs=1e-9)


@pytest.mark.e2e
@pytest.mark.parametrize("ignore", [False, True])
def test_a_list_has_one_accuracy_in_init_train_eval_and_predict(
    photos: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], ignore: bool
) -> None:
    network, charset = save_run(tiny("student"), tmp_path / "run")
    scores = network.head.ctc_head.fc  # it reads 4 in any image of any size
    scores.weight.set_value(paddle.zeros_like(scores.weight))
    scores.bias.set_value(9.0 * (paddle.arange(charset.ctc_classes) == charset.ids("4")[0]).astype("float32"))
    save_checkpoint(network, charset, tmp_path / "run" / "best_accuracy")
    texts = cycle(("4", " 4", "5"))
    write_label_file(photos / "labels.txt", zip(labels(photos / "labels.txt"), texts, strict=False))
    out = said(capsys, "init", photos, "--base", "run")
    options = ("-o", f"Metric.ignore_space={str(ignore).lower()}")
    assert main(["predict", "my/config.yml", "--data-dir", str(photos), "my/val.txt", *options]) == 0
    found = re.search(r"correct: (\d) of 8 .*", capsys.readouterr().err)
    assert found is not None and 0 < int(found[1]) < 8 and (" if spaces count" in found[0]) is ignore
    accuracy = int(found[1]) / 8
    assert ignore or f"Before you train: {accuracy:.2%} of val" in out
    assert f"acc: {accuracy:.4f}" in said(capsys, "eval", "-c", "my/config.yml", *options)
    said(capsys, "train", "-c", "my/config.yml", *options, "Global.epoch_num=1", "Eval.general=null")
    log = Path("my/run/train.log").read_text(encoding="utf-8")
    assert f"eval at step 0 (the start weights): acc {100 * accuracy:.2f} %" in log


def test_the_batch_fits_into_the_memory_and_few_of_many_samples_are_judged(
    photos: Path,
    tiny: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_run(tiny("student", **{"Train.loader.batch_size_per_card": 4}), tmp_path / "run")
    peaks = iter([900, 1000, 900, 1000])
    monkeypatch.setattr(trial, "_peak_memory", lambda: next(peaks))
    monkeypatch.setattr(trial, "memory_limit", lambda: 1600)
    monkeypatch.setattr(trial, "JUDGED", 20)
    monkeypatch.setattr(trial, "READS", 0.0)
    said(capsys, "init", photos, "--base", "run")
    content = json.loads(Path("my/init.json").read_text("utf-8"))
    config = load("my/config.yml")
    # 960 bytes are 60 % of 1,600, and enough for 2 samples beside general ones
    assert (config.at("Train.loader.batch_size_per_card"), config.settings.accumulate) == (2, 2)
    values = {each["key"]: each["value"] for each in content["decisions"]}
    assert values["Train.loader.batch_size_per_card"] == 2 and values["Global.accumulate"] == 2
    assert content["before_training"]["judged"] == 20
    judged = [row.split("\t")[0] for row in Path("my/doubtful.tsv").read_text("utf-8").splitlines()[1:]]
    assert len(set(judged)) == 20 and set(judged) & set(labels(Path("my/val.txt")))
    said(capsys, "config", "-c", "my/config.yml", "--check")


def test_weights_may_forget_what_they_read_for_a_script_that_they_do_not_know(
    photos: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(tiny("student"), tmp_path / "run")
    letters = str.maketrans("0123456789", "abcdefghij")
    rows = [(name, text.translate(letters)) for name, text in labels(photos / "labels.txt").items()]
    write_label_file(photos / "labels.txt", rows)
    assert "; 100% may be lost" in said(capsys, "init", photos, "--base", "run", "--out", "letters")
    assert load("letters/config.yml").at("Eval.general.max_drop") == 1.0
    # labels that are too long for the size of the weights are read wrongly there, and end nothing
    rows = [(name, text * 6) for name, text in rows]
    for name, _ in rows:
        image = cv2.imread(str(photos / name))
        cv2.imwrite(str(photos / name), np.tile(image, (1, 6, 1)))
    write_label_file(photos / "labels.txt", rows)
    said(capsys, "init", photos, "--base", "run", "--out", "long")
    before = json.loads(Path("long/init.json").read_text("utf-8"))["before_training"]
    assert before["own_size"] == 0.0


def test_a_step_of_more_samples_costs_more_than_one_that_was_measured() -> None:
    costs = trial.StepCosts(
        step=lambda count: 1.0 + count, peaks=(200.0, 300.0), sizes=(8.0, 12.0), batches=7, loading=0.1
    )
    assert costs.seconds(1) == 7 * (1 + 10 + 1)  # 1 second, 1 for each sample, and 0.1 to read it
    assert costs.seconds(2) == 14 * (1 + 5) + 7
    assert costs.memory(1) == 100 + 12 * 50
    assert costs.most(24, 700) == 24 and costs.most(24, 699) == 23 and costs.most(24, 0) == 1
    assert replace(costs, peaks=(300.0, 300.0)).most(24, 0) == 24  # it could not be measured


def test_a_student_is_taught_by_a_run(
    photos: Path,
    tiny: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_run(tiny("student"), tmp_path / "run")
    monkeypatch.setattr(trial, "READS", 0.0)
    text = said(capsys, "init", photos, "--distill", "run", "small", "--out", "taught", "--minutes", 0.1)
    assert (
        "The teacher reads: " in text
        and "From nothing" in text
        and "doubtful labels: taught/doubtful.tsv" in text
    )
    content = json.loads(Path("taught/init.json").read_text("utf-8"))
    assert content["before_training"]["judged"] == 34
    steps = {row["key"]: row for row in content["decisions"]}
    assert "steps: the first" in steps["Global.epoch_num"]["why"]
    warm_up = steps["Optimizer.lr.warmup_epoch"]["value"] / steps["Global.epoch_num"]["value"]
    assert warm_up == pytest.approx(0.1, rel=0.1)
    config = load("taught/config.yml")
    assert config.at("Architecture.Models.Teacher.pretrained") == "run/best_accuracy"
    assert config.at("Architecture.Models.Teacher.freeze_params") is True
    assert config.at("Global.character_dict_path") == "taught/dict.txt"  # of the labels, not of the teacher
    assert "no issues" in said(
        capsys, "config", "-c", "taught/config.yml", "--check", "-o", "Global.allow_untrained_teacher=true"
    )
    text = said(capsys, "init", photos, "--base", "run", "--out", "more", "--general", photos / "labels.txt")
    assert "the run run" in text and re.search(r"general 17, taught 1[0-6]\b", text)
    judged, taught = (labels(Path(f"more/{name}.txt")) for name in ("general", "general_taught"))
    assert judged.keys().isdisjoint(taught)
    (mixed,) = load("more/config.yml").at("Train.mix")
    assert mixed["dataset"]["label_file_list"] == ("more/general_taught.txt",) and "labelled" not in mixed
    assert "; 1% may be lost (Eval.general)" in text
    text = said(capsys, "init", photos, "--distill", "ch_SVTRv2_rec", "ch_RepSVTR_rec", "--out", "official")
    assert "weights get ch_SVTRv2_rec && ppocr-ext weights get ch_RepSVTR_rec" in text
    assert load("official/config.yml").at("Architecture.Models.Student.pretrained") == "ch_RepSVTR_rec"


def test_lines_with_images_of_val_and_test_do_not_train(
    photos: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(tiny("student"), tmp_path / "run")
    own = labels(photos / "labels.txt")
    (tmp_path / "other").mkdir()
    for name in own:
        shutil.copy(photos / name, tmp_path / "other" / f"copy_{name}")
    write_label_file(tmp_path / "other" / "list.txt", [(f"copy_{name}", text) for name, text in own.items()])
    for file in (photos / "labels.txt", tmp_path / "other" / "list.txt"):
        more = ("--more", file) if file.parent != photos else ()
        text = said(capsys, "init", photos, "--base", "run", "--test", "--force", "--general", file, *more)
        assert len(re.findall(rf"lines of {file} have images of val or test", text)) == 1 + bool(more)
        judging = {name for part in ("val", "test") for name in labels(Path(f"my/{part}.txt"))}
        for part in ("general_taught", *(["more"] if more else [])):
            trained = {name.removeprefix("copy_") for name in labels(Path(f"my/{part}.txt"))}
            assert trained and trained.isdisjoint(judging)


def test_other_lines_train_and_judge_nothing(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decisions, "DRAWN", 200)
    own = labels(photos / "labels.txt")
    content = (photos / "train_000000.png").read_bytes()
    for number in range(4):
        (photos / f"new{number}.png").write_bytes(content + bytes([number]))  # another file
    read = {"new0.png": "12", "new1.png": "34"}
    # images with a label already, another character, and too long
    lines = [*read.items(), *own.items(), ("new2.png", "12·3"), ("new3.png", "1" * 40)]
    write_label_file(photos / "read.txt", lines)
    words = ("init", photos, "--labels", "labels.txt", "--base", "small", "--more", photos / "read.txt")
    assert "more 2" in said(capsys, *words)
    config = load("my/config.yml")
    assert config.at("Architecture.Backbone.dims") == (24, 48, 96)
    drawn, mixed = config.at("Train.mix")
    assert (drawn["share"], mixed["share"]) == (0.6, 0.2)  # the lines of the user are a fifth
    assert mixed["dataset"] == {"data_dir": "photos", "label_file_list": ("my/more.txt",)}
    assert labels(Path("my/more.txt")) == read
    assert main(["config", "-c", "my/config.yml", "--check"]) == 0
    capsys.readouterr()
    write_label_file(photos / "read.txt", [("new0.png", "·"), ("train_000000.png", "1")])
    assert (
        main([str(word) for word in (*words, "--force")]) == 2 and "[no_samples]" in capsys.readouterr().err
    )


def test_lmdbs_for_train_and_val_are_read_as_they_are(
    photos: Path, tiny: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--label-files", photos / "labels.txt", "--data-dir", photos)
    for split in ("train", "val"):
        said(capsys, "make-lmdb", *words, "--out", f"sets/{split}")
    said(capsys, "init", "sets")
    config = load("my/config.yml")
    assert config.at("Eval.dataset.data_dir") == "sets/val" and not Path("my/val.txt").exists()
    assert config.at("Train.mix.0.dataset").thaw() == {
        "name": "SimpleDataSet",
        "data_dir": "my/drawn",
        "label_file_list": ["my/drawn.txt"],
    }
    assert main(["config", "-c", "my/config.yml", "--check"]) == 0
    said(capsys, "init", "sets", "--characters", "0-8", "--out", "some")
    assert set("".join(labels(Path("some/train.txt")).values())) <= set("012345678")
    save_run(tiny("student"), Path("run"))
    said(capsys, "init", "sets", "--base", "run", "--out", "kept")  # beside drawn lines, which are in no LMDB
    assert load("kept/config.yml").at("Eval.dataset.data_dir") == "sets/val"
    assert main(["config", "-c", "kept/config.yml", "--check"]) == 0
    said(capsys, "init", "sets/train", "--out", "one")
    assert all((Path("one") / name).is_file() for name in labels(Path("one/train.txt")))
    own = labels(photos / "labels.txt").items()
    write_label_file(
        photos / "marked.txt", [(name, "###" if at % 5 else text) for at, (name, text) in enumerate(own)]
    )
    for split in ("train", "val"):
        words = ("--label-files", photos / "marked.txt", "--data-dir", photos, "--out", f"marked/{split}")
        said(capsys, "make-lmdb", *words)
    said(capsys, "init", "marked", "--base", "run", "--out", "legible")  # the other lines, with their images
    assert "###" not in labels(Path("legible/val.txt")).values()
    assert main(["config", "-c", "legible/config.yml", "--check"]) == 0


@pytest.fixture
def pages(photos: Path, tmp_path: Path) -> Path:
    """Twelve pages of PPOCRLabel with three lines each, one of them illegible."""
    folder = tmp_path / "pages"
    folder.mkdir()
    images = iter(list(labels(photos / "labels.txt").items())[:24])
    lines = []
    for number in range(12):
        page = np.full((300, 400, 3), 200, np.uint8)
        boxes = []
        for row in range(2):
            name, text = next(images)
            image = cv2.imread(str(photos / name))
            top, height, width = 20 + 90 * row, *image.shape[:2]
            page[top : top + height, 30 : 30 + width] = image
            corners = [[30, top], [30 + width, top], [30 + width, top + height], [30, top + height]]
            boxes.append({"transcription": text, "points": corners, "difficult": False})
        boxes.append(
            {"transcription": "###", "points": [[1, 200], [90, 200], [90, 230], [1, 230]], "difficult": True}
        )
        cv2.imwrite(str(folder / f"page {number}.jpg"), page)
        lines.append(f"pages/page {number}.jpg\t{json.dumps(boxes)}")
    (folder / "Label.txt").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    return folder


def test_a_single_character_is_not_turned(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (pages / "Label.txt").read_text(encoding="utf-8").splitlines()
    high = [[5, 5], [25, 5], [25, 65], [5, 65]]
    boxes = [{"transcription": text, "points": high, "difficult": False} for text in ("1", "11")]
    name = lines[0].partition("\t")[0]
    lines[0] = f"{name}\t{json.dumps(boxes)}"
    (pages / "Label.txt").write_text("\n".join(lines), encoding="utf-8")
    assert "1 crops" in said(capsys, "init", pages)
    cut = labels(Path("my/train.txt")) | labels(Path("my/val.txt"))
    shapes = {text: cv2.imread(f"my/{image}").shape[:2] for image, text in cut.items() if text in ("1", "11")}
    assert shapes == {"1": (60, 20), "11": (20, 60)}


def test_pages_are_cut_and_their_lines_stay_together(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pages / "page 3.jpg").write_bytes(b"no image")
    text = said(capsys, "init", pages)
    assert "by page" in text and "12 of 36 texts are skipped: illegible" in text
    assert "left out: 2 broken_image" in text
    train, val = labels(Path("my/train.txt")), labels(Path("my/val.txt"))
    assert len(train) + len(val) == 22
    assert all((Path("my") / name).is_file() for name in train | val)
    on_page = [{name.rpartition("_")[0] for name in part} for part in (train, val)]
    assert not on_page[0] & on_page[1]
    assert main(["config", "-c", "my/config.yml", "--check"]) == 0


def test_each_sample_says_whether_it_is_cut_out(pages: Path) -> None:
    inspection = inspect_data(pages)
    first, *others = inspection.source.samples()
    mixed = replace(inspection.source, read=lambda: iter([first._replace(box=None), *others]))
    writing.write_first_run(replace(inspection, source=mixed), "init")
    written = labels(Path("my/train.txt")) | labels(Path("my/val.txt"))
    sizes = {cv2.imread(f"my/{name}").shape[:2] == (300, 400) for name in written}
    assert len(written) == 24 and sizes == {True, False}


def test_a_page_shows_labels_as_text(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        (name, text if number else "<b>&\u202e")
        for number, (name, text) in enumerate(labels(photos / "labels.txt").items())
    ]
    write_label_file(photos / "labels.txt", rows)
    (photos / rows[5][0]).write_bytes(b"broken")
    text = said(capsys, "init", photos, "--out", photos / "my")
    assert "1 of 34 images cannot be decoded" in text and "characters occur only once: <" in text
    assert "\u202e" not in text
    assert "samples: 34 usable" in said(capsys, "init", photos, "--dry")  # what the first one drew is no data
    page = (photos / "my" / "init.html").read_text(encoding="utf-8")
    assert "<b>&" not in page and "http" not in page.replace("http-equiv", "")
    assert "As the network sees the images" in page


def bad_folders(tmp_path: Path, photos: Path) -> Iterator[tuple[list[str], str]]:
    (tmp_path / "empty").mkdir()
    yield ["empty"], "no_samples"
    yield ["nowhere"], "missing_folder"
    few = tmp_path / "few"
    few.mkdir()
    for name, text in list(labels(photos / "labels.txt").items())[:3]:
        (few / name).write_bytes((photos / name).read_bytes())
        (few / Path(name).with_suffix(".txt")).write_text(text, encoding="utf-8")
    yield ["few"], "too_few_samples"
    yield ["photos", "--characters", "xyz"], "no_characters"
    yield ["photos", "--base", "nothing"], "no_run"
    yield ["photos", "--base", "a", "--distill", "b", "small"], "bad_arguments"
    yield ["photos", "--format", "tsvv"], "bad_value"
    (photos / "other.csv").write_text("image,text\ntrain_000000.png,other\n", encoding="utf-8")
    yield ["photos"], "ambiguous_data"


def test_bad_input_is_named(tmp_path: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in bad_folders(tmp_path, photos):
        assert main(["init", *words]) == 2
        text = capsys.readouterr().err
        assert f"[{code}]" in text and "internal error" not in text, text
    assert not Path("my").exists()


@pytest.fixture
def tiny_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PP-OCRv6 tiny with random weights, as the client of PaddleOCR 3 keeps it; it knows letters and no digits."""
    write_network("pp-ocr/v6_tiny", tmp_path, 320)
    monkeypatch.setenv(released.CLIENT_CACHE, str(tmp_path / "paddlex"))
    folder = paddle_release(tmp_path, tmp_path / "paddlex" / "official_models" / "PP-OCRv6_tiny_rec")
    describe(folder, CHARACTERS, shape=(3, 48, 320), name="PP-OCRv6_tiny_rec")
    return folder


@pytest.mark.e2e
@pytest.mark.parametrize("by_name", [True, False])
def test_a_released_model_is_a_base_from_the_first_look_to_a_reading(
    photos: Path, tiny_release: Path, capsys: pytest.CaptureFixture[str], by_name: bool
) -> None:
    base = "PP-OCRv6_tiny_rec" if by_name else tiny_release
    assert "Before you train" in said(capsys, "init", photos, "--base", base)
    config = load("my/config.yml")
    assert config.at("Architecture.fused") is True and config.settings.use_gpu is False
    assert [list(each) for each in config.at("Architecture.Head.head_list")] == [["CTCHead"]]
    assert Path("my/dict.txt").read_text().split() == [*CHARACTERS, *"0123456789"]
    said(capsys, "config", "-c", "my/config.yml", "--check")
    said(capsys, "train", "-c", "my/config.yml", "-o", "Global.epoch_num=1")
    record = json.loads(Path("my/run/run.json").read_text())["official_weights"]
    assert str(tiny_release) in record[str(base)]["source"]
    tiny_release.rename(tiny_release.with_name("moved"))  # a run needs it no more
    said(capsys, "train", "--resume", "my/run", "-o", "Global.epoch_num=2")
    assert json.loads(Path("my/run/run.json").read_text())["official_weights"] == record
    assert said(capsys, "predict", "my/run", photos / "labels.txt").count("\n") == 35


@pytest.mark.e2e
def test_a_released_model_teaches_a_student_with_a_dictionary_of_its_own(
    photos: Path, tiny_release: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    describe(tiny_release, "0123456789abcdefghi", shape=(3, 48, 320))
    words = ["init", str(photos), "--distill", str(tiny_release), "small"]
    assert main(words) == 2 and "[unknown_model]" in capsys.readouterr().err
    said(capsys, *words, "--trust-model")
    config = load("my/config.yml")
    head = config.at("Architecture.Models.Teacher.Head")
    assert head.thaw() == {"name": "InferenceModel", "sha256": released.find_released(tiny_release).digest}
    assert Path("my/dict.txt").read_text().split() == list("0123456789")
    checked = said(
        capsys, "config", "-c", "my/config.yml", "--check", "-o", "Global.allow_untrained_teacher=true"
    )
    assert "no issues" in checked


def test_no_list_of_an_earlier_init_stays(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "init", photos, "--test")
    assert Path("my/test.txt").is_file()
    said(capsys, "init", photos, "--force")  # its lines train now
    assert not Path("my/test.txt").exists()
    assert "test.txt" not in json.loads(Path("my/init.json").read_text("utf-8"))["files"]


def test_a_model_on_this_machine_is_offered(
    photos: Path, tiny_release: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(tiny_release, "0123456789abcdefghi", shape=(3, 48, 320), name="PP-OCRv6_tiny_rec")
    text = said(capsys, "init", photos, "--dry")
    assert "official PP-OCRv6_tiny_rec: has 100.0% of your characters" in text
    # Its digest is not known.
    assert "init … --base PP-OCRv6_tiny_rec" in text and "of your lines now" not in text
    digests = released.find_released(tiny_release).digests
    row = replace(PACKAGES[0], package="any", name="PP-OCRv6_tiny_rec", sha256=digests)
    monkeypatch.setattr(released, "released_packages", lambda: (row,))
    assert "0.0% of 34 of your lines now" in said(capsys, "init", photos, "--dry")
