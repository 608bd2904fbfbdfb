"""Which file the weights of a sub-model are taken from, as evaluation takes them."""

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.centers.collect import config_of_model
from ppocr_ext.errors import WeightsError
from ppocr_ext.run.run import Run

ALL = {"whole": ("Teacher.", "Student."), "student": ("Student.",), "teacher": ("Teacher.",), "single": ("",)}


@pytest.fixture
def files(tmp_path):
    """A file of each kind, and the sub-model's ``own``."""
    paths = {}
    for kind, prefixes in {**ALL, "own": ("",), "wrapped": ("_layers.Teacher.",)}.items():
        paddle.save(
            {f"{p}backbone.w": paddle.zeros([1]) for p in prefixes}, str(tmp_path / f"{kind}.pdparams")
        )
        paths[kind] = str(tmp_path / kind)
    return paths


@pytest.mark.parametrize(
    ("name", "checkpoint", "pretrained", "own", "expected"),
    [
        ("Teacher", "whole", None, "own", "whole"),
        ("Teacher", None, "whole", "own", "whole"),
        ("Teacher", None, "teacher", "own", "teacher"),
        ("Teacher", None, "wrapped", "own", "wrapped"),
        ("Teacher", "student", None, "own", "own"),
        ("Teacher", None, "student", "own", "own"),
        ("Teacher", "student", "whole", "own", "own"),
        ("Teacher", "student", "whole", None, "whole"),
        ("Teacher", None, "single", "own", "own"),  # of one model: for the student, which is trained
        ("Teacher", None, "single", None, "single"),
        ("Teacher", None, None, "own", "own"),
        ("Student", "whole", "single", "own", "whole"),
        ("Student", None, "single", "own", "single"),
        ("Student", "teacher", None, "own", "own"),
        ("Student", None, None, None, None),
    ],
)
def test_the_file_that_is_given_goes_before_the_own_one(
    tiny, files, name, checkpoint, pretrained, own, expected
):
    paths = {**files, None: None}
    config = tiny(
        "distill",
        **{
            "Global.checkpoints": paths[checkpoint],
            "Global.pretrained_model": paths[pretrained],
            f"Architecture.Models.{name}.pretrained": paths[own],
        },
    )
    assert config.at("Architecture.Models.Teacher.freeze_params") is True
    single, _ = config_of_model(config, name, "train")
    used = single.at("Global.checkpoints", default=None) or single.at("Global.pretrained_model", default=None)
    assert used == paths[expected]


def test_weights_of_the_other_sub_model_are_not_taken_instead(tiny, files):
    config = tiny("distill", **{"Global.checkpoints": files["student"]})
    with raises_code(
        WeightsError, "missing_weights", files["student"], "Architecture.Models.Teacher.pretrained="
    ):
        config_of_model(config, "Teacher", "train")


def test_a_file_that_is_not_there_is_named(tiny, tmp_path):
    config = tiny("distill", **{"Global.checkpoints": str(tmp_path / "none")})
    with raises_code(WeightsError, "missing_file", str(tmp_path / "none")):
        config_of_model(config, "Teacher", "train")


def test_it_is_the_sub_model_that_evaluation_reads(tiny, tmp_path):
    config = tiny("distill", **{"PostProcess.model_name": ["Teacher"], "Metric.key": "Teacher"})
    paddle.seed(1)
    state = Run.build(config, "train").model.state_dict()
    paddle.save(state, str(tmp_path / "whole.pdparams"))
    own = {k.removeprefix("Teacher."): v * 2 for k, v in state.items() if k.startswith("Teacher.")}
    paddle.save(own, str(tmp_path / "own.pdparams"))
    for given in ("whole", None):
        given_config = config.with_values(
            {
                "Global.checkpoints": given and str(tmp_path / given),
                "Architecture.Models.Teacher.pretrained": str(tmp_path / "own"),
            }
        )
        judged = Run.build(given_config, "eval").network.Teacher.state_dict()
        single, name = config_of_model(given_config, "Teacher", "eval")
        exported = Run.build(single, "eval", weights_of=name or "").model.state_dict()
        assert exported.keys() == judged.keys()
        for key, value in exported.items():
            np.testing.assert_array_equal(value.numpy(), judged[key].numpy(), err_msg=key)


@pytest.mark.parametrize(("whole", "kept"), [(None, True), ("whole", False)])
def test_a_dictionary_goes_with_the_own_file_alone(tiny, files, whole, kept):
    teacher = "Architecture.Models.Teacher"
    values = {f"{teacher}.pretrained": files["own"], f"{teacher}.pretrained_dict": "old.txt"}
    config = tiny("distill", **values, **({"Global.pretrained_model": files[whole]} if whole else {}))
    alone, _ = config_of_model(config, "Teacher", "eval")
    assert alone.at("Architecture.pretrained_dict", default=None) == ("old.txt" if kept else None)
