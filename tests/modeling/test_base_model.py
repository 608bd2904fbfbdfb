import foreign_parts
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from error_codes import raises_code
from parity import array, load_case, load_weights
from small_networks import CLASSES, images, labels, recogniser

from ppocr_ext.errors import ConfigError, ModelError, UnknownComponentError
from ppocr_ext.modeling import TRAIN, BaseModel, HeadRequest, build_model

GREEDY = HeadRequest(frozenset({"gtc"}), probabilities=True, decode=True, as_dict=False)
END = 3


@pytest.mark.parametrize("name", ["model_svtrv2_tiny", "model_repsvtr"])
def test_names_and_numbers_are_paddleocrs(name):
    case = load_case(name)
    seed, reference = case.info["seed"], case.arrays
    model = build_model(case.info["config"])
    assert {k: list(v.shape) for k, v in model.state_dict().items()} == case.info["state_dict"]
    load_weights(model, seed)
    model.eval()
    image = paddle.to_tensor(array("image", [3, 3, 48, 320], seed))
    data = [paddle.to_tensor(reference[key]) for key in ("label_ctc", "label_gtc", "length")]

    def close(out: paddle.Tensor, key: str) -> None:
        expected = reference[key]
        np.testing.assert_allclose(out.numpy(), expected, atol=max(1e-4, 1e-5 * np.abs(expected).max()))

    close(model(image)["head_out"], "out_ctc_probs")
    trained = model(image, data, TRAIN)
    close(trained["head_out"]["gtc"], "out_gtc_logits")
    close(trained["neck_out"], "out_ctc_neck")
    # The reference's CTC head was in eval mode too: what is stored as logits are probabilities.
    close(F.softmax(trained["head_out"]["ctc"], axis=-1), "out_ctc_logits")

    ids, probabilities = model(image, None, GREEDY)["head_out"]
    for row, expected in enumerate(reference["greedy_sequence"].tolist()):
        length = expected.index(END) + 1 if END in expected else len(expected)
        assert ids[row, :length].tolist() == expected[:length]
        np.testing.assert_allclose(
            probabilities[row, :length].numpy(), reference["greedy_probability"][row, :length], atol=1e-4
        )


@pytest.mark.parametrize("all_feats", [True, False])
def test_what_a_model_returns_in_each_mode(all_feats):
    model = build_model(recogniser(return_all_feats=all_feats))
    trained = model(images(), labels())
    if all_feats:
        assert set(trained) == {"backbone_out", "neck_out", "head_out"}
        assert trained["neck_out"] is trained["head_out"]["ctc_neck"]
        trained = trained["head_out"]
    assert set(trained) == {"ctc", "ctc_neck", "gtc"}
    model.eval()
    out = model(images())
    probabilities = out["head_out"] if all_feats else out
    assert probabilities.shape == [2, 8, CLASSES]
    assert probabilities.sum(-1).numpy() == pytest.approx(1.0, abs=1e-5)


def test_a_run_may_replace_what_is_asked_in_each_mode():
    model = build_model(recogniser())
    model = model.using(HeadRequest(frozenset({"gtc"})), GREEDY)
    assert set(model(images(), labels())["head_out"]) == {"gtc"}
    model.eval()
    ids, _ = model(images())["head_out"]
    assert ids.dtype == paddle.int64


def test_errors_name_the_culprit_and_both_sets():
    with raises_code(UnknownComponentError, "unknown_component", "'SVTRv3'", "'SVTRv2'", "RepSVTR"):
        build_model(recogniser(Backbone={"name": "SVTRv3"}))
    with raises_code(ConfigError, "unknown_key", "'Backbones'", "'Backbone'"):
        build_model(recogniser(Backbones={"name": "SVTRv2"}))
    with raises_code(ConfigError, "unknown_key", "use_pools"):
        build_model(recogniser(Backbone={**recogniser()["Backbone"], "use_pools": True}))
    with raises_code(ModelError, "missing_key", "backbone"):
        build_model(recogniser(Backbone={"dims": [1]}))
    with raises_code(ModelError, "missing_attribute", "ForeignWithoutChannels", "out_channels"):
        build_model(recogniser(Backbone={"name": "ForeignWithoutChannels"}))
    with raises_code(UnknownComponentError, "unknown_component", "'NoModel'"):
        build_model({**recogniser(), "name": "NoModel"})


def test_a_foreign_backbone_learns_under_our_head():
    model = build_model(recogniser(Backbone={"name": "ForeignBackbone", "width": 24}))
    assert isinstance(model.backbone, foreign_parts.ForeignBackbone)
    out = model(images(), labels())
    (out["head_out"]["ctc"].sum() + out["head_out"]["gtc"].sum()).backward()
    assert model.backbone.conv.weight.grad is not None
    model.eval()
    assert model(images())["head_out"].shape == [2, 8, CLASSES]


def test_a_foreign_head_is_called_as_paddleocr_calls_it():
    model = build_model(recogniser(Head={"name": "ForeignHead", "out_channels": 5}))
    data = labels()
    out = model(images(), data)
    assert set(out) == {"backbone_out", "char_logits"}
    assert model.head.seen_targets is data
    model.eval()
    assert model(images())["head_out"].sum(-1).numpy() == pytest.approx(1.0, abs=1e-5)


def test_a_frozen_foreign_head_gives_what_losses_read_and_stays_in_eval():
    model = BaseModel(recogniser(Head={"name": "ForeignHead", "out_channels": 5}))
    model.freeze()
    model.train()
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    first, second = (model(images(), labels(), TRAIN)["char_logits"] for _ in range(2))
    assert float((first - second).abs().max()) == 0.0  # no dropout
    assert first.stop_gradient
    assert not any(layer.training for layer in model.sublayers(include_self=True))
    assert all((value.numpy() == before[name]).all() for name, value in model.state_dict().items())
