import copy
import math
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from error_codes import raises_code
from paddle import nn
from small_networks import CLASSES, labels, recogniser

from ppocr_ext import registry
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling import EVAL, TRAIN, HeadRequest, build_head
from ppocr_ext.modeling.heads import CTCHead, MultiHead


def multi_head(**changes: Any) -> MultiHead:
    return build_head({**recogniser()["Head"], "in_channels": 32, **changes})


class HostSARHead(nn.Layer):
    """Stands in for PaddleOCR's: tells train from eval mode by its own flag alone."""

    def __init__(self, in_channels: int, out_channels: int, enc_dim: int = 8, **kwargs: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(in_channels, out_channels)

    def forward(self, x: paddle.Tensor, targets: Any = None) -> paddle.Tensor:
        out = self.fc(x.squeeze(2).transpose([0, 2, 1]))
        if not self.training:
            return out
        assert targets is not None
        return out[:, : targets[0].shape[1]]


@pytest.fixture
def host_with_sar(monkeypatch):
    monkeypatch.delitem(registry.HEADS._own, "SARHead")
    monkeypatch.setattr(registry.HEADS, "_find_foreign", {"SARHead": HostSARHead}.get)
    monkeypatch.setattr(registry.HEADS, "_foreign_names", lambda: ["SARHead"])
    return


@pytest.mark.parametrize("training", [True, False])
def test_a_request_decides_whatever_the_mode(training):
    head = multi_head()
    head.train() if training else head.eval()
    features = paddle.randn([2, 32, 1, 8])
    assert set(head(features, labels(), TRAIN)) == {"ctc", "ctc_neck", "gtc"}
    assert set(head(features, labels(), HeadRequest(frozenset({"gtc", "sar"})))) == {"gtc"}
    assert head(features, None, EVAL).shape == [2, 8, CLASSES]
    ids, probabilities = head(features, None, HeadRequest(frozenset({"gtc"}), decode=True, as_dict=False))
    assert ids[:, 0].tolist() == [2, 2]
    assert ids.shape == probabilities.shape
    both = head(features, None, HeadRequest(frozenset({"ctc", "gtc"}), probabilities=True, decode=True))
    assert set(both) == {"ctc", "ctc_neck", "gtc"}


def test_a_bare_output_of_nothing_is_an_error():
    with raises_code(ModelError, "unknown_branch", ["sar"], ["ctc", "gtc"]):
        multi_head()(paddle.randn([2, 32, 1, 8]), None, HeadRequest(frozenset({"sar"}), as_dict=False))


def test_use_pos_adds_positions_that_learn():
    head = multi_head(use_pos=True)
    assert head.state_dict()["before_gtc.2.dec_pos_embed"].shape == [1, 80, 32]
    head(paddle.randn([2, 32, 1, 8]), labels())["gtc"].sum().backward()
    assert head.before_gtc[2].dec_pos_embed.grad is not None
    with raises_code(ModelError, "too_many_frames", 81, 80):
        head(paddle.randn([2, 32, 1, 81]), labels())


def test_use_pool_takes_the_mean_of_three_rows_and_two_columns():
    head = multi_head(
        use_pool=True, head_list=[{"CTCHead": {"Neck": {"name": "reshape"}}}, {"NRTRHead": {"nrtr_dim": 32}}]
    )
    tokens = paddle.randn([2, 3 * 8, 32])
    frames = head(tokens, labels())["ctc_neck"].numpy()
    expected = tokens.numpy().reshape(2, 3, 4, 2, 32).mean((1, 3))
    assert frames == pytest.approx(expected, abs=1e-5)


def test_a_sar_head_of_the_host_is_asked_through_its_mode(host_with_sar):
    config = recogniser()["Head"]
    config["head_list"][1] = {"SARHead": {"enc_dim": 8, "max_text_length": 12}}
    config["out_channels_list"]["SARLabelDecode"] = CLASSES + 2
    head = build_head({**config, "in_channels": 32})
    features, data = paddle.randn([2, 32, 1, 20]), labels()
    assert head(features, data)["sar"].shape == [2, 12, CLASSES + 2]
    head.eval()
    assert set(head(features, data, TRAIN)) == {"ctc", "ctc_neck", "sar"}
    assert head(features, data, TRAIN)["sar"].shape == [2, 12, CLASSES + 2]
    assert not head.sar_head.training
    assert head(features).shape == [2, 20, CLASSES]


def test_sar_is_a_branch_beside_the_others():
    heads = [*recogniser()["Head"]["head_list"], {"SARHead": {"enc_dim": 8, "d_k": 8, "max_text_length": 3}}]
    classes = {"CTCLabelDecode": CLASSES, "NRTRLabelDecode": CLASSES + 3, "SARLabelDecode": CLASSES + 2}
    head = multi_head(head_list=heads, out_channels_list=classes)
    assert head.branches == {"ctc", "gtc", "sar"}
    head.eval()
    read = head(
        paddle.randn([2, 32, 1, 8]), request=HeadRequest(frozenset({"sar"}), decode=True, as_dict=False)
    )
    assert read.shape == [2, 3, CLASSES + 1]
    assert read.numpy().sum(-1) == pytest.approx(1.0, abs=1e-5)


def test_sar_finds_the_valid_ratio_before_an_entry_that_only_the_loss_reads():
    heads = [
        recogniser()["Head"]["head_list"][0],
        {"SARHead": {"enc_dim": 8, "d_k": 8, "max_text_length": 12}},
    ]
    classes = {"CTCLabelDecode": CLASSES, "SARLabelDecode": CLASSES + 2}
    head = multi_head(head_list=heads, out_channels_list=classes)
    head.eval()
    features, data = paddle.randn([2, 32, 1, 20]), labels()
    assert len(data) == 4  # the last is valid_ratio
    data[1] = data[1].clip(max=CLASSES - 1)  # these are labels of NRTR, which has one class more
    data[-1] = paddle.to_tensor([0.4, 0.6])
    outputs = [head(features, given, TRAIN)["sar"].numpy() for given in (data, [*data, paddle.zeros([2])])]
    np.testing.assert_array_equal(*outputs)


def test_what_a_config_lacks_or_misspells_is_named():
    heads = recogniser()["Head"]["head_list"]
    with raises_code(ModelError, "missing_branch", "CTCHead"):
        multi_head(head_list=heads[1:])
    with raises_code(ModelError, "missing_key", "NRTRLabelDecode"):
        multi_head(out_channels_list={"CTCLabelDecode": 5})
    with raises_code(ModelError, "unsupported_component", "MultiHead"):
        multi_head(head_list=[*heads, {"MultiHead": {}}])
    with raises_code(ConfigError, "unknown_key", "'num_decoder_layer'", "num_decoder_layers"):
        multi_head(head_list=[heads[0], {"NRTRHead": {"num_decoder_layer": 2}}])
    wrong = copy.deepcopy(heads)
    wrong[0]["CTCHead"]["Head"]["fc_decya"] = 1
    with raises_code(ConfigError, "unknown_key", "fc_decya", "fc_decay"):
        multi_head(head_list=wrong)


@pytest.mark.parametrize("mid_channels", [None, 6])
@pytest.mark.parametrize("return_feats", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_output_by_mode(mid_channels, return_feats, training):
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


def test_weights_start_within_their_bound_and_have_their_own_decay():
    paddle.seed(0)
    head = build_head({"name": "CTCHead", "in_channels": 64, "out_channels": 50, "fc_decay": 0.003})
    bound = 1 / math.sqrt(64)
    assert float(head.fc.weight.abs().max()) <= bound
    assert float(head.fc.bias.abs().max()) <= bound
    assert float(head.fc.weight.numpy().std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert head.fc.weight.regularizer._coeff == pytest.approx(0.003)
    assert head.fc.bias.regularizer._coeff == pytest.approx(0.003)
