"""The example that the docstring of a loss begins with."""

import numpy as np
import paddle
import pytest
from docstring_examples import check_example

from ppocr_ext import losses
from ppocr_ext.registry import LOSSES

OURS = sorted(name for name in LOSSES.names() if LOSSES.get(name).__module__.startswith("ppocr_ext."))


@pytest.fixture(scope="module")
def inputs():
    """What examples use: outputs of heads for two text lines, and batches as a run gives them."""
    draw = np.random.default_rng(3)

    def some(*shape):
        return paddle.to_tensor(draw.normal(size=shape).astype("float32"))

    def outputs():
        ctc = some(2, 8, 3), some(2, 8, 5)  # features and logits
        return {
            "backbone_out": some(2, 4, 1, 8),
            "head_out": {"ctc": ctc, "gtc": some(2, 5, 8), "sar": some(2, 6, 7)},
        }

    images, lengths = some(2, 3, 32, 64), paddle.to_tensor([2, 1])
    of_ctc = paddle.to_tensor([[1, 2, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]])
    of_gtc = paddle.to_tensor([[2, 4, 5, 3, 0, 0], [2, 6, 3, 0, 0, 0]])
    predictions = {"Student": outputs(), "Teacher": outputs()}
    heads = predictions["Student"]["head_out"]
    return (
        vars(losses)
        | heads
        | {
            "predictions": predictions,
            "heads": heads,
            "batch": [images, of_ctc, of_gtc, lengths, paddle.ones([2])],
            "ctc_batch": [images, of_ctc, lengths],
            "gtc_batch": [images, of_gtc, lengths],
        }
    )


@pytest.mark.parametrize("name", OURS)
def test_it_gives_what_it_says(name, inputs):
    check_example(LOSSES.get(name), inputs)
