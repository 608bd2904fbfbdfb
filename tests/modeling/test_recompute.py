"""Activations that are computed again: outputs, gradients, random numbers and statistics are the same bit for bit."""

import copy

import numpy as np
import paddle
import pytest
from small_networks import images

from ppocr_ext.modeling.models import build_backbone
from ppocr_ext.modeling.recompute import Recomputable, recompute_blocks

BACKBONES = [
    {"name": "RepSVTR"},
    {"name": "SVTRv2"},
    {"name": "SVTRNet", "img_size": [32, 64], "local_mixer": [[7, 5], [7, 5], [7, 5]]},
    {"name": "PPLCNetV3", "scale": 0.35},
    {"name": "PPLCNetV4"},
    {"name": "MobileNetV1Enhance", "scale": 0.25},
    {"name": "MobileNetV3", "scale": 0.35},
    {"name": "PPHGNet_small"},
    {"name": "PPHGNetV2_B4", "text_rec": True},
    {"name": "MTB", "cnn_num": 2},
    {"name": "ResNet", "layers": 18},
    {"name": "ResNet31", "channels": [16] * 7},
    {
        "name": "ViTParseQ",
        "img_size": [32, 64],
        "patch_size": [4, 8],
        "embed_dim": 32,
        "depth": 2,
        "num_heads": 2,
    },
]


def after_a_step(network, forward):
    """Gradients, the whole state and the next random number after two batches, whose gradients add up."""
    network.train()
    paddle.seed(3)
    for _ in range(2):
        sum((each**2).sum() for each in forward(network)).backward()
    found = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {**found, **{f"state {k}": v for k, v in network.state_dict().items()}, "random": paddle.rand([4])}


def assert_same(network, forward):
    again = copy.deepcopy(network)
    assert recompute_blocks(again)
    ours, plain = after_a_step(again, forward), after_a_step(network, forward)
    assert ours.keys() == plain.keys()
    for name, value in plain.items():
        np.testing.assert_array_equal(ours[name].numpy(), value.numpy(), err_msg=name)


@pytest.mark.parametrize("options", BACKBONES, ids=lambda options: options["name"])
def test_a_backbone_is_the_same(options):
    paddle.seed(0)
    network = build_backbone({**options, "in_channels": 3})
    assert_same(network, lambda network: [network(images())])


class Counted(Recomputable):
    """A block that counts its calls."""

    def __init__(self, stop_gradient=False):
        super().__init__()
        self.linear, self.calls = paddle.nn.Linear(2, 2), 0
        for parameter in self.linear.parameters():
            parameter.stop_gradient = stop_gradient

    def forward(self, x):
        self.calls += 1
        return self.linear(x) ** 2


def test_a_block_is_called_twice_in_training_alone():
    block, inner = Counted(), Counted()
    block.inner = inner
    assert recompute_blocks(paddle.nn.Sequential(block)) == [block]
    assert not inner.recomputes  # the outermost is
    block(paddle.ones([1, 2])).sum().backward()
    assert block.calls == 2
    with paddle.no_grad():
        block(paddle.ones([1, 2]))
    block.eval()
    block(paddle.ones([1, 2])).sum().backward()
    assert block.calls == 4


def test_a_frozen_block_lets_the_gradient_pass():
    first, frozen = Counted(), Counted(stop_gradient=True)
    recompute_blocks(paddle.nn.Sequential(first, frozen))
    frozen(first(paddle.ones([1, 2]))).sum().backward()
    assert first.linear.weight.grad is not None and (first.calls, frozen.calls) == (2, 1)
