"""`use_guide` and the backbone: what the run says and freezes is what a backward pass shows."""

import copy
import logging
from typing import Any

import paddle
import pytest
from error_codes import raises_code
from networks import image, read_case
from paddle import nn

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import DistillationModel, build_model
from ppocr_ext.optim.optimizers import trained_parts
from ppocr_ext.run.freezing import freeze_guided, freeze_parts

CASE = read_case("model_v4_v5_mobile_reduced")
OUTPUTS = ({"ctc"}, {"neck"}, {"ctc", "gtc"}, {"ctc", "backbone"})


def guided_config(guided: bool) -> dict[str, Any]:
    config = copy.deepcopy(CASE["config"])
    config["Head"]["head_list"][0]["CTCHead"]["Neck"]["use_guide"] = guided
    return {**config, "return_all_feats": True}


def outputs(network: nn.Layer) -> dict[str, paddle.Tensor]:
    """Each output that a loss may read, by its name."""
    network.train()
    labels = [CASE["arrays"][key] for key in ("label_ctc", "label_gtc", "length", "valid_ratio")]
    out = network(image(CASE, 48, 160), [paddle.to_tensor(label) for label in labels])
    head = out["head_out"]
    return {"ctc": head["ctc"], "neck": out["neck_out"], "gtc": head["gtc"], "backbone": out["backbone_out"]}


@pytest.mark.parametrize("guided", [True, False], ids=["guided", "not guided"])
def test_a_backbone_is_frozen_where_no_gradient_reaches_it(guided, caplog):
    network = build_model(guided_config(guided))
    named = outputs(network)
    first = next(iter(network.backbone.parameters()))
    for read in OUTPUTS:
        sum(named[name].square().mean() for name in read).backward(retain_graph=True)
        reached = first.grad is not None
        first.clear_gradient(set_to_zero=False)
        caplog.clear()
        freeze_guided(network, {(None, name) for name in read})
        rows = {part.name: part.trained for part in trained_parts(network)}
        assert (rows["backbone"] > 0) is reached, read
        assert rows["head.ctc_encoder"] > 0
        assert len(caplog.records) == (0 if reached else 1)
        for parameter in network.backbone.parameters():
            parameter.stop_gradient = False


def test_each_sub_model_is_frozen_by_what_is_read_of_it(caplog):
    model = DistillationModel({"Models": dict.fromkeys(("Teacher", "Student"), guided_config(True))})
    model.Teacher.freeze()
    freeze_guided(model, {("Teacher", "ctc"), ("Student", "ctc"), ("Student", "gtc")})
    assert not caplog.records
    freeze_guided(model, {("Teacher", "ctc"), ("Student", "ctc")})
    assert [record.args for record in caplog.records] == [("Student: ",)]
    rows = {part.name: part.trained for part in trained_parts(model)}
    assert rows["Student.backbone"] == 0 and rows["Student.head.gtc_head"] > 0


def test_losses_that_do_not_say_what_they_read_freeze_nothing(caplog):
    network = build_model(guided_config(True))
    freeze_guided(network, None)
    assert not caplog.records and not next(iter(network.backbone.parameters())).stop_gradient


@pytest.mark.parametrize("guided", [True, False], ids=["guided", "not guided"])
def test_a_frozen_backbone_leaves_the_heads(guided, caplog):
    caplog.set_level(logging.INFO, logger="ppocr_ext")
    network = build_model(guided_config(guided))
    freeze_parts(network, ["backbone.*"])
    freeze_guided(network, {(None, "ctc"), (None, "gtc")})
    assert [record.levelname for record in caplog.records] == ["INFO"] * (2 if guided else 1)
    trained = {part.name.split(".")[0] for part in trained_parts(network) if part.trained}
    assert trained == {"head"}


def test_a_network_without_parts_cannot_be_frozen_in_part():
    with raises_code(ConfigError, "unsupported_key"):
        freeze_parts(nn.Linear(2, 2), ["weight"])
