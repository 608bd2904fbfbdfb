"""The experiments that compare students: their order, what their runs differ in, and the table; runs are replaced."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from experiments import pp_ocr_distillation, runs, teacher_cache
from experiments.pp_ocr_distillation import training
from experiments.runs import Training

from ppocr_ext.config import Config, load
from ppocr_ext.evaluation.predictions import Prediction, write_predictions

RIGHT = {
    "teacher": 10,
    "alone": 6,
    "distilled": 9,
    "live": 8,
    "bfloat16": 9,
    "1": 5,
    "4": 7,
}  # of ten test lines


def config_of(run: Training) -> Config:
    options = run.options()
    return load([options[1]], options[3:])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace what takes minutes by runs that read ``RIGHT`` lines; return the list of what was called."""
    called: list[str] = []

    def train(run: Training, threads: int = 1) -> None:
        called.append(run.folder.name)
        run.folder.mkdir(parents=True)
        record = {"parameters": {"trained": 2_500_000}, "global_step": 100}
        (run.folder / "run.json").write_text(json.dumps(record))

    def read_lines(run: Training, data: Path, output: Path) -> Path:
        right = RIGHT[run.folder.name.partition("_")[0]]
        texts = ["1"] * right + ["7"] * (10 - right)
        write_predictions(output, [Prediction(f"{i}.png", "1", text, 1.0) for i, text in enumerate(texts)])
        return output

    def command(name: str, arguments: list[str], log: Path) -> None:
        called.append(f"{name} {arguments[0]}" if name == "make-dataset" else name)
        if arguments[0] == "lines" and log.stem == "data":
            (log.parent / "data").mkdir()
            (log.parent / "data/train_list.txt").write_text("".join(f"{i}.png\t{i}\n" for i in range(3200)))

    monkeypatch.setattr(runs, "read_lines", read_lines)
    for module in (runs, teacher_cache):
        monkeypatch.setattr(module, "command", command)
    for module in (pp_ocr_distillation, teacher_cache):
        monkeypatch.setattr(module, "train", train)
    return called


def cells(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in rows}


def arguments(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(out=folder, seeds=[1, 2], at_once=1)


def test_students_are_taught_after_the_teacher_is_trained_and_the_table_compares_them(
    calls: list[str], tmp_path: Path
) -> None:
    table = pp_ocr_distillation.run_experiment(arguments(tmp_path))
    trained = ["teacher", "alone_seed1", "alone_seed2", "distilled_seed1", "distilled_seed2"]
    assert calls == ["make-dataset lines", "make-dataset lines", *trained]
    rows = cells(table)
    assert rows["teacher (PP-OCRv6 medium)"][:4] == ["2.50 M", "100", "100.0 %", "100.0"]
    assert rows["student alone (PP-OCRv6 tiny)"][2:] == ["60.0 ± 0.0 %", "60.0, 60.0", "", ""]
    assert rows["student, distilled"][2:] == ["90.0 ± 0.0 %", "90.0, 90.0", "+30.0, +30.0", "0.25, 0.25"]
    assert (tmp_path / "student_list.txt").read_text().count("\n") == 1200


def test_alone_and_distilled_differ_in_the_teacher_alone(tmp_path: Path) -> None:
    alone, distilled = (config_of(training(tmp_path, kind, 3)) for kind in ("alone", "distilled"))
    for section in ("Train", "Eval", "Optimizer", "Global"):
        ours, theirs = (config.at(section).thaw() for config in (alone, distilled))
        for own in ("save_model_dir", "pretrained_model"):
            ours.pop(own, None), theirs.pop(own, None)
        assert ours == theirs
    teacher = distilled.at("Architecture.Models.Teacher.pretrained")
    assert teacher == str(training(tmp_path, "teacher").latest)


def test_students_of_caches_differ_in_seed_and_cache_alone(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[str, Config] = {}
    train = teacher_cache.train

    def note(run: Training, threads: int = 1) -> None:
        used[run.folder.name] = config_of(run)
        train(run)

    monkeypatch.setattr(teacher_cache, "train", note)
    table = teacher_cache.run_experiment(arguments(tmp_path))
    assert calls[2:5] == ["teacher", "cache-teacher", "cache-teacher"]
    kinds = ("live", "bfloat16", "1_view", "4_views")
    assert sorted(calls[5:]) == sorted(f"{kind}_seed{seed}" for kind in kinds for seed in (1, 2))
    live, cached = (used[f"{kind}_seed2"].thaw() for kind in ("live", "4_views"))
    assert cached["Train"].pop("teacher_cache") == str(tmp_path / "cache_4_views")
    assert live["Train"].pop("teacher_cache") is None
    assert used["bfloat16_seed2"].at("Global.teacher_dtype") == "bfloat16"
    for config in (live, cached):
        config["Global"].pop("save_model_dir")
    assert live == cached and live["Global"]["seed"] == 2
    assert "RecAug" in json.dumps(live["Train"])
    assert (tmp_path / "results.md").read_text() == table + "\n"
    assert cells(table)["4 views"][2:5] == ["70.0 ± 0.0 %", "70.0, 70.0", "-10.0, -10.0"]
