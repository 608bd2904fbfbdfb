"""The order of the distillation experiment, its table and its curves; runs and readings are replaced."""

import json

import pytest
from experiments import pp_ocr_distillation
from experiments.pp_ocr_distillation import run_experiment, training
from PIL import Image

from ppocr_ext.config import load
from ppocr_ext.evaluation.predictions import Prediction, write_predictions

RIGHT = {"teacher": 10, "alone": 6, "distilled": 9}  # of ten test lines


@pytest.fixture
def calls(monkeypatch):
    """Replace what takes minutes by runs that read ``RIGHT`` lines; return the list of what was called."""
    calls = []

    def train(run):
        calls.append(run.folder.name)
        run.folder.mkdir(parents=True)
        record = {"status": "finished", "parameters": {"trained": 2_500_000}}
        (run.folder / "run.json").write_text(json.dumps(record))
        points = [{"kind": "eval", "epoch": 1, "step": step, "acc": step / 200} for step in (50, 100)]
        (run.folder / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))

    def read_lines(run, data, output):
        right = RIGHT[run.folder.name.partition("_")[0]]
        write_predictions(
            output, [Prediction(f"{i}.png", "1", "1" if i < right else "7", 1.0) for i in range(10)]
        )
        return output

    def draw_data_and_test(kind, folder, counts, options):
        calls.append(kind)
        (folder / "data").mkdir()
        (folder / "data/train_list.txt").write_text("".join(f"{i}.png\t{i}\n" for i in range(counts[0])))

    monkeypatch.setattr(pp_ocr_distillation, "train", train)
    monkeypatch.setattr(pp_ocr_distillation, "read_lines", read_lines)
    monkeypatch.setattr(pp_ocr_distillation, "draw_data_and_test", draw_data_and_test)
    monkeypatch.setattr(pp_ocr_distillation, "command", lambda name, *_: calls.append(name))
    return calls


def cells(table):
    return {
        row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]]
        for row in table.splitlines()[2:]
    }


def test_students_are_taught_after_the_teacher_is_trained_and_the_table_compares_them(calls, tmp_path):
    rows = cells(run_experiment(tmp_path, [1, 2], at_once=1))
    assert calls == [
        "lines", "teacher", "alone_seed1", "alone_seed2", "distilled_seed1",
        "distilled_seed2", "export-center",
    ]  # fmt: skip
    assert rows["teacher (PP-OCRv6 medium)"] == ["2.50 M", "100", "100.0 %", "100.0", "", ""]
    assert rows["student alone (PP-OCRv6 tiny)"][2:4] == ["60.0 ± 0.0 %", "60.0, 60.0"]
    assert rows["student, distilled"][2:] == ["90.0 ± 0.0 %", "90.0, 90.0", "+30.0, +30.0", "0.25, 0.25"]
    assert json.loads((tmp_path / "results.json").read_text())["alone"][1]["seed"] == 2
    with Image.open(tmp_path / "curves.png") as picture:
        colors = {color for _, color in picture.convert("RGB").getcolors(1 << 24)}
    assert {(213, 94, 0), (0, 114, 178)} <= colors  # both curves


def test_alone_and_distilled_differ_in_the_teacher_alone(tmp_path):
    alone, distilled = (
        load(list(run.configs), run.options()[run.options().index("-o") + 1 :])
        for run in (training(tmp_path, "alone", 3), training(tmp_path, "distilled", 3))
    )
    for section in ("Train", "Eval", "Optimizer", "Global"):
        ours, theirs = (config.at(section).thaw() for config in (alone, distilled))
        for own in ("save_model_dir", "pretrained_model"):
            ours.pop(own, None), theirs.pop(own, None)
        assert ours == theirs
    teacher = distilled.at("Architecture.Models.Teacher.pretrained")
    assert teacher == str(training(tmp_path, "teacher").latest)
