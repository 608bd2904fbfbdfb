"""A run that trains on text lines that are drawn as it asks for them."""

from __future__ import annotations

import json

import pytest
from tiny_runs import captchas, tiny

from ppocr_ext.loop.session import train

__all__ = ["captchas", "tiny"]


@pytest.fixture
def lines(tiny, tmp_path):
    """A config of two steps on four lines each."""
    config = tiny("student")
    dataset = {
        "name": "TextLineDataSet",
        "size": 8,
        "length": [2, 5],
        "fonts": ["captcha"],
        "rich_in": ["01", 0.5],
        "style": {"height": 32, "blur": [0, 1], "backgrounds": ["plain", "texture"]},
        "transforms": config.thaw()["Train"]["dataset"]["transforms"],
    }
    return config.with_values(
        {
            "Train.dataset": dataset,
            "Train.loader.batch_size_per_card": 4,
            "Eval.dataset": {**dataset, "seed": 7},
            "Eval.loader.batch_size_per_card": 4,
            "Global.epoch_num": 1,
            "Global.eval_batch_step": [0, 2],
        }
    )


def test_a_run_trains_and_evaluates_on_drawn_lines(lines, tmp_path):
    train(lines)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
    assert [row["kind"] for row in rows].count("eval") == 1
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    assert (tmp_path / "run" / "latest.pdparams").is_file()
