from __future__ import annotations

import numpy as np
import paddle
import pytest
from parity import array, load_case, load_weights

from ppocr_ext.modeling import build_backbone
from ppocr_ext.modeling.backbones import RepSVTR


@pytest.fixture(scope="module")
def loaded() -> RepSVTR:
    network = build_backbone({"name": "RepSVTR", "in_channels": 3}, "rec")
    load_weights(network, 2024)
    network.eval()
    return network


def test_names_and_numbers_are_paddleocrs(loaded: RepSVTR) -> None:
    case = load_case("backbone_repsvtr")
    assert {k: list(v.shape) for k, v in loaded.state_dict().items()} == case.info["state_dict"]
    assert loaded.out_channels == case.info["out_channels"]
    for key, reference in case.arrays.items():
        height, width = map(int, key.removeprefix("out_").split("x"))
        out = loaded(paddle.to_tensor(array("image", [2, 3, height, width], case.info["seed"])))
        # The features of these weights go up to 870, where float32 itself cannot hold 1e-4.
        np.testing.assert_allclose(out.numpy(), reference, atol=1e-5 * np.abs(reference).max())


def test_the_fused_form_is_equal_and_the_original_stays(loaded: RepSVTR) -> None:
    before = {name: value.numpy().copy() for name, value in loaded.state_dict().items()}
    fused = loaded.reparameterize()
    image = paddle.to_tensor(array("image", [2, 3, 48, 96], 5))
    out = loaded(image)
    scale = float(out.abs().max())
    np.testing.assert_allclose(fused(image).numpy() / scale, out.numpy() / scale, atol=1e-5)
    assert not any("bn" in name or "_variance" in name for name in fused.state_dict())
    assert not fused.training
    after = loaded.state_dict()
    assert list(after) == list(before)
    assert all((after[name].numpy() == value).all() for name, value in before.items())
