"""The benchmark of operators: each other form equals Paddle's, its table by hand, and a run of the tiny student."""

from functools import partial

import numpy as np
import paddle
import pytest
from benchmark import main
from benchmarks import fresh, kernels
from benchmarks.kernel_forms import forms
from paddle import nn

from ppocr_ext.modeling.backbones.repsvtr import FusableConvNorm
from ppocr_ext.modeling.layers import Mlp

LAYERS = [
    (partial(nn.Conv2D, 3, 3, 3, 1, 1, groups=3, bias_attr=False), (2, 3, 5, 7)),
    (partial(nn.Conv2D, 3, 3, 5, 1, 1, groups=3, bias_attr=False), (2, 3, 6, 7)),
    (partial(nn.Conv2D, 3, 3, (1, 4), 1, 0, groups=3, bias_attr=False), (2, 3, 5, 7)),
    (partial(nn.Conv2D, 3, 3, 3, (2, 1), 1, groups=3, bias_attr=False), (2, 3, 5, 7)),
    (partial(nn.Conv2D, 3, 3, 3, (1, 2), 2, groups=3, bias_attr=False), (1, 3, 4, 8)),
    (partial(nn.Conv2D, 3, 3, 5, 2, 2, groups=3, bias_attr=False), (2, 3, 7, 6)),
    (lambda: nn.Sequential(FusableConvNorm(3, 4), nn.GELU(), FusableConvNorm(4, 2)), (2, 3, 5, 7)),
    (partial(Mlp, 6, 8, nn.functional.gelu), (2, 5, 6)),
]


def _outputs(network: nn.Layer, images: np.ndarray) -> list[np.ndarray]:
    source = paddle.to_tensor(images, stop_gradient=False)
    result = network(source)
    above = np.random.default_rng(1).standard_normal(result.shape).astype("float32")
    (result * paddle.to_tensor(above)).sum().backward()
    learned = [each for each in network.parameters() if not each.stop_gradient]
    found = [result, source.grad, *(each.grad for each in learned), *network.state_dict().values()]
    network.clear_gradients()
    return [each.numpy() for each in found]


@pytest.mark.parametrize("name", forms())
@pytest.mark.parametrize(("build", "shape"), LAYERS)
def test_outputs_and_gradients_are_paddles(monkeypatch, name, build, shape):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    network = nn.Sequential(build())  # a layer inside a network, as everywhere
    rng = np.random.default_rng(0)
    for weights in network.parameters():
        weights.set_value(rng.standard_normal(weights.shape).astype("float32"))
    state = {key: value.clone() for key, value in network.state_dict().items()}
    images = 2.0 * rng.standard_normal(shape).astype("float32")
    expected = _outputs(network, images)
    network.set_state_dict(state)
    with kernels.replaced(network, forms()[name]):
        found = _outputs(network, images)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * max(1.0, abs(other).max()))


def test_every_form_takes_the_place_of_some_layer_and_gives_it_back():
    for name, form in forms().items():
        network = nn.Sequential(*(build() for build, _ in LAYERS), Mlp(2, 2, nn.functional.gelu, 0.5))
        before = [dict(vars(layer)) for layer in network.sublayers()]
        with kernels.replaced(network, form):
            assert [dict(vars(layer)) for layer in network.sublayers()] != before, name
        assert [dict(vars(layer)) for layer in network.sublayers()] == before, name


@pytest.mark.parametrize(("difference", "code"), [(2e-6, 0), (2e-2, 1), (float("nan"), 1)])
def test_ratios_are_of_steps_in_the_same_round(in_this_process, monkeypatch, capsys, difference, code):
    in_this_process(fresh)
    costs = kernels.KernelCosts("tiny", {"products": 30.0, "GELU": 10.0}, 20.0, difference=difference)
    costs.wall = {kernels.PADDLE: [4.0, 2.0, 4.0], "other": [2.0, 1.5, 2.4]}
    costs.cpu = {kernels.PADDLE: [4.0, 2.0, 4.0], "other": [1.0, 1.5, 2.0]}
    monkeypatch.setattr(kernels, "measure_kernels", lambda **_: costs)
    assert main(["kernels", "--rounds", "3"]) == code
    shown = capsys.readouterr().out
    assert "| GELU | 10 | 25.0% |" in shown
    assert "| other | 1.500 | 0.600 (0.500–0.750) | 0.500 |" in shown


def test_the_tiny_student_is_measured_with_each_form(in_this_process, monkeypatch, capsys):
    in_this_process(fresh)
    monkeypatch.setattr(kernels, "WARM_UP", 0)
    monkeypatch.setattr(kernels, "product_speed", lambda: 1e11)
    assert main(["kernels", "--size", "tiny", "--batch", "2", "--rounds", "1"]) == 0
    shown = capsys.readouterr().out
    assert all(f"| {name} |" in shown for name in [kernels.PADDLE, *forms()])
    shares = [float(row.split("|")[3].strip(" %")) for row in shown.splitlines() if row.count("%") == 1]
    assert len(shares) == 9 and sum(shares) == pytest.approx(100.0, abs=0.5)
