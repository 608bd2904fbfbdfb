"""The plain config that PaddleOCR receives: one pure function of the resolved config."""

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.host.complete import PREPARING, TURNING
from ppocr_ext.loop.session import train
from ppocr_ext.run.host_config import evaluation_steps, host_config
from ppocr_ext.run.run import Run

CONFIG = Config(
    {
        "Global": {"epoch_num": 2, "eval_batch_step": [0, 10]},
        "Train": {"sampler": None, "dataset": {"name": "SimpleDataSet", "label_file_list": ["a.txt"]}},
        "Eval": {"dataset": {"name": "LMDBDataSet", "ratio_list": [0.5]}},
        "computed": ["Global.x"],
    }
)


def test_what_the_host_cannot_use_is_not_in_it_and_the_config_is_unchanged():
    before = CONFIG.thaw()
    plain = host_config(CONFIG, label_files={"Train": [Path("usable.txt")]}, eval_steps=(0, 7))
    assert CONFIG.thaw() == before
    assert plain == {
        "Global": {"epoch_num": 2, "eval_batch_step": [0, 7], "distributed": False},
        "Train": {"dataset": {"name": "SimpleDataSet", "label_file_list": ["usable.txt"]}},
        "Eval": {"dataset": {"name": "LMDBDataSet"}},
        "profiler_options": None,
    }
    assert host_config(CONFIG, distributed=True)["Global"]["distributed"] is True


def test_our_keys_add_transforms_where_recconaug_loads_its_images_too():
    listed = [{"DecodeImage": {}}, {"RecConAug": {}}, {"RecResizeImg": {}}]
    keys = {"turn_tall_images": True, "text_direction": "right_to_left"}
    dataset = {"name": "SimpleDataSet", "ext_op_transform_idx": 1, "transforms": listed}
    config = Config({"Global": keys, "Train": {"dataset": dataset}, "Eval": {"dataset": dataset}})
    for mode in ("Train", "Eval"):
        changed = host_config(config)[mode]["dataset"]
        names = [next(iter(each)) for each in changed["transforms"]]
        assert names == [PREPARING, "DecodeImage", TURNING, "RecConAug", "RecResizeImg"]
        assert changed["ext_op_transform_idx"] == 3


@pytest.mark.parametrize(
    ("values", "steps", "expected"),
    [
        ({}, 20, (0, 10)),
        ({}, 4, (0, 10)),  # beyond the end of the run, where the loop evaluates
        ({"Global.eval_batch_step": 3}, 20, (0, 3)),
        ({"Global.eval_batch_step": [5, 3]}, 20, (5, 3)),
        ({"Global.eval_batch_epoch": 1}, 20, (0, 20)),
    ],
)
def test_evaluations_are_counted_in_steps(values, steps, expected):
    assert evaluation_steps(CONFIG.with_values(values), steps) == expected


@pytest.mark.parametrize("value", ["often", [1, 2, 3], [0, 0]])
def test_steps_that_are_none(value):
    with raises_code(ConfigError, "bad_value"):
        evaluation_steps(CONFIG.with_values({"Global.eval_batch_step": value}), 20)


def test_a_run_does_not_change_and_records_what_the_host_received(tiny, tmp_path):
    config = tiny("student", **{"Global.report": False})
    run = Run.build(config, "train")
    with pytest.raises(FrozenInstanceError):
        run.metric = None
    train(config)
    recorded = json.loads((tmp_path / "run" / "host_config.json").read_text())
    assert recorded == json.loads(json.dumps(run.host_config))
    assert recorded["Global"]["eval_batch_step"][1] > 0
