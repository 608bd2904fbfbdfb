"""Weights of another version of a network are refused with the config keys to change."""

from itertools import permutations
from typing import Any

import paddle
import pytest
from error_codes import raises_code
from networks import read_case

from ppocr_ext.checkpoint.weight_match import config_differences
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.errors import WeightsError
from ppocr_ext.modeling import build_model

OFFICIAL = ("PP-OCRv3_mobile", "PP-OCRv4_mobile", "PP-OCRv6_tiny", "PP-OCRv6_small", "PP-OCRv6_medium")
# keys that leave no trace in the shapes, and the neck's own `use_guide`
SILENT = ("fc_decay", "max_text_length", "Neck.use_guide")
DEFAULTS = {  # of the networks, for keys that a config leaves out
    "CTCHead.Head.mid_channels": None,
    "CTCHead.Head.use_guide": False,
    "CTCHead.Neck.kernel_size": [3, 3],
}


def shapes(case: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in read_case(f"names_{case}")["state_dict"].items()}


def keys(config: Any, path: str = "") -> dict[str, Any]:
    """The values of a MultiHead by path; those of a neck by the neck's name."""
    if isinstance(config, list) and config and isinstance(config[0], dict):
        config = {name: options for each in config for name, options in each.items()}
    if not isinstance(config, dict):
        return {path: config}
    return {key: each for name in config for key, each in keys(config[name], f"{path}.{name}").items()}


def values(case: str) -> dict[str, Any]:
    head = read_case(f"names_{case}")["config"]["Head"]["head_list"]
    found = {key.removeprefix("."): value for key, value in keys(head).items()}
    neck = found["CTCHead.Neck.name"]
    of_neck = {} if neck != "svtr" else {"CTCHead.Neck.kernel_size": DEFAULTS["CTCHead.Neck.kernel_size"]}
    of_head = {key: value for key, value in DEFAULTS.items() if ".Head." in key}
    return {**of_head, **of_neck, **{k: v for k, v in found.items() if not k.endswith(SILENT)}}


@pytest.mark.parametrize("pair", permutations(OFFICIAL, 2), ids=" ".join)
def test_the_keys_are_those_in_which_two_official_configs_differ(pair):
    said = [line.partition(": ") for line in config_differences(*map(shapes, pair))]
    told = {key.removeprefix("Head.head_list."): text for key, _, text in said}
    assert told.pop("Backbone")
    file, model = map(values, pair)
    differing = {key for key in file.keys() & model.keys() if file[key] != model[key]}
    if "CTCHead.Neck.name" in differing:  # each neck has keys of its own
        differing = {key for key in differing if ".Neck." not in key or key.endswith("name")}
    assert told.keys() == differing
    assert all(str(file[key]).lower() in told[key].replace("null", "none") for key in differing)


def tiny(mid_channels: int | None, use_guide: bool, nrtr_dim: int) -> paddle.nn.Layer:
    """PP-OCRv6 tiny, with a short NRTR branch."""
    config = read_case("names_PP-OCRv6_tiny")["config"]
    config["Head"]["head_list"] = [
        {
            "CTCHead": {
                "Neck": {"name": "reshape"},
                "Head": {"mid_channels": mid_channels, "use_guide": use_guide},
            }
        },
        {"NRTRHead": {"nrtr_dim": nrtr_dim, "num_decoder_layers": 1}},
    ]
    config["Head"]["out_channels_list"] = {"CTCLabelDecode": 11, "NRTRLabelDecode": 14}
    return build_model(config)


def test_an_error_names_the_keys_of_another_version(tmp_path):
    paddle.save(tiny(80, True, 64).state_dict(), str(tmp_path / "w.pdparams"))
    head = "Head.head_list.CTCHead.Head"
    with raises_code(
        WeightsError,
        "weights_mismatch",
        f"{head}.mid_channels: 80 in the file, null in the model",
        f"{head}.use_guide: true in the file, false in the model",
        "Head.head_list.NRTRHead.nrtr_dim: 64 in the file, 32 in the model",
    ):
        load_weights(tiny(None, False, 32), tmp_path / "w")


def test_the_keys_of_a_sub_model_begin_with_its_name():
    file, model = (
        {f"Student.{name}": shape for name, shape in shapes(case).items()}
        for case in ("PP-OCRv6_small", "PP-OCRv6_medium")
    )
    assert (
        "Models.Student.Head.head_list.NRTRHead.nrtr_dim: 384 in the file, 512 in the model"
        in config_differences(file, model)
    )


def test_shapes_of_any_rank_are_compared():
    model = shapes("PP-OCRv6_small")
    assert config_differences(dict.fromkeys(model, ()), model)
    assert config_differences({}, model) == config_differences(model, model) == []
