"""The arithmetic limit: multiply-adds of networks that are small enough to count by hand."""

import paddle
import pytest
from benchmarks.limits import multiply_adds
from paddle import nn

from ppocr_ext.modeling.layers import Conv2D, Linear, attend


class Attention(nn.Layer):
    def forward(self, tokens):
        return attend(tokens, tokens, tokens)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        # outputs x inputs that each output is a sum of; a bias is no product
        (nn.Conv2D(3, 8, (3, 5), stride=2, padding=(1, 2)), [2, 3, 8, 12], (2 * 8 * 4 * 6) * (3 * 3 * 5)),
        (Conv2D(6, 6, 3, padding=1, groups=6), [1, 6, 4, 5], (6 * 4 * 5) * 9),
        (Linear(7, 11), [2, 3, 7], (2 * 3 * 11) * 7),
        # a transposed convolution multiplies each input with each weight of its channel
        (nn.Conv2DTranspose(3, 5, 2, stride=2), [2, 3, 4, 4], (2 * 3 * 4 * 4) * (5 * 2 * 2)),
        # two heads of size 3 over 5 places: scores, and the sums of the values
        (Attention(), [4, 2, 3, 5], 2 * (4 * 2 * 3 * 5 * 5)),
    ],
)
def test_multiply_adds_of_one_layer(layer, shape, expected):
    assert multiply_adds([layer], lambda: layer(paddle.ones(shape))) == expected


def test_layers_count_each_time_that_they_are_called_and_not_afterwards():
    layer = nn.Linear(2, 3)
    network = nn.Sequential(layer, nn.ReLU())
    other = nn.Linear(2, 3)

    def twice():
        network(network(paddle.ones([1, 2]))[:, :2])
        other(paddle.ones([1, 2]))

    assert multiply_adds([network], twice) == 2 * 6
    assert multiply_adds([network, other], twice) == 3 * 6
