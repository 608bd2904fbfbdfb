"""PaddleOCR's own numbers: each loss's value by its key, and its gradient for the student."""

import numpy as np
import paddle
import pytest
from parity import array, load_case

from ppocr_ext.losses import build_loss

CASE = load_case("losses")
SINGLE = load_case("losses_single")
SEED = CASE.info["seed"]
VALUE = 1e-5  # relative
GRADIENT = 1e-4  # relative to the largest entry


def logits(who: str, head: str) -> paddle.Tensor:
    shape = [4, 40, 37] if head == "ctc" else [4, 8, 41]
    drawn = paddle.to_tensor(array(f"{who}_{head}", shape, SEED, 2.0))
    drawn.stop_gradient = who == "teacher"
    return drawn


def predictions() -> dict[str, dict[str, dict[str, paddle.Tensor]]]:
    return {
        name: {"head_out": {head: logits(name.lower(), head) for head in ("ctc", "gtc")}}
        for name in ("Student", "Teacher")
    }


def batch() -> list[paddle.Tensor]:
    labels = [paddle.to_tensor(CASE.arrays[key]) for key in ("label_ctc", "label_gtc", "length")]
    return [paddle.zeros([4, 3, 32, 320]), *labels, paddle.ones([4])]


@pytest.mark.parametrize("name", sorted(CASE.info["losses"]))
def test_value_keys_and_gradient(name):
    expected = CASE.info["losses"][name]
    loss_name = name.partition("+")[0]
    loss = build_loss({"name": "CombinedLoss", "loss_config_list": [{loss_name: expected["config"]}]})
    predicts = predictions()
    values = loss(predicts, batch())
    values["loss"].backward()

    assert set(values) == set(expected["keys"])
    for key, value in expected["keys"].items():
        assert values[key].shape == []
        assert float(values[key]) == pytest.approx(value, rel=VALUE), key
    for head in ("ctc", "gtc"):
        reference = CASE.arrays[f"{name}/{head}"]
        gradient = predicts["Student"]["head_out"][head].grad
        if reference.shape == (1,):  # the loss does not read this head
            assert gradient is None
            continue
        np.testing.assert_allclose(
            gradient.numpy(), reference, rtol=0, atol=GRADIENT * np.abs(reference).max()
        )


def test_multi_loss():
    loss = build_loss({"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"NRTRLoss": None}]})
    values = loss(predictions()["Student"]["head_out"], batch())
    expected = SINGLE.info["multi_loss"]
    assert set(values) == set(expected)
    for key, value in expected.items():
        assert float(values[key]) == pytest.approx(value, rel=VALUE), key
