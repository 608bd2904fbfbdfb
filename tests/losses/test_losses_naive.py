"""Each loss against plain loops, with the inputs that break careless code."""

import math
from typing import Any

import naive_losses as naive
import numpy as np
import paddle
import pytest
from loss_inputs import (
    CLASSES,
    DECODER_CLASSES,
    PAIRS,
    batch,
    draw,
    labels,
    outputs,
    pair_loss,
    predictions,
    tensor,
)

from ppocr_ext.errors import ModelError
from ppocr_ext.losses import build_loss

CLOSE = 2e-5


def targets_of(lengths: list[int], positions: int, longest: int = 6) -> np.ndarray:
    return labels(lengths, longest)[1][:, 1 : 1 + positions]


def every_position(values: dict[str, dict[str, np.ndarray]], head: str) -> list[tuple[Any, Any]]:
    width = values["Student"][head].shape[-1]
    rows = (values[model][head].reshape([-1, width]) for model in ("Student", "Teacher"))
    return list(zip(*rows, strict=True))


@pytest.mark.parametrize("lengths", [[3, 1, 2], [1, 1, 1], [5]])
@pytest.mark.parametrize("focal", [False, True])
def test_ctc(lengths, focal):
    logits = draw("ctc", [len(lengths), 9, CLASSES])
    ctc, _ = labels(lengths, 6)
    values = build_loss({"name": "CTCLoss", "use_focal_loss": focal})(
        tensor(logits), [tensor(logits), tensor(ctc), tensor(np.array(lengths))]
    )
    expected = []
    for frames, label, length in zip(logits, ctc, lengths, strict=True):
        probability = naive.ctc_probability(frames, label[:length])
        expected.append(-math.log(probability) * ((1 - probability) ** 2 if focal else 1.0))
    assert float(values["loss"]) == pytest.approx(np.mean(expected), rel=CLOSE)


def test_ctc_with_repeats_and_a_single_frame():
    repeats = draw("repeats", [1, 4, CLASSES])
    label = np.array([[2, 2, 0]])
    value = build_loss({"name": "CTCLoss"})(
        tensor(repeats), [tensor(repeats), tensor(label), tensor(np.array([2]))]
    )
    assert float(value["loss"]) == pytest.approx(
        -math.log(naive.ctc_probability(repeats[0], [2, 2])), rel=CLOSE
    )
    single = draw("single", [1, 1, CLASSES])
    value = build_loss({"name": "CTCLoss"})(
        tensor(single), [tensor(single), tensor(np.array([[4]])), tensor(np.array([1]))]
    )
    assert float(value["loss"]) == pytest.approx(-math.log(naive.softmax(single[0, 0])[4]), rel=CLOSE)


@pytest.mark.parametrize(("name", "smoothing", "counts_padding"), [
    ("NRTRLoss", False, False),
    ("NRTRLoss", True, False),
    ("CELoss", False, True),
    ("CELoss", True, False),
])  # fmt: skip
@pytest.mark.parametrize("lengths", [[3, 1, 2], [1, 3, 1], [0, 3, 0]])
def test_decoder_cross_entropy(name, smoothing, counts_padding, lengths):
    logits = outputs(len(lengths), positions=4)["Student"]["gtc"]
    _, gtc = labels(lengths, 6)
    loss = build_loss({"name": name, "smoothing": smoothing})
    value = loss(tensor(logits), [tensor(logits), tensor(gtc), tensor(np.array(lengths))])["loss"]
    expected = [
        naive.cross_entropy(row, int(target), 0.1 if smoothing else 0.0)
        for row, target in zip(
            logits.reshape([-1, DECODER_CLASSES]), targets_of(lengths, 4).ravel(), strict=True
        )
        if counts_padding or target != 0
    ]
    assert float(value) == pytest.approx(np.mean(expected), rel=CLOSE)


def test_cross_entropy_of_every_entry_and_of_several_outputs():
    logits = {name: draw(name, [2, 3, DECODER_CLASSES]) for name in ("first", "second", "third")}
    label = np.array([[2, 5, 3], [2, 4, 0]])
    given = [tensor(logits["first"]), tensor(label), tensor(np.array([1, 1]))]

    def mean(*names: str) -> float:
        rows = [row for name in names for row in logits[name].reshape([-1, DECODER_CLASSES])]
        targets = [int(target) for _ in names for target in label.ravel()]
        return float(np.mean([naive.cross_entropy(r, t) for r, t in zip(rows, targets, strict=True)]))

    whole = build_loss({"name": "CELoss", "with_all": True})(tensor(logits["first"]), given)
    assert float(whole["loss"]) == pytest.approx(mean("first"), rel=CLOSE)
    several = {"align": [tensor(logits["first"]), tensor(logits["second"])], "lang": tensor(logits["third"])}
    values = build_loss({"name": "CELoss"})(several, given)
    assert float(values["align_loss"]) == pytest.approx(mean("first", "second"), rel=CLOSE)
    assert float(values["lang_loss"]) == pytest.approx(mean("third"), rel=CLOSE)
    assert float(values["loss"]) == pytest.approx(mean("first", "second") + mean("third"), rel=CLOSE)


@pytest.mark.parametrize("name", ["NRTRLoss", "CELoss"])
def test_all_padding_gives_zero_not_nan(name):
    logits = tensor(draw("padding", [2, 3, DECODER_CLASSES]), trained=True)
    label = tensor(np.array([[2, 0, 0, 0], [2, 0, 0, 0]]))
    loss = build_loss({"name": name, "smoothing": True})
    value = loss(logits, [logits, label, tensor(np.array([0, 0]))])["loss"]
    value.backward()
    assert float(value) == 0.0
    assert not logits.grad.numpy().any()


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("lengths", [[3, 1, 2], [3, 0, 0]])
def test_dkd_counts_padding_and_masked_dkd_does_not(temperature, lengths):
    values = outputs()
    options = {"temperature": temperature, "alpha": 0.5, "beta": 2.0}
    every = [
        (int(target), naive.dkd(student, teacher, int(target), **options))
        for (student, teacher), target in zip(
            every_position(values, "gtc"), targets_of(lengths, 4).ravel(), strict=True
        )
    ]
    with_padding = pair_loss("DistillationDKDLoss", "gtc", **options)(predictions(values), batch(lengths))
    assert float(with_padding["dkd_0"]) == pytest.approx(np.mean([loss for _, loss in every]), rel=CLOSE)
    masked = pair_loss("MaskedDKDLoss", "gtc", **options)(predictions(values), batch(lengths))
    expected = np.mean([loss for target, loss in every if target != 0])
    assert float(masked["masked_dkd_0"]) == pytest.approx(expected, rel=CLOSE)


def test_dkd_is_finite_where_a_probability_rounds_to_one():
    values = outputs()
    values["Student"]["gtc"] = np.zeros_like(values["Student"]["gtc"])
    values["Student"]["gtc"][..., 4] = 300.0  # the others are below the smallest float32
    predicts = predictions(values)
    value = pair_loss("DistillationDKDLoss", "gtc")(predicts, batch())["loss"]
    value.backward()
    assert math.isfinite(float(value))
    assert np.isfinite(predicts["Student"]["head_out"]["gtc"].grad.numpy()).all()


@pytest.mark.parametrize("name", ["DistillationKLDivLoss", "DistillationDKDLoss", "MaskedDKDLoss"])
def test_a_class_that_the_teacher_excludes_is_as_an_improbable_one(name):
    found = []
    for excluded in (-np.inf, -90.0):
        values = outputs()
        values["Teacher"]["gtc"][..., 5] = excluded
        predicts = predictions(values)
        value = pair_loss(name, "gtc")(predicts, batch())["loss"]
        value.backward()
        found.append([float(value), *predicts["Student"]["head_out"]["gtc"].grad.numpy().ravel()])
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)


def test_kl_is_masked_for_the_decoder_and_whole_for_frames():
    values = outputs()
    lengths = [3, 0, 1]
    rows = [naive.kl(student, teacher) for student, teacher in every_position(values, "gtc")]
    counted = [row for row, target in zip(rows, targets_of(lengths, 4).ravel(), strict=True) if target != 0]
    value = pair_loss("DistillationKLDivLoss", "gtc")(predictions(values), batch(lengths))
    assert float(value["kl_div_0"]) == pytest.approx(np.mean(counted), rel=CLOSE)
    frames = [naive.kl(student, teacher) for student, teacher in every_position(values, "ctc")]
    value = pair_loss("DistillationKLDivLoss", "ctc")(predictions(values), batch(lengths))
    assert float(value["kl_div_0"]) == pytest.approx(np.mean(frames), rel=CLOSE)
    single = {model: {"head_out": tensor(heads["ctc"])} for model, heads in values.items()}
    value = pair_loss("DistillationKLDivLoss", "ctc", multi_head=False)(single, batch(lengths))
    assert float(value["kl_div_0"]) == pytest.approx(np.sum(frames) / 3, rel=CLOSE)


@pytest.mark.parametrize("name", ["DistillationKLDivLoss", "DistillationDMLLoss", "DistillationDKDLoss"])
def test_mutual_learning_reaches_both(name):
    options = {"act": "softmax", "use_log": True} if name == "DistillationDMLLoss" else {}
    predicts = predictions(outputs(), trained=("Student", "Teacher"))
    loss = pair_loss(name, "gtc", **options)
    before = float(loss(predicts, batch())["loss"].detach())
    loss(predicts, batch())["loss"].backward()
    teacher = predicts["Teacher"]["head_out"]["gtc"]
    slope = teacher.grad.numpy()
    # along the gradient the loss must change as the gradient says
    step = 1e-2 / np.linalg.norm(slope)
    moved = predictions(outputs())
    moved["Teacher"]["head_out"]["gtc"] = tensor(teacher.numpy() + step * slope)
    after = float(loss(moved, batch())["loss"])
    assert after - before == pytest.approx(1e-2 * np.linalg.norm(slope), rel=0.05)


@pytest.mark.parametrize("act", ["softmax", "sigmoid", None])
@pytest.mark.parametrize("use_log", [False, True])
def test_dml(act, use_log):
    values = outputs()
    if act is None:
        for heads in values.values():
            heads["ctc"] = 1.0 / (1.0 + np.exp(-heads["ctc"]))

    def probabilities(row: np.ndarray) -> list[float]:
        if act is None:
            return [float(value) for value in row]
        made = naive.softmax(row) if act == "softmax" else [1 / (1 + math.exp(-value)) for value in row]
        return [value + 1e-10 for value in made]

    total = 0.0
    for student, teacher in every_position(values, "ctc"):
        for a, b in zip(probabilities(student), probabilities(teacher), strict=True):
            if use_log:
                total += b * (math.log(b + 1e-10) - math.log(a)) + a * (math.log(a + 1e-10) - math.log(b))
            else:
                total += b * math.log((b + 1e-5) / (a + 1e-5) + 1e-5)
                total += a * math.log((a + 1e-5) / (b + 1e-5) + 1e-5)
    expected = total / 2 / (3 if use_log else values["Student"]["ctc"].size)
    value = pair_loss("DistillationDMLLoss", "ctc", act=act, use_log=use_log)(predictions(values), batch())
    assert float(value["dml_0"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("teacher_frames", [5, 8])
def test_ctc_logits(teacher_frames):
    values = outputs(teacher_frames=teacher_frames)

    def mean_probabilities(frames: np.ndarray) -> np.ndarray:
        flipped = frames.copy()
        flipped[:, 0] *= -1
        return np.mean([naive.softmax(frame, 0.5) for frame in flipped], axis=0)

    total = 0.0
    for student, teacher in zip(values["Student"]["ctc"], values["Teacher"]["ctc"], strict=True):
        for p, q in zip(mean_probabilities(student), mean_probabilities(teacher), strict=True):
            total += q * math.log((q + 1e-6) / (p + 1e-6) + 1e-6)
    loss = build_loss({"name": "DistillCTCLogits", "model_name_pairs": PAIRS, "key": "head_out"})
    assert float(loss(predictions(values), batch())["ctc_logits_0"]) == pytest.approx(total / 3, rel=CLOSE)


@pytest.mark.parametrize("mode", ["l1", "l2", "smooth_l1"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_distance(mode, reduction):
    features = {name: draw(name, [2, 3, 1, 4]) for name in ("Student", "Teacher")}
    predicts = {name: {"backbone_out": tensor(value)} for name, value in features.items()}
    each = []
    for a, b in zip(features["Student"].ravel(), features["Teacher"].ravel(), strict=True):
        gap = abs(float(a) - float(b))
        smooth = 0.5 * gap**2 if gap < 1 else gap - 0.5
        each.append({"l1": gap, "l2": gap**2, "smooth_l1": smooth}[mode])
    loss = build_loss({"name": "DistillationDistanceLoss", "mode": mode, "reduction": reduction,
                       "model_name_pairs": PAIRS, "key": "backbone_out"})  # fmt: skip
    value = loss(predicts, batch([1, 1]))["loss_distance_l2_Student_Teacher_0"]
    assert float(value) == pytest.approx(np.mean(each) if reduction == "mean" else np.sum(each), rel=CLOSE)


SAR_CLASSES, PADDING = 7, 7  # 5 characters, <UKN>, <BOS/EOS>; the padding is never predicted
SAR_LABELS = np.array([[6, 1, 2, 6, 7], [6, 3, 6, 7, 7]])


def sar_logits() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((2, SAR_LABELS.shape[1], SAR_CLASSES)).astype(np.float32)


def naive_sar(logits: np.ndarray) -> float:
    losses = []
    for row, label in zip(logits, SAR_LABELS, strict=True):
        for position in range(SAR_LABELS.shape[1] - 1):
            target = label[position + 1]
            if target != PADDING:
                scores = np.exp(row[position].astype(np.float64))
                losses.append(-np.log(scores[target] / scores.sum()))
    return float(np.mean(losses))


def sar_batch() -> list[paddle.Tensor]:
    """[image, label_ctc, label_sar, length, valid_ratio]; the label of CTC must not be read."""
    rest = [np.zeros((2, 3)), np.full((2, 5), 99), SAR_LABELS, np.array([2, 1]), np.ones(2)]
    return [paddle.to_tensor(each) for each in rest]


def test_sar_loss_alone():
    loss = build_loss({"name": "SARLoss", "ignore_index": PADDING})
    single = [each for index, each in enumerate(sar_batch()) if index != 1]
    assert float(loss(paddle.to_tensor(sar_logits()), single)["loss"]) == pytest.approx(
        naive_sar(sar_logits()), rel=1e-5
    )
    assert loss.required_outputs() == {(None, "sar")}


def test_sar_loss_in_multi_loss():
    entries = [{"SARLoss": {"ignore_index": PADDING}}]
    loss = build_loss({"name": "MultiLoss", "loss_config_list": entries, "weight_2": 0.5})
    parts = loss({"sar": paddle.to_tensor(sar_logits())}, sar_batch())
    assert float(parts["loss"]) == pytest.approx(0.5 * naive_sar(sar_logits()), rel=1e-5)


def test_sar_loss_of_sub_models():
    options = {"model_name_list": ["Student", "Teacher"], "key": "head_out", "multi_head": True}
    entry = {"DistillationSARLoss": {"weight": 1.0, **options, "ignore_index": PADDING}}
    loss = build_loss({"name": "CombinedLoss", "loss_config_list": [entry]})
    other = sar_logits()[::-1].copy()
    outputs = {
        name: {"head_out": {"sar": paddle.to_tensor(value)}}
        for name, value in (("Student", sar_logits()), ("Teacher", other))
    }
    parts = loss(outputs, sar_batch())
    assert float(parts["loss_sar_Student_0"]) == pytest.approx(naive_sar(sar_logits()), rel=1e-5)
    assert float(parts["loss_sar_Teacher_1"]) == pytest.approx(naive_sar(other), rel=1e-5)
    assert loss.required_outputs() == {("Student", "sar"), ("Teacher", "sar")}


def test_labels_of_another_length_are_refused():
    loss = build_loss({"name": "SARLoss", "ignore_index": PADDING})
    single = [each for index, each in enumerate(sar_batch()) if index != 1]
    with pytest.raises(ModelError) as error:
        loss(paddle.to_tensor(sar_logits()[:, :3]), single)
    assert error.value.code == "shape_mismatch"
