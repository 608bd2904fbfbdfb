"""The corrected losses, frame by frame, against plain loops."""

import naive_losses as naive
import numpy as np
import pytest
from loss_inputs import batch, draw, outputs, pair_loss, predictions, tensor

CLOSE = 2e-5


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("blank_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("teacher_frames", [5, 3, 10, 1])
@pytest.mark.parametrize("name", ["MaskedDKDLoss", "CTCFrameKDLoss"])
def test_frame_losses(name, teacher_frames, blank_weight, temperature):
    values = outputs(teacher_frames=teacher_frames)
    values["Teacher"]["ctc"][..., 0] += 1.5  # some blanks, some characters
    ratio = [1.0, 0.5, 0.2]
    options = {"temperature": temperature, "blank_weight": blank_weight}
    logits = (values["Student"]["ctc"], values["Teacher"]["ctc"])
    if name == "CTCFrameKDLoss":
        expected = naive.ctc_frame_kd(*logits, **options, valid_ratio=ratio)
    else:
        options = {**options, "alpha": 0.7, "beta": 2.0}
        expected = naive.masked_frame_dkd(*logits, **options, valid_ratio=ratio)
    value = pair_loss(name, "ctc", **options)(predictions(values), batch(valid_ratio=ratio))["loss"]
    assert float(value) == pytest.approx(expected, rel=CLOSE)


def test_frame_kd_of_one_frame_and_without_valid_ratio():
    values = outputs(frames=1, teacher_frames=4)
    expected = naive.ctc_frame_kd(values["Student"]["ctc"], values["Teacher"]["ctc"])
    value = pair_loss("CTCFrameKDLoss", "ctc")(predictions(values), batch())["loss"]
    assert float(value) == pytest.approx(expected, rel=CLOSE)


def test_frame_kd_counts_the_padding_on_request():
    values = outputs()
    values["Teacher"]["ctc"][..., 0] += 5.0
    expected = naive.ctc_frame_kd(values["Student"]["ctc"], values["Teacher"]["ctc"])
    loss = pair_loss("CTCFrameKDLoss", "ctc", skip_padding=False)
    value = loss(predictions(values), batch(valid_ratio=[0.2, 0.2, 0.2]))["loss"]
    assert float(value) == pytest.approx(expected, rel=CLOSE)


def test_frame_kd_takes_only_a_ratio_for_a_ratio():
    """A length where a single head's batch may have its valid_ratio is left alone."""
    values = outputs()
    values["Teacher"]["ctc"][..., 0] += 5.0
    single = {model: {"head_out": tensor(heads["ctc"])} for model, heads in values.items()}
    expected = naive.ctc_frame_kd(values["Student"]["ctc"], values["Teacher"]["ctc"])
    given = batch([0, 0, 1])
    value = pair_loss("CTCFrameKDLoss", "ctc", multi_head=False)(single, given)["loss"]
    assert float(value) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize("name", ["MaskedDKDLoss", "CTCFrameKDLoss"])
def test_frame_losses_of_blanks_only_are_zero(name):
    values = outputs()
    values["Teacher"]["ctc"][..., 0] += 50.0
    predicts = predictions(values)
    value = pair_loss(name, "ctc", blank_weight=0.0)(predicts, batch())["loss"]
    value.backward()
    assert float(value) == 0.0
    assert not predicts["Student"]["head_out"]["ctc"].grad.numpy().any()


@pytest.mark.parametrize("name", ["MaskedDKDLoss", "CTCFrameKDLoss"])
def test_frame_losses_vanish_where_the_student_equals_the_teacher(name):
    values = outputs()
    values["Student"]["ctc"] = values["Teacher"]["ctc"].copy()
    predicts = predictions(values)
    value = pair_loss(name, "ctc", temperature=2.0)(predicts, batch())["loss"]
    value.backward()
    assert float(value) == pytest.approx(0.0, abs=1e-5)
    assert np.abs(predicts["Student"]["head_out"]["ctc"].grad.numpy()).max() < 1e-6


@pytest.mark.parametrize("name", ["MaskedDKDLoss", "CTCFrameKDLoss"])
def test_corrected_losses_teach_the_student_alone(name):
    predicts = predictions(outputs(), trained=("Student", "Teacher"))
    pair_loss(name, "ctc")(predicts, batch())["loss"].backward()
    assert np.abs(predicts["Student"]["head_out"]["ctc"].grad.numpy()).max() > 0
    assert predicts["Teacher"]["head_out"]["ctc"].grad is None


def test_gradients_of_the_corrected_losses():
    """Central differences in float64 along random directions."""
    for name, head in [("MaskedDKDLoss", "gtc"), ("MaskedDKDLoss", "ctc"), ("CTCFrameKDLoss", "ctc")]:
        values = {m: {h: v.astype("float64") for h, v in heads.items()} for m, heads in outputs().items()}
        loss = pair_loss(name, head, temperature=2.0)
        predicts = predictions(values)
        loss(predicts, batch())["loss"].backward()
        gradient = predicts["Student"]["head_out"][head].grad.numpy()
        direction = draw(f"direction {head}", gradient.shape).astype("float64")
        ends = []
        for sign in (1, -1):
            moved = {"Student": {**values["Student"]}, "Teacher": values["Teacher"]}
            moved["Student"][head] = values["Student"][head] + sign * 1e-4 * direction
            ends.append(float(loss(predictions(moved), batch())["loss"]))
        slope = (ends[0] - ends[1]) / 2e-4
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-4), (name, head)
