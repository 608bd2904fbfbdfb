import copy

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from small_networks import distillation, recogniser

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.modeling.heads import CTCHead


def with_features(config: dict, mid_channels: int | None) -> dict:
    config = copy.deepcopy(config)
    config["Head"]["head_list"][0]["CTCHead"]["Head"] |= {"return_feats": True, "mid_channels": mid_channels}
    return config


@pytest.mark.parametrize("mid_channels", [None, 6])
@pytest.mark.parametrize("training", [True, False])
def test_the_tap_gives_what_return_feats_gives(mid_channels, training):
    model = build_model(with_features(recogniser(), mid_channels))
    model.train() if training else model.eval()
    images, targets = (
        paddle.randn([2, 3, 16, 32]),
        [paddle.ones([2, 6], "int64"), paddle.ones([2, 6], "int64"), paddle.full([2], 4, "int64")],
    )
    paddle.seed(1)
    with FeatureTap(model) as tap, paddle.no_grad():
        out = model(images, targets)
    head = out["head_out"]["ctc"] if training else out["head_out"]
    features, scores = head
    np.testing.assert_allclose(tap.features.numpy(), features.numpy(), atol=1e-6)
    expected = scores if training else paddle.nn.functional.softmax(tap.logits, axis=-1)
    np.testing.assert_allclose((tap.logits if training else scores).numpy(), expected.numpy(), atol=1e-6)


def test_the_head_s_output_is_untouched_and_the_hook_is_removed():
    head = CTCHead(8, 5)
    head.eval()
    frames = paddle.randn([2, 4, 8])
    before = head(frames).numpy()
    with FeatureTap(head) as tap:
        inside = head(frames).numpy()
    assert (before == inside).all()
    seen = tap.features
    head(frames + 1.0)
    assert tap.features is seen


class Foreign(paddle.nn.Layer):
    """As a PaddleOCR checkout has it: one linear layer, and probabilities alone in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = paddle.nn.Linear(8, 5)

    def forward(self, x: paddle.Tensor, targets: object = None) -> paddle.Tensor:
        return paddle.nn.functional.softmax(self.fc(x), axis=2)


def test_a_foreign_head_is_tapped():
    head = type("CTCHead", (Foreign,), {})()
    frames = paddle.randn([2, 4, 8])
    with FeatureTap(paddle.nn.Sequential(head)) as tap:
        head(frames)
    np.testing.assert_array_equal(tap.features.numpy(), frames.numpy())
    np.testing.assert_allclose(tap.logits.numpy(), head.fc(frames).numpy())


def test_a_network_without_one_ctc_head_is_refused():
    with raises_code(ModelError, "no_ctc_head", "Linear"):
        FeatureTap(paddle.nn.Linear(2, 2))
    with raises_code(ModelError, "several_ctc_heads", 2, "Teacher"):
        FeatureTap(build_model(distillation()))
