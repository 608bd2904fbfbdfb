"""The order of the experiment with teacher caches, what its runs differ in, and its table; the runs are replaced."""

from __future__ import annotations

import json

from experiments import teacher_cache
from experiments.teacher_cache import run_experiment

from ppocr_ext.config import load
from ppocr_ext.evaluation.predictions import Prediction, write_predictions

RIGHT = {"live": 8, "bfloat16": 9, "1": 5, "4": 7}  # of ten test images


def test_runs_differ_in_seed_and_cache_alone(monkeypatch, tmp_path):
    calls = []

    def train(run, threads=1):
        calls.append(run.folder.name)
        options = run.options()
        used[run.folder.name] = load([options[1]], options[3:])

    def read_lines(run, data, output):
        output.parent.mkdir(parents=True)
        right = RIGHT[run.folder.name.partition("_")[0]]
        write_predictions(
            output, [Prediction(f"{i}.png", "1", "1" if i < right else "7", 1.0) for i in range(10)]
        )
        return output

    used: dict = {}
    replaced = {"train": train, "read_lines": read_lines}
    replaced |= {name: lambda name, *_: calls.append(name) for name in ("command", "draw_data_and_test")}
    for name, instead in replaced.items():
        monkeypatch.setattr(teacher_cache, name, instead)
    table = run_experiment(tmp_path, [1, 2], 1)
    assert calls[:4] == ["captcha", "teacher", "cache-teacher", "cache-teacher"]
    assert sorted(calls[4:]) == sorted(
        f"{kind}_seed{seed}" for kind in ("live", "bfloat16", "1_view", "4_views") for seed in (1, 2)
    )
    live, cached = (used[f"{kind}_seed2"].thaw() for kind in ("live", "4_views"))
    assert cached["Train"].pop("teacher_cache") == str(tmp_path / "cache_4_views")
    assert live["Train"].pop("teacher_cache") is None
    assert used["bfloat16_seed2"].at("Global.teacher_dtype") == "bfloat16"
    for config in (live, cached):
        config["Global"].pop("save_model_dir")
    assert live == cached and live["Global"]["seed"] == 2
    assert "RecAug" in json.dumps(live["Train"])
    assert (tmp_path / "results.md").read_text() == table + "\n"
    assert "| 4 views | 70.0 ± 0.0 % | 70.0, 70.0 | -10.0, -10.0 |" in table
