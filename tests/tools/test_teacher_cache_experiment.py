"""The experiment with teacher caches: its order, what its runs differ in, and the table; runs are replaced."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from experiments import runs, teacher_cache
from experiments.runs import Training

from ppocr_ext.config import Config, load
from ppocr_ext.evaluation.predictions import Prediction, write_predictions

RIGHT = {
    "teacher": 10,
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
    monkeypatch.setattr(teacher_cache, "train", train)
    return called


def cells(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in rows}


def arguments(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(out=folder, seeds=[1, 2], at_once=1)


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
