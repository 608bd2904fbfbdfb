import copy
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near
from parity import array, load_case, load_weights
from small_networks import images

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling import build_backbone
from ppocr_ext.modeling.backbones import SVTRv2

OPTIONS: dict[str, Any] = {
    "dims": [16, 32],
    "depths": [1, 2],
    "num_heads": [2, 2],
    "mixer": [["Conv"], ["Conv", "Global"]],
    "sub_k": [[2, 1], [-1, -1]],
}


def svtrv2(**changes: Any) -> SVTRv2:
    return SVTRv2(**{**copy.deepcopy(OPTIONS), **changes})


@pytest.mark.parametrize(
    "name",
    [
        "backbone_svtrv2_tiny",
        "backbone_svtrv2_conv_only_first",
        "backbone_svtrv2_posembed_laststage",
        "backbone_repsvtr",
    ],
)
def test_names_and_numbers_are_paddleocrs(name):
    case = load_case(name)
    before = copy.deepcopy(case.info["config"])
    network = build_backbone(case.info["config"], "rec")
    assert case.info["config"] == before
    assert {k: list(v.shape) for k, v in network.state_dict().items()} == case.info["state_dict"]
    assert network.out_channels == case.info["out_channels"]
    load_weights(network, case.info["seed"])
    network.eval()
    for key, reference in case.arrays.items():
        height, width = map(int, key.removeprefix("out_").split("x"))
        image = paddle.to_tensor(array("image", [2, 3, height, width], case.info["seed"]))
        with_gradients = network(image)
        with paddle.no_grad():
            without = network(image)
        assert_near(with_gradients, reference)  # features of RepSVTR go up to 870 with these weights
        assert_near(without, reference)


@pytest.mark.parametrize(
    ("changes", "code", "found"),
    [
        ({"mixer": [["Global"], ["Conv", "Global"]]}, "bad_order", "mixer[1][0]"),
        ({"mixer": [["Conv"], ["Global", "Conv"]]}, "bad_order", "mixer[1][0]"),
        ({"mixer": [["Conv"], ["Global", "Global"]]}, "bad_order", "mixer[1][0]"),
        ({"depths": [1, 3], "mixer": [["Conv"], ["Conv", "Global", "Conv"]]}, "bad_order", "mixer[1][2]"),
        ({"mixer": [["Conv"], ["Conv", "Local"]]}, "bad_value", "mixer[1][1]: found 'Local'"),
        ({"dims": [16, 32, 64]}, "length_mismatch", "3, 2 and 2"),
        ({"sub_k": [[2, 1]]}, "length_mismatch", "2, 2 and 1"),
        ({"num_heads": [2]}, "length_mismatch", "2, 1 and 2"),
        ({"depths": [1, 3]}, "length_mismatch", "depths [1, 3]"),
        ({"depths": [0, 2], "mixer": [[], ["Conv", "Global"]]}, "length_mismatch", "depths [0, 2]"),
        ({"num_heads": [2, 3]}, "bad_value", "num_heads"),
        ({"mixer": [["Conv"], ["Conv", "Conv"]], "use_pool": True}, "conflicting_keys", "use_pool"),
        ({"mixer": [["Conv"], ["Conv", "Conv"]], "last_stage": True}, "conflicting_keys", "last_stage"),
        ({"mixer": [["Conv"], ["Conv", "Conv"]], "feat2d": True}, "conflicting_keys", "feat2d"),
        ({"use_pool": True, "feat2d": True}, "conflicting_keys", "feat2d: false"),
        ({"kernel_size": [7, 7]}, "bad_value", "kernel_size"),
    ],
)
def test_a_network_that_cannot_run_is_refused(changes, code, found):
    with raises_code(ModelError, code, found):
        svtrv2(**changes)


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, [2, 4 * 16, 32]),
        ({"use_pool": True}, [2, 32, 1, 8]),
        ({"feat2d": True}, [2, 32, 4, 16]),
        ({"last_stage": True, "out_channels": 24}, [2, 16, 24]),
        ({"last_stage": True, "out_channels": 24, "use_pool": True}, [2, 24, 1, 8]),
        ({"mixer": [["Conv"], ["Conv", "Conv"]]}, [2, 32, 4, 16]),
        ({"mixer": [["Global"], ["Global", "Global"]], "use_pool": True}, [2, 32, 1, 8]),
        ({"kernel_size": [3, 7], "padding": [1, 3]}, [2, 64, 32]),
    ],
)
def test_shapes_of_the_ends(changes, shape):
    network = svtrv2(**changes)
    assert network(images()).shape == shape
    assert network.out_channels in shape


def test_an_image_larger_than_the_positions_is_named():
    network = svtrv2(use_pos_embed=True, max_sz=[32, 64])
    assert network(images(width=32)).shape == [2, 32, 32]
    with raises_code(ModelError, "image_too_large", "8x32", "8x16"):
        network(images(width=128))


@pytest.mark.parametrize("rate", ["drop_rate", "attn_drop_rate", "drop_path_rate"])
def test_rates_act_in_train_mode_only(rate):
    network = svtrv2(**{"drop_path_rate": 0.0, rate: 0.5})
    for layer in network.sublayers():
        if "BatchNorm" in type(layer).__name__:
            layer.eval()
    picture = images()
    assert float((network(picture) - network(picture)).abs().max()) > 1e-4
    network.eval()
    assert float((network(picture) - network(picture)).abs().max()) == 0.0


def test_initial_weights_follow_the_seed_and_the_declared_spread():
    states = []
    for _ in range(2):
        paddle.seed(7)
        states.append(svtrv2().state_dict())
    assert all((states[0][name] == states[1][name]).all() for name in states[0])
    linear = states[0]["stages.1.blocks.0.mlp.fc1.weight"].numpy()
    # Paddle 2.6 cuts the normal distribution at two deviations, which leaves 0.88 of the spread.
    assert linear.std() == pytest.approx(0.02, rel=0.15)
    assert not states[0]["stages.1.blocks.0.mlp.fc1.bias"].numpy().any()
    mixer = states[0]["stages.0.blocks.0.mixer.weight"].numpy()
    assert mixer.std() == pytest.approx(np.sqrt(2 / (8 * 5 * 5)), rel=0.1)
