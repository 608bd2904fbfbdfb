from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from ppocr_ext.modeling import build_head
from ppocr_ext.modeling.heads import CTCHead


@pytest.mark.parametrize("mid_channels", [None, 6])
@pytest.mark.parametrize("return_feats", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_output_by_mode(mid_channels: int | None, return_feats: bool, training: bool) -> None:
    head = CTCHead(8, 5, mid_channels=mid_channels, return_feats=return_feats)
    head.train() if training else head.eval()
    frames = paddle.randn([2, 4, 8])
    features = frames if mid_channels is None else F.linear(frames, head.fc1.weight, head.fc1.bias)
    last = head.fc if mid_channels is None else head.fc2
    expected = F.linear(features, last.weight, last.bias)
    if not training:
        expected = F.softmax(expected, axis=-1)
    out = head(frames)
    assert isinstance(out, tuple) is return_feats
    scores = out[-1] if return_feats else out
    np.testing.assert_allclose(scores.numpy(), expected.numpy(), atol=1e-6)
    if return_feats:
        np.testing.assert_allclose(out[0].numpy(), features.numpy(), atol=1e-6)


def test_weights_start_within_their_bound_and_have_their_own_decay() -> None:
    paddle.seed(0)
    head = build_head({"name": "CTCHead", "in_channels": 64, "out_channels": 50, "fc_decay": 0.003})
    bound = 1 / math.sqrt(64)
    assert float(head.fc.weight.abs().max()) <= bound
    assert float(head.fc.bias.abs().max()) <= bound
    assert float(head.fc.weight.numpy().std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert head.fc.weight.regularizer._coeff == pytest.approx(0.003)
    assert head.fc.bias.regularizer._coeff == pytest.approx(0.003)
