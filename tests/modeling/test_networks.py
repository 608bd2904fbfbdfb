"""Networks of PP-OCRv2 to v6: names, numbers, gradients and deploy forms are PaddleOCR's."""

from contextlib import nullcontext, suppress
from functools import cache, lru_cache
from typing import Any

import networks
import numpy as np
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near, cases, image, load_weights, read_case, train_without_noise
from paddle import nn

from ppocr_ext.config.config_view import Config, from_plain
from ppocr_ext.config.derive import has_one_width
from ppocr_ext.errors import ModelError, PPOCRExtError
from ppocr_ext.modeling import build_backbone, build_model, build_transform
from ppocr_ext.modeling.backbones.conv_parts import reparameterized
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.registry import BACKBONES, TRANSFORMS

OUTPUTS = [(name, key) for name in cases("backbone") for key in read_case(name)["arrays"]]
DEPLOYED = [name for name in cases("backbone") if "reparameterised_layers" in read_case(name)]
QUICK = (
    "model_nrtr_reduced",
    "model_starnet_tps",
    "model_svtr_stn",
    "model_v2_mobile",
    "model_v4_svtr_reduced",
    "model_v4_v5_mobile_reduced",
    "model_v6_tiny",
)


def full_size(*case: Any) -> Any:
    """A case of a network of official size is run with the end-to-end tests: it takes seconds."""
    return pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.e2e)


MODEL_OUTPUTS = [
    full_size(name, key)
    for name in cases("model")
    for key in read_case(name)["arrays"]
    if key.startswith(("eval_", "train_"))
]
WITH_GRADIENTS = [full_size(name) for name in cases("model") if "gradient_norms" in read_case(name)]
GREEDY = [full_size(name) for name in cases("model") if "greedy_sequence" in read_case(name)["arrays"]]


@cache  # the largest takes a second to build
def backbone_of(name: str) -> tuple[dict[str, Any], nn.Layer]:
    case = read_case(name)
    network = build_backbone(case["config"], "rec")
    load_weights(network, case)
    return case, network


@cache
def model_of(name: str) -> tuple[dict[str, Any], nn.Layer]:
    case = read_case(name)
    network = build_model(case["config"])
    load_weights(network, case)
    return case, network


def shapes(network: nn.Layer) -> dict[str, list[int]]:
    return {name: list(value.shape) for name, value in network.state_dict().items()}


@pytest.mark.parametrize("name", cases("backbone"))
def test_names_of_a_backbone(name):
    case, network = backbone_of(name)
    assert shapes(network) == case["state_dict"]
    assert network.out_channels == case["out_channels"]


@pytest.mark.parametrize(("name", "key"), OUTPUTS)
def test_numbers_of_a_backbone(name, key):
    case, network = backbone_of(name)
    mode, _, size = key.partition("_")
    height, width = map(int, size.split("x"))
    network.eval() if mode == "eval" else train_without_noise(network)
    with paddle.no_grad():
        found = network(image(case, height, width)).numpy()
    step = case["channel_step"]
    assert_near(
        found if found.ndim == 3 and found.shape == case["arrays"][key].shape else found[:, ::step],
        case["arrays"][key],
    )


@pytest.mark.parametrize("name", DEPLOYED)
def test_the_deploy_form_is_equal(name):
    case, network = backbone_of(name)
    network.eval()
    before = {key: value.numpy().copy() for key, value in network.state_dict().items()}
    deployed = reparameterized(network)
    with paddle.no_grad():
        expected, found = network(image(case, 48, 96)).numpy(), deployed(image(case, 48, 96)).numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-5)
    assert not any("bn" in key or "_variance" in key for key in deployed.state_dict())
    assert all((network.state_dict()[key].numpy() == value).all() for key, value in before.items())
    for layer in [network, *network.sublayers()]:  # as PaddleOCR's export folds a network
        if hasattr(layer, "rep") and not layer.is_repped:
            layer.rep()
    assert network.is_repped and list(network.state_dict()) == list(deployed.state_dict())
    with paddle.no_grad():
        assert (network(image(case, 48, 96)).numpy() == found).all()


@pytest.mark.parametrize("name", map(full_size, cases("model")))
def test_names_of_a_model(name):
    case, network = model_of(name)
    assert shapes(network) == case["state_dict"]


def labels_of(case: dict[str, Any]) -> list[paddle.Tensor]:
    arrays = case["arrays"]
    second = "label_gtc" if "label_gtc" in arrays else "label_sar"
    if case["config"]["Head"]["name"] == "Transformer":
        return [paddle.to_tensor(arrays[key]) for key in (second, "length")]
    return [paddle.to_tensor(arrays[key]) for key in ("label_ctc", second, "length", "valid_ratio")]


def run_in_train_mode(case: dict[str, Any], network: nn.Layer, width: int) -> dict[str, paddle.Tensor]:
    train_without_noise(network)
    out = network(image(case, height_of(case), width), labels_of(case))
    return out if isinstance(out, dict) else {case["second_head"] or "ctc": out}


@lru_cache(maxsize=2)  # a pass gives the numbers of several cases
def outputs_in_train_mode(name: str, width: int) -> dict[str, np.ndarray]:
    with paddle.no_grad():
        return {
            key: value.numpy()
            for key, value in run_in_train_mode(*model_of(name), width).items()
            if isinstance(value, paddle.Tensor)
        }


def height_of(case: dict[str, Any]) -> int:
    return int(case["input"].split("3, ")[1].split(",")[0])


@pytest.mark.parametrize(("name", "key"), MODEL_OUTPUTS)
def test_numbers_of_a_model(name, key):
    case, network = model_of(name)
    kind, width = key.rsplit("_", 1)
    if kind == "eval_probabilities":
        network.eval()
        with paddle.no_grad():
            found = network(image(case, height_of(case), int(width))).numpy()
    else:
        outputs = outputs_in_train_mode(name, int(width))
        part = kind.removeprefix("train_")
        found = outputs["ctc_neck"][..., ::4] if part == "neck" else outputs[part]
    assert_near(found, case["arrays"][key], case.get("tolerance", 1e-4))


@pytest.mark.parametrize("name", GREEDY)
def test_the_second_branch_reads_as_paddleocr_does(name):
    case, network = model_of(name)
    network.eval()
    request = HeadRequest(frozenset({"gtc"}), decode=True, as_dict=False)
    with paddle.no_grad():
        sequence, probability = network(image(case, height_of(case), 320), request=request)
    expected = case["arrays"]["greedy_sequence"]
    length = expected.shape[1]
    np.testing.assert_array_equal(sequence.numpy()[:, :length], expected)
    np.testing.assert_allclose(
        probability.numpy()[:, :length], case["arrays"]["greedy_probability"], atol=1e-4
    )


@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients_of_a_model(name):
    """Norms of the gradient of sum(output * cotangent), for each branch."""
    case, network = model_of(name)
    parameters = dict(network.named_parameters())
    wrong = []
    outputs = run_in_train_mode(case, network, 320)
    for branch in case["gradient_reaches_backbone"]:
        network.clear_gradients()
        output = outputs[branch]
        cotangent = networks.array(f"cotangent_{branch}", output.shape, case["seed"])
        (output * paddle.to_tensor(cotangent)).sum().backward(retain_graph=True)
        for key, norms in case["gradient_norms"].items():
            gradient = parameters[key].grad
            found = 0.0 if gradient is None else float(gradient.norm())
            if abs(found - norms[branch]) > case.get("gradient_tolerance", 1e-3) * max(norms[branch], 1e-3):
                wrong.append((branch, key, found, norms[branch]))
    network.clear_gradients()
    assert wrong == []


@pytest.mark.e2e
@pytest.mark.parametrize("name", cases("names"))
def test_names_rates_and_decays_of_the_official_size(name):
    case = read_case(name)
    config = case["config"]
    if "out_channels_list" not in config["Head"]:
        config = {**config, "Head": {**config["Head"], "out_channels": case["ctc_classes"]}}
    # without initial values, which take most of the time; Paddle's LSTM cannot be built so
    with nullcontext() if name.endswith(("v2_mobile", "v3_mobile", "_r34")) else paddle.LazyGuard():
        network = build_model(config)
    assert shapes(network) == case["state_dict"]
    rates: dict[str, set[str]] = {}
    decays: dict[str, set[str]] = {}
    for key, parameter in network.named_parameters():
        rate = parameter.optimize_attr.get("learning_rate", 1.0)
        if rate != 1.0:
            rates.setdefault(str(rate), set()).add(key)
        if parameter.regularizer is not None:
            decays.setdefault(str(parameter.regularizer._coeff), set()).add(key)
    assert rates == {rate: set(keys) for rate, keys in case["learning_rate_multipliers"].items()}
    assert decays == {decay: set(keys) for decay, keys in case["own_l2_decay"].items()}


@pytest.mark.parametrize(
    "options",
    [
        {"name": "PPLCNetV3", "scale": 0.5},
        {"name": "PPLCNetV4", "model_size": "tiny"},
        {"name": "PPHGNet_small"},
    ],
    ids=lambda options: options["name"],
)
def test_training_frames_that_follow_the_width_are_those_of_eval_mode(options):
    network = build_backbone({**options, "train_frames": "width", "in_channels": 3}, "rec")
    network.eval()
    with paddle.no_grad():
        for width in (80, 160):
            images = paddle.randn([1, 3, 48, width])
            evaluated = network(images).numpy()
            np.testing.assert_allclose(network(images, for_training=True).numpy(), evaluated, atol=1e-6)
        for height in (32, 64):
            assert network(paddle.randn([1, 3, height, 80]), for_training=True).shape[3] == 80 // 8


@pytest.mark.parametrize(
    "options",
    [
        {"name": "PPLCNetV4", "model_size": "tiny"},
        {"name": "ResNet", "layers": 18},
        {"name": "ViTParseQ", "depth": 1, "embed_dim": 12},
    ],
    ids=lambda options: options["name"],
)
def test_a_size_that_the_network_cannot_take_is_refused(options):
    network = build_backbone({**options, "in_channels": 3}, "rec")
    network.eval()
    with raises_code(PPOCRExtError, "image_size"):
        network(paddle.randn([1, 3, 16 if options["name"] == "ResNet" else 32, 320]))


@pytest.mark.parametrize(
    "config",
    [
        {"name": "PPLCNetV3", "train_frames": 0},
        {"name": "PPLCNetV3", "train_frames": "height"},
        {"name": "PPLCNetV3", "lr_mult_list": [1.0]},
        {"name": "PPLCNetV4", "model_size": "large"},
        {"name": "PPHGNetV2_B4"},
        {"name": "MobileNetV3", "model_name": "middle"},
        {"name": "MobileNetV3", "scale": 0.4},
        {"name": "MobileNetV1Enhance", "last_pool_type": "sum"},
        {"name": "SVTRNet", "mixer": ["Local"]},
        {"name": "SVTRNet", "patch_merging": "Sum"},
        {"name": "MTB", "cnn_num": 1},
        {"name": "ResNet", "layers": 35},
        {"name": "ResNet31", "layers": [1, 2]},
        {"name": "ViTParseQ", "img_size": [32, 100], "patch_size": [8, 8]},
        {"name": "ViTParseQ", "embed_dim": 100},
        {"name": "ViTParseQ", "num_heads": 0},
        {"name": "ViTParseQ", "patch_size": 16},
        {"name": "ViTParseQ", "conv_stem": True},
    ],
)
def test_values_that_cannot_be_are_refused(config):
    with raises_code(PPOCRExtError, "bad_value"):
        build_backbone({**config, "in_channels": 3}, "rec")


SMALL = {
    "MTB": {"cnn_num": 2},
    "PPHGNetV2_B4": {"text_rec": True},
    "PPLCNetV4": {"model_size": "tiny"},
    "ResNet": {"layers": 18},
    "SVTRNet": {"img_size": [48, 64]},
    "ViTParseQ": {"img_size": [48, 64], "depth": 1, "embed_dim": 12},
    "TPS": {"num_fiducial": 6, "loc_lr": 0.1, "model_name": "small"},
    "STN_ON": {
        "tps_inputsize": [32, 64],
        "tps_outputsize": [48, 64],
        "num_control_points": 6,
        "tps_margins": [0.1, 0.05],
        "stn_activation": "none",
    },
}
POSITIONED = {"use_pos_embed": True, "max_sz": [48, 64]}


@pytest.mark.parametrize(
    ("build", "name", "more"),
    [
        *((build_backbone, name, {}) for name in BACKBONES._own),
        *((build_transform, name, {}) for name in TRANSFORMS._own),
        (build_backbone, "SVTRv2", POSITIONED),
    ],
)
def test_what_is_known_of_its_widths_without_building_it_is_true(build, name, more):
    options = {"name": name, **SMALL.get(name, {}), **more}
    layer = build({**options, "in_channels": 3})
    layer.eval()
    with paddle.no_grad():
        shapes = {tuple(layer(paddle.randn([1, 3, 48, 64])).shape)}
        with suppress(ModelError):
            shapes.add(tuple(layer(paddle.randn([1, 3, 48, 256])).shape))
    architecture = {"Backbone" if build is build_backbone else "Transform": options}
    for models in (architecture, {"Models": {"Student": architecture}}):
        assert has_one_width(Config(from_plain({"Architecture": models}))) == (len(shapes) == 1)


@pytest.mark.parametrize("patch", [(8, 8), (8, 4), (2, 4)])
def test_a_stem_of_convolutions_makes_as_many_tokens_as_patches(patch):
    options = {
        "name": "ViTParseQ",
        "img_size": [32, 96],
        "patch_size": list(patch),
        "embed_dim": 12,
        "depth": 1,
    }
    images = paddle.randn([2, 3, 32, 96])
    shapes = []
    for conv_stem in (False, True):
        network = build_backbone({**options, "conv_stem": conv_stem, "in_channels": 3}, "rec")
        network.eval()
        shapes.append(network(images).shape)
    assert shapes[0] == shapes[1] == [2, 32 // patch[0] * (96 // patch[1]), 12]
