"""A config of another program or task is called so, in place of a list of its keys."""

from __future__ import annotations

from typing import Any

import pytest
from official_facts import Check, facts, only

from ppocr_ext.config import Config

OTHERS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"Architecture": {"Encoder": {"name": "A"}, "Decoder": {"name": "B"}}},
        "Architecture.Encoder",
        "OpenOCR",
    ),
    ({"Optimizer": {"lr": 0.001}, "LRScheduler": {"name": "OneCycleLR"}}, "LRScheduler", "PytorchOCR"),
    ({"Global": {"use_det": True}, "Det": {"model_path": "x"}, "Rec": {"model_path": "x"}}, "Det", "`Rec`"),
    (
        {"Global": {}, "PreProcess": {"transform_ops": [{}]}, "PostProcess": {}},
        "PreProcess.transform_ops",
        "export",
    ),
    ({"pipeline_name": "OCR", "SubModules": {"TextDetection": {}}}, "SubModules", "PaddleX"),
    (
        {"Global": {"model": "PP-OCRv4_server_rec", "dataset_dir": "x"}, "Train": {}},
        "Global.dataset_dir",
        "PaddleX",
    ),
    (
        {"Architecture": {"model_type": "det", "Head": {"name": "DBHead"}}},
        "Architecture.model_type",
        "detection",
    ),
    ({"Architecture": {"model_type": "sr"}}, "Architecture.model_type", "super-resolution"),
]


@pytest.mark.parametrize(("config", "path", "fact"), OTHERS)
@pytest.mark.parametrize("role", ["train", "eval", "predict"])
def test_it_is_one_issue(config: dict[str, Any], path: str, fact: str, role: str, check: Check) -> None:
    issue = only(check(config, role))
    assert facts([issue]) == [("error", "other_config", path)] and fact in issue.message


def test_a_recogniser_is_none(one: Config, two: Config, check: Check) -> None:
    assert check(one.with_values({"Architecture.model_type": "rec"})) == [] and check(two) == []
