"""What losses accept, and that they leave it as it was."""

from __future__ import annotations

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
def test_features_beside_the_logits_are_passed_over(name: str, options: dict[str, Any]) -> None:
    plain = predictions(outputs(frames=8))
    with_features = predictions(outputs(frames=8))
    for model in with_features.values():
        logits = model["head_out"]["ctc"]
        model["head_out"]["ctc"] = (paddle.ones([3, 8, 16]), logits)
    loss = build(name, options)
    assert float(loss(with_features, given())["loss"]) == float(loss(plain, given())["loss"])


@pytest.mark.parametrize(("name", "options"), [*CTC, *GTC])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision_is_computed_in_float32(name: str, options: dict[str, Any], kind: str) -> None:
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
            gradient.astype("float32").numpy(),
            reference,
            rtol=0.01,
            atol=0.01 * np.abs(reference).max(),
        )


@pytest.mark.parametrize(("name", "options"), [*CTC, *GTC])
def test_values_are_scalars_that_add_up_and_inputs_stay_as_they_are(
    name: str, options: dict[str, Any]
) -> None:
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
def test_sub_models_without_a_multi_head(name: str, options: dict[str, Any]) -> None:
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


def test_ctc_of_one_empty_label_among_others() -> None:
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
def test_ctc_refuses_what_would_end_or_mislead(label: list[list[int]], length: list[int], found: str) -> None:
    logits = tensor(draw("refused", [2, 5, CLASSES]))
    with raises_code(DataError, "bad_label", found):
        build("CTCLoss", {})(logits, [logits, tensor(np.array(label)), tensor(np.array(length))])


def test_ctc_of_a_sure_model_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    logits = np.full([1, 2, CLASSES], -500.0, "float32")
    logits[0, 0, 1] = logits[0, 1, 2] = 500.0
    value = build("CTCLoss", {})(
        tensor(logits), [tensor(logits), tensor(np.array([[1, 2]])), tensor(np.array([2]))]
    )
    assert float(value["loss"]) == 0.0
    assert not caplog.records


def test_label_shorter_than_the_decoder_is_explained() -> None:
    logits = tensor(draw("long", [2, 9, 7]))
    label = tensor(np.zeros([2, 9], "int64"))
    with raises_code(ModelError, "shape_mismatch", 10, [2, 9]):
        build("NRTRLoss", {})(logits, [logits, label, tensor(np.array([1, 1]))])


def test_different_numbers_of_lines_are_explained() -> None:
    logits = tensor(draw("lines", [2, 5, CLASSES]))
    label = tensor(np.ones([3, 2], "int64"))
    with raises_code(ModelError, "shape_mismatch", 2, [3, 2]):
        build("CTCLoss", {})(logits, [logits, label, tensor(np.array([1, 1, 1]))])


def test_short_batch_is_explained() -> None:
    short = given()[:3]
    with raises_code(ConfigError, "missing_batch_entry", 3, "KeepKeys"):
        build("DistillationCTCLoss", LISTED)(predictions(outputs()), short)


@pytest.mark.parametrize(
    "name", ["DistillationKLDivLoss", "MaskedDKDLoss", "CTCFrameKDLoss", "DistillCTCLogits"]
)
def test_different_dictionaries_are_explained(name: str) -> None:
    options = {"model_name_pairs": PAIRS, "key": "head_out"}
    if name != "DistillCTCLogits":
        options["multi_head"] = True
    if name == "MaskedDKDLoss":
        options["dis_head"] = "ctc"
    predicts = predictions(outputs())
    predicts["Teacher"]["head_out"]["ctc"] = paddle.ones([3, 5, CLASSES + 1])
    with raises_code(ModelError, "shape_mismatch", "Student.head_out.ctc", [3, 5, 6], [3, 5, 7]):
        build(name, options)(predicts, given())


def test_different_frames_name_the_loss_that_aligns_them() -> None:
    predicts = predictions(outputs(teacher_frames=7))
    with raises_code(ModelError, "shape_mismatch", 5, 7, "CTCFrameKDLoss"):
        build("DistillationKLDivLoss", {**PAIRED, "dis_head": "ctc"})(predicts, given())


def test_distance_of_different_shapes_is_explained() -> None:
    predicts = {
        "Student": {"backbone_out": paddle.ones([2, 3])},
        "Teacher": {"backbone_out": paddle.ones([2, 4])},
    }
    loss = build("DistillationDistanceLoss", {"model_name_pairs": PAIRS, "key": "backbone_out"})
    with raises_code(ModelError, "shape_mismatch", "Student.backbone_out", [2, 3], [2, 4]):
        loss(predicts, given())


def test_output_of_a_multi_head_in_a_single_loss_is_explained() -> None:
    head_out = predictions(outputs())["Student"]["head_out"]
    with raises_code(ConfigError, "wrong_output", "ctc, gtc", "MultiLoss"):
        build("CTCLoss", {})(head_out, given())


def test_output_that_is_no_tensor_is_explained() -> None:
    with raises_code(ModelError, "wrong_output", "str"):
        build("CTCLoss", {})("logits", given())
    with raises_code(ModelError, "shape_mismatch", [2, 3]):
        build("CTCLoss", {})(paddle.ones([2, 3]), given())
