"""What losses accept, and that they leave it as it was."""

import math
from typing import Any

import naive_losses as naive
import numpy as np
import paddle
import pytest
from error_codes import raises_code
from loss_inputs import CLASSES, PAIRS, batch, draw, outputs, predictions, tensor

from ppocr_ext.errors import ConfigError, DataError, ModelError
from ppocr_ext.losses import build_loss

LISTED = {"model_name_list": ["Student"], "key": "head_out", "multi_head": True}
PAIRED = {"model_name_pairs": PAIRS, "key": "head_out", "multi_head": True}
CTC = [
    ("DistillationCTCLoss", LISTED),
    ("DistillationKLDivLoss", {**PAIRED, "dis_head": "ctc"}),
    ("DistillationDMLLoss", {**PAIRED, "dis_head": "ctc", "act": "softmax", "use_log": True}),
    ("DistillCTCLogits", {"model_name_pairs": PAIRS, "key": "head_out"}),
    ("MaskedDKDLoss", {**PAIRED, "dis_head": "ctc"}),
    ("CTCFrameKDLoss", PAIRED),
]
GTC = [
    ("DistillationNRTRLoss", LISTED),
    ("DistillationNRTRLoss", {**LISTED, "smoothing": False}),
    ("DistillationDKDLoss", {**PAIRED, "dis_head": "gtc"}),
    ("DistillationKLDivLoss", {**PAIRED, "dis_head": "gtc"}),
    ("DistillationDMLLoss", {**PAIRED, "dis_head": "gtc", "act": "softmax", "use_log": True}),
    ("MaskedDKDLoss", {**PAIRED, "dis_head": "gtc"}),
]


def build(name: str, options: dict[str, Any]) -> Any:
    return build_loss({"name": name, **options})


def given() -> list[paddle.Tensor]:
    return batch(valid_ratio=[1.0, 0.5, 1.0])


@pytest.mark.parametrize(("name", "options"), CTC)
def test_features_beside_the_logits_are_passed_over(name, options):
    plain = predictions(outputs(frames=8))
    with_features = predictions(outputs(frames=8))
    for model in with_features.values():
        logits = model["head_out"]["ctc"]
        model["head_out"]["ctc"] = (paddle.ones([3, 8, 16]), logits)
    loss = build(name, options)
    assert float(loss(with_features, given())["loss"]) == float(loss(plain, given())["loss"])


@pytest.mark.parametrize(("name", "options"), [*CTC, *GTC])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision_is_computed_in_float32(name, options, kind):
    loss = build(name, options)
    halves, rounded = predictions(outputs(frames=8)), predictions(outputs(frames=8))
    for model in halves:
        for head, logits in halves[model]["head_out"].items():
            half = logits.detach().astype(kind)
            half.stop_gradient = logits.stop_gradient
            halves[model]["head_out"][head] = half
            same = half.detach().astype("float32")
            same.stop_gradient = logits.stop_gradient
            rounded[model]["head_out"][head] = same
    value, expected = loss(halves, given())["loss"], loss(rounded, given())["loss"]
    full = loss(predictions(outputs(frames=8)), given())["loss"]
    assert value.dtype == paddle.float32
    assert float(value) == float(expected)
    assert float(value) == pytest.approx(float(full), rel=0.02)
    value.backward()
    expected.backward()
    for head in ("ctc", "gtc"):
        slope = rounded["Student"]["head_out"][head].grad
        if slope is None:
            continue
        reference = slope.numpy()
        gradient = halves["Student"]["head_out"][head].grad
        np.testing.assert_allclose(
            gradient.astype("float32").numpy(), reference, rtol=0.01, atol=0.01 * np.abs(reference).max()
        )


@pytest.mark.parametrize(("name", "options"), [*CTC, *GTC])
def test_values_are_scalars_that_add_up_and_inputs_stay_as_they_are(name, options):
    logits = outputs(frames=8)
    predicts, labels = predictions(logits), given()
    before = [entry.numpy().copy() for entry in labels]
    values = build(name, options)(predicts, labels)
    values["loss"].backward()
    for model, heads in logits.items():
        for head, value in heads.items():
            np.testing.assert_array_equal(predicts[model]["head_out"][head].numpy(), value)
    assert len(labels) == len(before)
    for entry, copy in zip(labels, before, strict=True):
        np.testing.assert_array_equal(entry.numpy(), copy)
    parts = [float(value) for key, value in values.items() if key != "loss"]
    assert parts and all(value.shape == [] for value in values.values())
    assert float(values["loss"]) == pytest.approx(sum(parts), rel=1e-6)


@pytest.mark.parametrize(("name", "options"), [*CTC, *GTC])
def test_sub_models_without_a_multi_head(name, options):
    """One head each, its output under no key, and a single head's batch."""
    if name == "DistillationDKDLoss" or options.get("dis_head") == "gtc" or name == "DistillationNRTRLoss":
        head, label = "gtc", 2
    else:
        head, label = "ctc", 1
    options = {**options, "key": None, "multi_head": False}
    if name == "DistillCTCLogits":
        del options["multi_head"]
    several = given()
    single = [several[0], several[label], several[3]]
    predicts = {model: heads["head_out"][head] for model, heads in predictions(outputs(frames=8)).items()}
    value = build(name, options)(predicts, single)["loss"]
    assert math.isfinite(float(value))
    assert float(value) > 0


def test_ctc_of_one_empty_label_among_others():
    logits = draw("empty", [2, 3, CLASSES])
    loss = build("CTCLoss", {})
    value = loss(
        tensor(logits), [tensor(logits), tensor(np.array([[0, 0], [3, 1]])), tensor(np.array([0, 2]))]
    )
    expected = [
        -math.log(naive.ctc_probability(logits[0], [])),
        -math.log(naive.ctc_probability(logits[1], [3, 1])),
    ]
    assert float(value["loss"]) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize(("label", "length", "found"), [
    ([[0, 0], [0, 0]], [0, 0], ""),
    ([[1, CLASSES], [1, 2]], [2, 2], f"class {CLASSES}"),
    ([[1, -1], [1, 2]], [2, 2], "class -1"),
    ([[1, 2], [0, 2]], [1, 2], "class 0"),
    ([[1, 2], [1, 2]], [1, 3], "length 3"),
])  # fmt: skip
def test_ctc_refuses_what_would_end_or_mislead(label, length, found):
    logits = tensor(draw("refused", [2, 5, CLASSES]))
    with raises_code(DataError, "bad_label", found):
        build("CTCLoss", {})(logits, [logits, tensor(np.array(label)), tensor(np.array(length))])


def test_ctc_of_a_sure_model_is_no_fault(caplog):
    logits = np.full([1, 2, CLASSES], -500.0, "float32")
    logits[0, 0, 1] = logits[0, 1, 2] = 500.0
    value = build("CTCLoss", {})(
        tensor(logits), [tensor(logits), tensor(np.array([[1, 2]])), tensor(np.array([2]))]
    )
    assert float(value["loss"]) == 0.0
    assert not caplog.records


def test_what_does_not_fit_is_explained():
    ctc, both = build("CTCLoss", {}), predictions(outputs())
    logits, lengths = tensor(draw("long", [2, 9, 7])), tensor(np.array([1, 1]))
    with raises_code(ModelError, "shape_mismatch", 10, [2, 9]):  # a label shorter than the decoder's output
        build("NRTRLoss", {})(logits, [logits, tensor(np.zeros([2, 9], "int64")), lengths])
    with raises_code(ModelError, "shape_mismatch", 2, [3, 2]):  # different numbers of lines
        ctc(logits, [logits, tensor(np.ones([3, 2], "int64")), tensor(np.array([1, 1, 1]))])
    with raises_code(ConfigError, "missing_batch_entry", 3, "KeepKeys"):
        build("DistillationCTCLoss", LISTED)(both, given()[:3])
    with raises_code(ModelError, "shape_mismatch", 5, 7, "CTCFrameKDLoss"):  # which aligns the frames
        loss = build("DistillationKLDivLoss", {**PAIRED, "dis_head": "ctc"})
        loss(predictions(outputs(teacher_frames=7)), given())
    features = {name: {"backbone_out": paddle.ones([2, n])} for name, n in (("Student", 3), ("Teacher", 4))}
    with raises_code(ModelError, "shape_mismatch", "Student.backbone_out", [2, 3], [2, 4]):
        options = {"model_name_pairs": PAIRS, "key": "backbone_out"}
        build("DistillationDistanceLoss", options)(features, given())
    with raises_code(ConfigError, "wrong_output", "ctc, gtc", "MultiLoss"):
        ctc(both["Student"]["head_out"], given())
    with raises_code(ModelError, "wrong_output", "str"):
        ctc("logits", given())
    with raises_code(ModelError, "shape_mismatch", [2, 3]):
        ctc(paddle.ones([2, 3]), given())


@pytest.mark.parametrize(
    "name", ["DistillationKLDivLoss", "MaskedDKDLoss", "CTCFrameKDLoss", "DistillCTCLogits"]
)
def test_different_dictionaries_are_explained(name):
    options = {"model_name_pairs": PAIRS, "key": "head_out"}
    if name != "DistillCTCLogits":
        options["multi_head"] = True
    if name == "MaskedDKDLoss":
        options["dis_head"] = "ctc"
    predicts = predictions(outputs())
    predicts["Teacher"]["head_out"]["ctc"] = paddle.ones([3, 5, CLASSES + 1])
    with raises_code(ModelError, "shape_mismatch", "Student.head_out.ctc", [3, 5, 6], [3, 5, 7]):
        build(name, options)(predicts, given())
