"""TPS and STN_ON: places solve the spline; numbers are PaddleOCR's but for the rounding of two products."""

import math
from pathlib import Path

import networks
import numpy as np
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near, image, load_weights, read_case, train_without_noise

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import build_model, build_transform, transforms
from ppocr_ext.modeling.transforms import GridGenerator, ThinPlateSpline

OPTIONS = {"name": "TPS", "num_fiducial": 6, "loc_lr": 0.1, "model_name": "small", "in_channels": 3}
STN = {
    "name": "STN_ON",
    "tps_inputsize": [32, 64],
    "tps_outputsize": [16, 50],
    "num_control_points": 6,
    "tps_margins": [0.1, 0.05],
    "stn_activation": "none",
    "in_channels": 3,
}
INFO = Path("/proc/cpuinfo")
FIXED = [(-1.0, -1.0), (0.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]


def bend(distance: float, shift: float = 0.0) -> float:
    return distance**2 * math.log(distance + shift) if distance else 0.0


def solved(fixed: list, points: np.ndarray, pixels: list, shift: float = 0.0) -> np.ndarray:
    """The place of each pixel, by the equations of the spline: the naive way, in float64."""
    rows = [[1.0, *one, *(bend(math.dist(one, other)) for other in fixed)] for one in fixed]
    rows += [[0.0] * 3 + [one[axis] for one in fixed] for axis in (0, 1)] + [[0.0] * 3 + [1.0] * len(fixed)]
    factors = np.linalg.solve(np.array(rows), np.vstack([points, np.zeros([3, 2])]))
    terms = [[1.0, *pixel, *(bend(math.dist(pixel, other), shift) for other in fixed)] for pixel in pixels]
    return np.array(terms) @ factors


@pytest.mark.parametrize(("height", "width"), [(8, 40), (9, 33)])
def test_places_solve_the_spline(height, width):
    points = np.array(FIXED) * [0.8, 0.5] + 0.2 * np.random.default_rng(1).standard_normal([6, 2])
    generator = build_transform(OPTIONS).grid_generator
    found = generator(paddle.to_tensor(points.reshape(1, -1).astype(np.float32)), height, width)
    pixels = [
        ((2 * column + 1 - width) / width, (2 * row + 1 - height) / height)
        for row in range(height)
        for column in range(width)
    ]
    expected = solved(FIXED, points, pixels, shift=1e-6)
    np.testing.assert_allclose(found[0].numpy().reshape([-1, 2]), expected, atol=2e-6)


@pytest.mark.parametrize(
    "margins", [(0.1, 0.05), (0.0, 0.0)], ids=str
)  # without margins, points lie on pixels
def test_an_image_is_read_where_the_spline_says(margins):
    """The image is a ramp, whose brightness is the place."""
    network = build_transform({**STN, "tps_margins": list(margins)})
    network.eval()
    (left, right), (upper, lower) = ((margin, 1 - margin) for margin in margins)
    fixed = [(x, y) for y in (upper, lower) for x in (left, 0.5, right)]
    points = np.array(fixed) * [0.7, 0.5] + 0.1 + 0.05 * np.random.default_rng(1).standard_normal([6, 2])
    network.stn_head.stn_fc2.bias.set_value(points.reshape(-1).astype(np.float32))
    y, x = np.meshgrid(np.linspace(0, 1, 40), np.linspace(0, 1, 90), indexing="ij")
    found = network(paddle.to_tensor(np.stack([x, y, y])[None].astype(np.float32)))
    pixels = [(column / 49, row / 15) for row in range(16) for column in range(50)]
    expected = solved(fixed, points, pixels).clip(0, 1)
    np.testing.assert_allclose(found[0, :2].flatten(1).numpy().T, expected, atol=1e-5)


def test_points_that_a_sigmoid_bounds_begin_at_the_same_places():
    images = paddle.randn([2, 3, 32, 64])
    first, bounded = (build_transform({**STN, "stn_activation": each}) for each in ("none", "sigmoid"))
    found = first.stn_head(images).numpy()
    np.testing.assert_allclose(bounded.stn_head(images).numpy(), found, atol=1e-6)
    assert (found[0, 0] == np.float32(0.01)).all() and (found[1, 5] == np.float32(0.99)).all()


def as_paddleocr_multiplies(generator: GridGenerator, points: paddle.Tensor, height: int, width: int):
    """The places by PaddleOCR's two products in float32."""
    rows, columns = ((2.0 * paddle.arange(n, dtype="float64") + 1.0 - n) / n for n in (height, width))
    terms = generator.spline.terms(rows, columns).astype("float32")
    inverse = generator.spline.inverse
    moved = paddle.concat([points, generator.fc(points.detach())], axis=1).reshape([0, -1, 2])
    factors = paddle.matmul(paddle.to_tensor(inverse.astype(np.float32)), moved)
    return paddle.matmul(terms, factors).reshape([-1, height, width, 2])


def with_paddleocrs_inverse(monkeypatch) -> None:
    """Let STN_ON compute places as PaddleOCR: an inverse in float32, of a matrix with the terms in another order."""
    spline = ThinPlateSpline(transforms.border_points(20, (0.05, 0.95), (0.05, 0.95)))
    order = [*range(3, 23), 0, 1, 2]
    system = np.linalg.inv(spline.inverse)[:, order].astype(np.float32)
    inverse = paddle.inverse(paddle.to_tensor(system))[:, :20]
    given = (paddle.linspace(0.0, 1.0, edge, dtype="float64") for edge in (32, 100))
    terms = spline.terms(*given).astype("float32").numpy()[:, order]
    monkeypatch.setattr(
        transforms,
        "places_of",
        lambda weights, points: paddle.matmul(paddle.to_tensor(terms), paddle.matmul(inverse, points)),
    )


@pytest.mark.parametrize(("name", "height"), [("model_starnet_tps", 32), ("model_svtr_stn", 64)])
def test_paddleocrs_numbers_differ_by_the_rounding_of_its_products(name, height, monkeypatch):
    """So the tolerance of these cases in test_networks.py is for its products alone.

    The products round as the processor does. On one of Intel, as that of the references, they give the references.
    """
    case = read_case(name)
    network = build_model(case["config"])
    load_weights(network, case)
    train_without_noise(network)
    ours = network(image(case, height, 320)).numpy()
    if height == 32:
        monkeypatch.setattr(GridGenerator, "forward", as_paddleocr_multiplies)
    else:
        with_paddleocrs_inverse(monkeypatch)
    theirs = network(image(case, height, 320))
    rounding = np.abs(theirs.numpy() - ours).max()
    assert 1e-4 < rounding < 2e-3
    assert np.abs(ours - case["arrays"]["train_ctc_320"]).max() < 2 * rounding
    if "GenuineIntel" in (INFO.read_text(errors="replace") if INFO.is_file() else ""):
        assert_equal_to(case, network, theirs)


def assert_equal_to(case, network, found) -> None:
    assert_near(found, case["arrays"]["train_ctc_320"], 2e-4)
    cotangent = networks.array("cotangent_ctc", found.shape, case["seed"])
    (found * paddle.to_tensor(cotangent)).sum().backward()
    norms = {name: each.grad.norm() for name, each in network.named_parameters() if each.grad is not None}
    for name, expected in case["gradient_norms"].items():
        assert float(norms.get(name, 0.0)) == pytest.approx(expected["ctc"], rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize(("options", "points"), [(OPTIONS, "loc_net.fc2"), (STN, "stn_head.stn_fc2")])
def test_a_gradient_reaches_the_points_although_images_have_none(options, points):
    """There Paddle's own kernel ends the process."""
    network, images = build_transform(options), paddle.randn([2, 3, 16, 40])
    (network(images) ** 2).sum().backward()
    assert float(dict(network.named_parameters())[f"{points}.bias"].grad.abs().sum()) > 0
    assert images.stop_gradient and images.grad is None
    if options is OPTIONS:
        assert [p.stop_gradient for p in network.grid_generator.parameters()] == [True, True]


def test_two_of_them_share_no_name_of_a_parameter():
    """PaddleOCR's have fixed names, so that a second one cannot be built."""
    names = [p.name for _ in range(2) for p in build_transform(OPTIONS).parameters()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (OPTIONS, {"num_fiducial": 5}),
        (OPTIONS, {"num_fiducial": 2}),
        (OPTIONS, {"model_name": "middle"}),
        (STN, {"num_control_points": 5}),
        (STN, {"tps_inputsize": [32, 100]}),
        (STN, {"tps_outputsize": [1, 100]}),
        (STN, {"tps_margins": [0.05, 0.5]}),
        (STN, {"stn_activation": "tanh"}),
    ],
)
def test_values_that_cannot_be_are_refused(options, change):
    with raises_code(ConfigError, "bad_value"):
        build_transform({**options, **change})
