import copy
from dataclasses import replace
from typing import Any

import paddle
import pytest
from error_codes import raises_code
from parity import load_case
from small_networks import CLASSES, distillation, images, labels

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling import EVAL, TRAIN, HeadRequest, build_model

CTC = replace(TRAIN, branches=frozenset({"ctc"}))
NRTR = replace(TRAIN, branches=frozenset({"gtc"}))

_NECK = {"name": "svtr", "dims": 256, "depth": 2, "hidden_dims": 256}
_HEAD = {
    "name": "MultiHead",
    "head_list": [
        {
            "CTCHead": {
                "Neck": {**_NECK, "kernel_size": [1, 3], "use_guide": True},
                "Head": {"fc_decay": 1e-5},
            }
        },
        {"NRTRHead": {"nrtr_dim": 384, "num_decoder_layers": 2, "max_text_length": 25}},
    ],
    "out_channels_list": {"CTCLabelDecode": 6625, "NRTRLabelDecode": 6628},
}
_TEACHER = {
    "name": "SVTRv2",
    "dims": [128, 256, 384],
    "depths": [6, 6, 6],
    "num_heads": [4, 8, 12],
    "mixer": [["Conv"] * 6, ["Conv"] * 2 + ["Global"] * 4, ["Global"] * 6],
    "local_k": [[5, 5], [5, 5], [-1, -1]],
    "sub_k": [[2, 1], [2, 1], [-1, -1]],
    "use_pool": True,
}


@pytest.fixture
def model():
    paddle.seed(0)
    return build_model(distillation())


def snapshot(layer: paddle.nn.Layer) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in layer.state_dict().items()}


def test_all_names_and_shapes_of_the_official_model():
    common = {"model_type": "rec", "algorithm": "SVTR_LCNet", "Transform": None, "Head": _HEAD}
    config = {
        "name": "DistillationModel",
        "algorithm": "Distillation",
        "model_type": "rec",
        "Models": {
            "Teacher": {**common, "Backbone": _TEACHER, "freeze_params": True},
            "Student": {**common, "Backbone": {"name": "RepSVTR"}},
        },
    }
    before = copy.deepcopy(config)
    state = {name: list(value.shape) for name, value in build_model(config).state_dict().items()}
    expected = load_case("full_distillation_names").info["state_dict"]
    assert len(expected) == 715
    assert state == expected
    assert config == before


def test_a_frozen_teacher_gives_the_same_logits_in_train_and_eval_mode(model):
    first, second = (model(images(), labels())["Teacher"]["head_out"]["ctc"] for _ in range(2))
    assert float((first - second).abs().max()) == 0.0
    model.eval()
    probabilities = model(images())["Teacher"]["head_out"]
    softmax = paddle.nn.functional.softmax(first, axis=-1)
    assert softmax.numpy() == pytest.approx(probabilities.numpy(), abs=1e-6)


@pytest.mark.parametrize("train_frames", [40, "width"])
def test_a_frozen_teacher_pools_as_its_student_at_every_size(train_frames):
    """And in evaluation both pool as PaddleOCR does, which PPLCNetV4 can at height 48 only."""
    config = distillation()
    teacher, student = {"name": "PPLCNetV3", "scale": 0.25}, {"name": "PPLCNetV4", "model_size": "tiny"}
    for name, backbone in (("Teacher", teacher), ("Student", student)):
        config["Models"][name]["Backbone"] = {**backbone, "train_frames": train_frames}
    model = build_model(config)
    model = model.using(train=dict.fromkeys(("Teacher", "Student"), CTC))
    for height, width in ((32, 160), (48, 320), (64, 480)):
        with paddle.no_grad():
            out = model(images(2, height, width), labels())
        frames = width // 8 if train_frames == "width" else 40
        assert [out[name]["head_out"]["ctc"].shape[1] for name in out] == [frames] * 2
    assert not any(layer.training for layer in model.models["Teacher"].sublayers(include_self=True))
    model.eval()
    with paddle.no_grad():
        assert {name: o["head_out"].shape[1] for name, o in model(images(1, 48, 480)).items()} == {
            "Teacher": 60,
            "Student": 60,
        }
        with raises_code(ModelError, "image_size"):
            model(images(1, 32, 480))


def test_no_call_of_train_wakes_the_teacher(model):
    teacher = model.models["Teacher"]
    model.train()
    model.models["Teacher"].train()
    assert not any(layer.training for layer in teacher.sublayers(include_self=True))
    assert all(layer.training for layer in model.models["Student"].sublayers(include_self=True))
    wrapper = paddle.nn.Sequential(model)
    wrapper.train()  # sets the flag of every layer below it without calling train()
    statistics = snapshot(teacher)
    model(images(), labels())
    assert not any(layer.training for layer in teacher.sublayers(include_self=True))
    assert all((value.numpy() == statistics[name]).all() for name, value in teacher.state_dict().items())


def test_only_the_named_models_run_in_eval_mode(model):
    model.eval()
    assert set(model(images())) == {"Teacher", "Student"}
    model = model.using(evaluate={"Student": EVAL})
    model.eval()
    ran = []
    model.models["Teacher"].backbone.register_forward_post_hook(lambda *_: ran.append("Teacher"))
    out = model(images())
    assert set(out) == {"Student"}
    assert set(out["Student"]) == {"head_out"}
    assert ran == []
    model.train()
    assert set(model(images(), labels())) == {"Teacher", "Student"}
    with raises_code(ModelError, "unknown_sub_model", "Pupil", "Teacher, Student"):
        model.using(evaluate={"Pupil": EVAL})


def test_only_what_is_read_is_computed(model):
    whole = model
    model = whole.using(train={"Teacher": NRTR, "Student": TRAIN})
    ran = []
    model.models["Teacher"].head.ctc_encoder.register_forward_post_hook(lambda *_: ran.append("ctc"))
    out = model(images(), labels())
    assert set(out["Teacher"]["head_out"]) == {"gtc"}
    assert set(out["Student"]["head_out"]) == {"ctc", "ctc_neck", "gtc"}
    assert set(model.using(train={"Student": TRAIN})(images(), labels())) == {"Student"}
    assert ran == []
    model.eval()
    assert model(images())["Teacher"]["head_out"].shape == [2, 8, CLASSES]
    assert set(whole.train_requests.values()) == {TRAIN}
    with raises_code(ModelError, "unknown_sub_model", "Pupil"):
        model.using(train={"Pupil": CTC})


def test_features_of_one_sub_model_can_be_asked_for_and_any_callable_may_compute(model):
    called = []

    def computed(x: Any, data: Any, request: HeadRequest) -> Any:
        called.append(request)
        return model.models["Teacher"](x, data, request)

    wanted = replace(TRAIN, features=True)
    asked = model.using(train={"Teacher": wanted, "Student": TRAIN}, callers={"Teacher": computed})
    out = asked(images(), labels())
    features, logits = out["Teacher"]["head_out"]["ctc"]
    assert (features.shape, logits.shape) == ([2, 8, 16], [2, 8, CLASSES])
    assert isinstance(out["Student"]["head_out"]["ctc"], paddle.Tensor)
    assert called == [wanted] and asked.state_dict().keys() == model.state_dict().keys()
