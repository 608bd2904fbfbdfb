"""The clip of all gradients together against Paddle's own, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest

from ppocr_ext.optim.gradient_clip import ClipGlobalNorm

RANDOM = np.random.default_rng(0)
ARRAYS = [RANDOM.standard_normal(shape).astype("float32") for shape in ([40, 7], [1], [3, 5, 2])]
NORM = math.sqrt(sum(float((array.astype("float64") ** 2).sum()) for array in ARRAYS))


def clipped(clip, arrays, dtype="float32", free=()):
    """The gradients that an optimizer gets from ``clip``; parameters of the numbers ``free`` are not clipped."""
    pairs = []
    for number, array in enumerate(arrays):
        parameter = paddle.create_parameter(list(array.shape), "float32")
        parameter.need_clip = number not in free
        pairs.append((parameter, paddle.to_tensor(array).astype(dtype)))
    return [gradient.astype("float32").numpy() for _, gradient in clip(pairs)]


@pytest.mark.parametrize("limit", [0.3 * NORM, 0.99 * NORM, 1.01 * NORM, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("free", [(), (0,)])
def test_gradients_are_those_of_paddle(limit, dtype, free):
    expected = clipped(paddle.nn.ClipGradByGlobalNorm(limit), ARRAYS, dtype, free)
    for mine, paddles in zip(clipped(ClipGlobalNorm(limit), ARRAYS, dtype, free), expected, strict=True):
        np.testing.assert_array_equal(mine, paddles)


def test_the_joint_norm_is_the_limit():
    squares = [(each.astype("float64") ** 2).sum() for each in clipped(ClipGlobalNorm(0.5), ARRAYS)]
    assert math.sqrt(sum(squares)) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_reaches_all_gradients_as_in_paddle(bad):
    arrays = [array.copy() for array in ARRAYS]
    arrays[0][3, 2] = bad
    expected = clipped(paddle.nn.ClipGradByGlobalNorm(1.0), arrays)
    for mine, paddles in zip(clipped(ClipGlobalNorm(1.0), arrays), expected, strict=True):
        np.testing.assert_array_equal(mine, paddles)
