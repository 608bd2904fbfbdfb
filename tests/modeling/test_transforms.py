"""TPS: its places solve the spline, and its numbers are PaddleOCR's but for the rounding of two products."""

import math

import networks
import numpy as np
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near, image, load_weights, read_case, train_without_noise

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import build_model, build_transform
from ppocr_ext.modeling.transforms import GridGenerator

OPTIONS = {"name": "TPS", "num_fiducial": 6, "loc_lr": 0.1, "model_name": "small", "in_channels": 3}
FIXED = [(-1.0, -1.0), (0.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]


def bend(distance: float, shift: float = 0.0) -> float:
    return distance**2 * math.log(distance + shift) if distance else 0.0


def spline(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """The place of each pixel, by the equations of the spline: the naive way, in float64."""
    rows = [[1.0, *one, *(bend(math.dist(one, other)) for other in FIXED)] for one in FIXED]
    rows += [[0.0] * 3 + [one[axis] for one in FIXED] for axis in (0, 1)] + [[0.0] * 3 + [1.0] * 6]
    factors = np.linalg.solve(np.array(rows), np.vstack([points, np.zeros([3, 2])]))
    places = np.empty([height, width, 2])
    for row in range(height):
        for column in range(width):
            pixel = ((2 * column + 1 - width) / width, (2 * row + 1 - height) / height)
            terms = [1.0, *pixel, *(bend(math.dist(pixel, other), 1e-6) for other in FIXED)]
            places[row, column] = terms @ factors
    return places


@pytest.mark.parametrize(("height", "width"), [(8, 40), (9, 33)])
def test_places_solve_the_spline(height, width):
    points = np.array(FIXED) * [0.8, 0.5] + 0.2 * np.random.default_rng(1).standard_normal([6, 2])
    generator = build_transform(OPTIONS).grid_generator
    found = generator(paddle.to_tensor(points.reshape(1, -1).astype(np.float32)), height, width)
    np.testing.assert_allclose(found[0].numpy(), spline(points, height, width), atol=2e-6)


def as_paddleocr_multiplies(generator: GridGenerator, points: paddle.Tensor, height: int, width: int):
    """The places by PaddleOCR's two products in float32."""
    inverse = generator._inverse
    generator._inverse = np.eye(len(inverse))
    terms = generator._shares(height, width)
    generator._inverse = inverse
    moved = paddle.concat([points, generator.fc(points.detach())], axis=1).reshape([0, -1, 2])
    factors = paddle.matmul(paddle.to_tensor(inverse.astype(np.float32)), moved)
    return paddle.matmul(terms, factors).reshape([-1, height, width, 2])


def test_with_paddleocrs_products_numbers_and_gradients_are_the_same(monkeypatch):
    """So the tolerance of this case in test_networks.py is for these products alone."""
    case = read_case("model_starnet_tps")
    network = build_model(case["config"])
    load_weights(network, case)
    train_without_noise(network)
    points = network.transform.loc_net(image(case, 32, 320))
    places = network.transform.grid_generator(points, 32, 320).numpy()
    monkeypatch.setattr(GridGenerator, "forward", as_paddleocr_multiplies)
    theirs = network.transform.grid_generator(points, 32, 320).numpy()
    assert 1e-6 < np.abs(places - theirs).max() < 5e-5
    found = network(image(case, 32, 320))
    assert_near(found, case["arrays"]["train_ctc_320"])
    cotangent = networks.array("cotangent_ctc", found.shape, case["seed"])
    (found * paddle.to_tensor(cotangent)).sum().backward()
    norms = {name: each.grad.norm() for name, each in network.named_parameters() if each.grad is not None}
    for name, expected in case["gradient_norms"].items():
        assert float(norms.get(name, 0.0)) == pytest.approx(expected["ctc"], rel=1e-3, abs=1e-6), name


def test_a_gradient_reaches_the_points_although_images_have_none():
    """There Paddle's own kernel ends the process."""
    network, images = build_transform(OPTIONS), paddle.randn([2, 3, 16, 40])
    (network(images) ** 2).sum().backward()
    assert float(network.loc_net.fc2.bias.grad.abs().sum()) > 0
    assert images.stop_gradient and images.grad is None
    assert [p.stop_gradient for p in network.grid_generator.parameters()] == [True, True]


def test_two_of_them_share_no_name_of_a_parameter():
    """PaddleOCR's have fixed names, so that a second one cannot be built."""
    names = [p.name for _ in range(2) for p in build_transform(OPTIONS).parameters()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("change", [{"num_fiducial": 5}, {"num_fiducial": 2}, {"model_name": "middle"}])
def test_values_that_cannot_be_are_refused(change):
    with raises_code(ConfigError, "bad_value"):
        build_transform({**OPTIONS, **change})
