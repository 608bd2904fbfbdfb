import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.modeling import build_neck
from ppocr_ext.modeling.necks import SequenceEncoder, is_narrow, narrow_necks
from ppocr_ext.registry import NECKS


def test_reshape_gives_the_columns_as_frames():
    neck = build_neck({"name": "SequenceEncoder", "encoder_type": "reshape", "in_channels": 5})
    features = paddle.randn([2, 5, 1, 7])
    assert neck.out_channels == 5
    assert neck.state_dict() == {}
    np.testing.assert_array_equal(neck(features).numpy(), features.numpy()[:, :, 0].transpose(0, 2, 1))


@pytest.mark.parametrize("use_guide", [True, False])
def test_use_guide_keeps_the_gradient_from_the_backbone(use_guide):
    neck = SequenceEncoder(16, "svtr", dims=8, depth=1, hidden_dims=16, use_guide=use_guide)
    features = paddle.randn([2, 16, 1, 7])
    features.stop_gradient = False
    frames = neck(features)
    assert frames.shape == [2, 7, 8]
    frames.sum().backward()
    assert (features.grad is None) is use_guide
    assert neck.encoder.conv1.conv.weight.grad is not None


def test_features_that_are_no_line_are_named():
    with raises_code(ModelError, "shape_mismatch", [2, 5, 3, 7], "use_pool"):
        SequenceEncoder(5, "reshape")(paddle.randn([2, 5, 3, 7]))


def test_unknown_encoders_and_misspelt_options_are_errors():
    with raises_code(ModelError, "unsupported_component", "'lstm'", "svtr", "reshape"):
        SequenceEncoder(16, "lstm")
    with raises_code(ConfigError, "unknown_key", "hiden_dims", "hidden_dims"):
        SequenceEncoder(16, "svtr", hiden_dims=16)
    with raises_code(ModelError, "bad_value", "12 features"):
        SequenceEncoder(16, "svtr", hidden_dims=12)


def test_an_encoder_that_ours_lacks_is_the_hosts(monkeypatch):
    class Theirs:
        def __init__(self, in_channels: int, encoder_type: str, hidden_size: int) -> None:
            self.options = (in_channels, encoder_type, hidden_size)

    def host(name: str) -> type | None:
        return Theirs if name == "SequenceEncoder" else None

    monkeypatch.setattr(NECKS, "_find_foreign", host)
    cascade = {"name": "SequenceEncoder", "encoder_type": "cascadernn", "in_channels": 5, "hidden_size": 7}
    assert build_neck(cascade).options == (5, "cascadernn", 7)
    reshape = {key: value for key, value in cascade.items() if key != "hidden_size"}
    assert isinstance(build_neck({**reshape, "encoder_type": "reshape"}), SequenceEncoder)
    monkeypatch.setattr(NECKS, "_find_foreign", lambda name: None)
    with raises_code(ModelError, "unsupported_component", "'cascadernn'", "--host DIR"):
        build_neck(cascade)


@pytest.mark.parametrize(
    ("channels", "classes", "narrow"),
    [(16, 11, False), (12, 11, False), (16, 63, True), (8, 63, True), (8, 11, False)]
    + [(24, 6625, True), (48, 6625, False), (60, 18385, False), (30, 37, False)],
)
def test_which_neck_is_too_narrow(channels, classes, narrow):
    assert is_narrow(channels, classes) is narrow


def test_a_narrow_neck_is_named_if_it_is_trained():
    neck = SequenceEncoder(128, "svtr", dims=8, depth=1, hidden_dims=16)
    [said] = narrow_necks(neck, 63)
    assert "16 channels" in said and "lightsvtr" in said
    assert not narrow_necks(neck, 11) and not narrow_necks(SequenceEncoder(128, "lightsvtr"), 63)
    for parameter in neck.parameters():
        parameter.stop_gradient = True
    assert not narrow_necks(neck, 63)
