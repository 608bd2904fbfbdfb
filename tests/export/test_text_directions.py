"""One direction of texts for evaluation, predictions, exports and `verify`, whatever the folders are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from error_codes import raises_code
from saved_runs import save_run
from tiny_runs import captchas, tiny

from ppocr_ext.cli.main import main
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.export.exporter import export_trained
from ppocr_ext.recognition.images import list_images
from ppocr_ext.recognition.recognizer import Recognizer
from ppocr_ext.run.recogniser import recogniser_config
from ppocr_ext.text_direction import (
    LEFT_TO_RIGHT,
    RIGHT_TO_LEFT,
    RIGHT_TO_LEFT_VISUAL,
    TEXT_DIRECTIONS,
    turned,
)

__all__ = ["captchas", "tiny"]

LONG = dict.fromkeys(("Global.max_text_length", "Architecture.Head.head_list.NRTRHead.max_text_length"), 80)
LETTERS = "ابتةסלםשabA12٣% (."
NO_CLIENTS = ["--no-clients"]
WRITTEN = ["dict.txt", "arabic_dict.txt"]


@pytest.fixture
def trained(captchas: Path, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a run below a folder called ``arabic``, and a list of what it reads, in the order that a direction needs."""
    folder = tmp_path / "arabic"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def make(dictionary: str = "dict.txt", direction: str | None = None, **values: Any) -> tuple[Path, Path]:
        (folder / dictionary).write_text("\n".join(LETTERS) + "\n", encoding="utf-8")
        values |= {"Global.character_dict_path": dictionary, **LONG}
        values |= {"Global.text_direction": direction} if direction else {}
        save_run(tiny("student", **values), folder / "run")
        listed = list_images([str(captchas / "val_list.txt")]).images
        options = [f"Global.text_direction={LEFT_TO_RIGHT}"]
        readings = Recognizer(folder / "run", options=options).read([each.source() for each in listed])
        order = turned if direction == RIGHT_TO_LEFT else str
        rows = [f"{each.name}\t{order(found.text)}" for each, found in zip(listed, readings, strict=True)]
        (folder / "list.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
        assert len({turned(found.text) != found.text for found in readings}) and len(set(rows)) > 5
        return folder / "run", folder / "list.txt"

    return make


def counts(run: Path, labels: Path, data: Path, *words: str) -> tuple[int, int, int]:
    """Return how many samples `predict` and `eval` count as right, and how many there are; their files agree."""
    common = ["-o", f"Global.checkpoints={run / 'best_accuracy'}", *words]
    dataset = [f"Eval.dataset.label_file_list=[{labels}]", f"Eval.dataset.data_dir={data}"]
    evaluated = ["eval", "-c", str(run / "config.yml"), *common, *dataset, "--save-predictions", "eval.tsv"]
    assert main(evaluated) == 0
    assert (
        main(["predict", str(run), str(labels), "--data-dir", str(data), "--output", "read.tsv", *common])
        == 0
    )
    files = [read_predictions(name) for name in ("eval.tsv", "read.tsv")]
    assert [(each.label, each.text) for each in files[0]] == [(each.label, each.text) for each in files[1]]
    right = [sum(each.correct for each in predictions) for predictions in files]
    return right[0], right[1], len(files[0])


@pytest.mark.parametrize("dictionary", WRITTEN)
@pytest.mark.parametrize("direction", [None, *TEXT_DIRECTIONS])
def test_predict_and_eval_count_the_same(
    trained: Any, captchas: Path, dictionary: str, direction: str | None
) -> None:
    run, labels = trained(dictionary, direction)
    assert counts(run, labels, captchas) == (10, 10, 10)


def test_labels_are_compared_without_case_where_no_dictionary_is_given(
    trained: Any, captchas: Path, tiny: Any, tmp_path: Path
) -> None:
    run, labels = trained()
    (tmp_path / "default.txt").write_text("\n".join("0123456789abcdefghijklmnopqrstuvwxyz") + "\n")
    config = tiny("student", **{"Global.character_dict_path": str(tmp_path / "default.txt"), **LONG})
    save_run(config, run)
    (run / "config.yml").write_text(
        config.with_values({"Global.character_dict_path": None}).to_yaml(), encoding="utf-8"
    )
    listed = list_images([str(captchas / "val_list.txt")]).images
    texts = Recognizer(run).read([each.source() for each in listed])
    rows = [f"{each.name}\t{found.text.upper()}" for each, found in zip(listed, texts, strict=True)]
    labels.write_text("\n".join(rows) + "\n")
    assert counts(run, labels, captchas) == (10, 10, 10)


@pytest.mark.parametrize(("dictionary", "direction", "written"), [
    ("dict.txt", None, LEFT_TO_RIGHT),
    ("arabic_dict.txt", None, RIGHT_TO_LEFT_VISUAL),
    ("dict.txt", RIGHT_TO_LEFT, RIGHT_TO_LEFT),
])  # fmt: skip
def test_an_export_reads_as_its_run_does(
    trained: Any, captchas: Path, dictionary: str, direction: str | None, written: str
) -> None:
    pytest.importorskip("paddle2onnx")
    run, labels = trained(dictionary, direction)
    words = [str(labels), "--data-dir", str(captchas)]
    assert main(["export", str(run), "--output", "model"]) == 0
    described = json.loads(Path("model/model.json").read_text(encoding="utf-8"))
    assert described["text_direction"] == written
    assert described["model_name"].startswith("arabic_") == (written != LEFT_TO_RIGHT)
    assert ("get_display" in Path("model/README.md").read_text(encoding="utf-8")) == (
        written != LEFT_TO_RIGHT
    )
    assert main(["predict", str(run), *words, "--output", "run.tsv"]) == 0
    expected = read_predictions("run.tsv")
    for place in ("model", "model/inference.onnx"):
        assert main(["predict", place, *words, "--output", "model.tsv"]) == 0
        found = read_predictions("model.tsv")
        assert [(each.label, each.text) for each in found] == [(each.label, each.text) for each in expected]
    assert all(each.correct for each in expected)
    verify = ["verify", "model", "--run", str(run), "--data", str(labels), "--data-dir", str(captchas)]
    assert main([*verify, *NO_CLIENTS]) == 0
    other = f"Global.text_direction={LEFT_TO_RIGHT if written != LEFT_TO_RIGHT else RIGHT_TO_LEFT}"
    assert main([*verify, "-o", other, *NO_CLIENTS]) == 1


def test_some_characters_keep_the_direction(trained: Any, captchas: Path, capsys: Any) -> None:
    run, labels = trained("arabic_dict.txt")
    words = ["export", str(run), "--output", "cut", "--format", "paddle", "--characters", LETTERS]
    assert main([*words, "--data", str(labels), "--data-dir", str(captchas)]) == 0
    assert "100.00% are right" in capsys.readouterr().out
    described = json.loads(Path("cut/model.json").read_text(encoding="utf-8"))
    assert described["text_direction"] == RIGHT_TO_LEFT_VISUAL


def test_a_name_under_which_the_client_would_not_turn_texts_is_refused(trained: Any, tmp_path: Path) -> None:
    run, _ = trained("arabic_dict.txt")
    config = recogniser_config(run)
    with raises_code(ConfigError, "arabic_name", "arabic_PP-OCRv5_mobile_rec"):
        export_trained(config, tmp_path / "model", model_name="ch_SVTRv2_rec")
    config = config.with_values({"Global.text_direction": LEFT_TO_RIGHT})
    with raises_code(ConfigError, "arabic_name", "ch_SVTRv2_rec"):
        export_trained(config, tmp_path / "model", model_name="arabic_PP-OCRv5_mobile_rec")
