"""Freezing by patterns and rates by part: what is trained, what moves, and what a wrong pattern says."""

import hashlib

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from networks import image, read_case
from paddle import nn

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import DistillationModel, build_model
from ppocr_ext.optim import build_optimizer
from ppocr_ext.optim.optimizers import parts_table, set_rates, trained_parts
from ppocr_ext.run.freezing import freeze_parts, layers_held_in_eval

CASE = read_case("model_v4_v5_mobile_reduced")


@pytest.fixture
def network():
    paddle.seed(1)
    return build_model(CASE["config"])


def digest(network: nn.Layer, prefix: str) -> str:
    state = network.state_dict()
    parts = [value.numpy().tobytes() for name, value in state.items() if name.startswith(prefix)]
    assert parts
    return hashlib.sha256(b"".join(parts)).hexdigest()


def labels() -> list[paddle.Tensor]:
    return [
        paddle.to_tensor(CASE["arrays"][key]) for key in ("label_ctc", "label_gtc", "length", "valid_ratio")
    ]


def train_a_step(network: nn.Layer, **options: object) -> None:
    config = {"name": "Adam", "lr": {"name": "Const", "learning_rate": 0.01}, **options}
    optimizer, _ = build_optimizer(config, 1, 10, network)
    network.train()
    out = network(image(CASE, 48, 160), labels())
    (out["ctc"].square().mean() + out["gtc"].square().mean()).backward()
    optimizer.step()
    optimizer.clear_grad()


def test_a_frozen_backbone_does_not_move_and_the_head_does(network):
    names = freeze_parts(network, ["backbone.*"])
    assert names and all(name.startswith("backbone.") for name in names)
    backbone, head = digest(network, "backbone."), digest(network, "head.")
    train_a_step(network)
    assert digest(network, "backbone.") == backbone  # running statistics of BatchNorm too
    assert digest(network, "head.") != head


def test_only_single_layers_are_held(network):
    freeze_parts(network, ["backbone.*"])
    network.train()
    assert network.training and network.backbone.training and network.head.training
    assert layers_held_in_eval(network) != []
    held = [layer for layer in network.sublayers() if not layer.training]
    assert {type(layer).__name__ for layer in held} == {"BatchNorm2D"}
    frames = network(image(CASE, 32, 480), labels())["ctc"].shape[1]
    assert frames == 40  # of train mode, whatever the width


def test_a_layer_without_parameters_follows_the_one_that_holds_it(network):
    freeze_parts(network, ["head.ctc_encoder.*"])
    held = layers_held_in_eval(network)
    names = {name for name, layer in network.named_sublayers() if any(layer is each for each in held)}
    assert any(name.endswith("drop_path") for name in names) and any(name.endswith("mixer") for name in names)
    assert all(name.startswith("head.ctc_encoder.") for name in names)


def test_the_networks_own_rates_are_multiplied(network):
    set_rates(network, {"backbone.*": 0.5})
    rates = {name: each.optimize_attr["learning_rate"] for name, each in network.named_parameters()}
    assert rates["backbone.blocks2.0.dw_conv.lab.scale"] == pytest.approx(0.05)
    assert rates["backbone.conv1.conv.weight"] == 0.5
    assert rates["head.ctc_head.fc.weight"] == 1.0


@pytest.mark.parametrize(
    "backbone",
    [
        {"name": "SVTRNet", "img_size": [32, 64], "drop_rate": 0.5, "last_drop": 0.5, "drop_path_rate": 0.5},
        {"name": "SVTRv2", "last_stage": True, "out_channels": 16, "last_drop": 0.5, "drop_path_rate": 0.5},
    ],
    ids=lambda options: options["name"],
)
def test_no_dropout_is_left_in_a_frozen_backbone(backbone):
    """In train mode it then computes what it computes in eval mode, twice the same."""
    small = {"depth": [1, 1, 1], "embed_dim": [32, 32, 32], "num_heads": [1, 1, 1], "mixer": ["Global"] * 3}
    if backbone["name"] == "SVTRv2":
        small = {"depths": [1, 2, 1], "dims": [32, 32, 32], "num_heads": [1, 1, 1]}
        small |= {"mixer": [["Conv"], ["Conv", "Global"], ["Global"]], "sub_k": [[2, 1], [2, 1], [-1, -1]]}
    head = {"name": "CTCHead", "out_channels": 5}
    neck = {"name": "SequenceEncoder", "encoder_type": "reshape"}
    network = build_model({"Backbone": {**small, **backbone}, "Neck": neck, "Head": head})
    images = paddle.rand([2, 3, 32, 64])
    network.train()
    assert not np.array_equal(network.backbone(images).numpy(), network.backbone(images).numpy())
    freeze_parts(network, ["backbone.*"])
    network.train()
    trained = network.backbone(images).numpy()
    network.eval()
    assert np.array_equal(trained, network.backbone(images).numpy())


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("backbon.*", "'backbone.*'"),
        ("neck.*", "backbone, head"),
        ("backbone", "'backbone.*'"),
        ("head.ctc_encodr.*", "'head.ctc_encoder.*'"),
        ("Student.backbone.*", "'backbone.*'"),
    ],
)
def test_a_pattern_that_matches_nothing(network, pattern, hint):
    with raises_code(ConfigError, "no_match", hint):
        freeze_parts(network, [pattern])
    with raises_code(ConfigError, "no_match", hint):
        set_rates(network, {pattern: 0.1})


def test_a_distillation_needs_the_sub_model():
    def model(teacher: dict) -> DistillationModel:
        return DistillationModel({"Models": {"Teacher": teacher, "Student": CASE["config"]}})

    both = model(CASE["config"])
    with raises_code(ConfigError, "no_match", "Teacher.backbone.* or Student.backbone.*"):
        freeze_parts(both, ["backbone.*"])
    with raises_code(ConfigError, "no_match", "'Student.backbone.*'"):
        freeze_parts(both, ["Studnet.backbone.*"])
    assert all(name.startswith("Student.") for name in freeze_parts(both, ["Student.backbone.*"]))
    with pytest.raises(ConfigError) as error:  # the hint names only sub-models that are trained
        freeze_parts(model({**CASE["config"], "freeze_params": True}), ["backbone.*"])
    assert "Student.backbone.*" in str(error.value) and "Teacher" not in str(error.value)


def test_the_table_of_parts(network):
    freeze_parts(network, ["backbone.*"])
    set_rates(network, {"head.ctc_head.*": 0.1})
    rows = {part.name: part for part in trained_parts(network)}
    assert set(rows) >= {"backbone", "head.ctc_encoder", "head.ctc_head", "head.gtc_head"}
    assert rows["backbone"].trained == 0 and rows["backbone"].rates == ()
    assert rows["head.ctc_head"].rates == (0.1,)
    names = [name for name, _ in network.named_parameters() if not name.endswith(("._mean", "._variance"))]
    sizes = [int(network.state_dict()[name].size) for name in names]
    assert sum(part.parameters for part in rows.values()) == sum(sizes)
    assert len(parts_table(list(rows.values())).splitlines()) == len(rows) + 1
