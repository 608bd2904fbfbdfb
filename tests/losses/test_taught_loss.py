"""Labels teach some samples, and a teacher the others: no sample has a part in both."""

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from loss_inputs import CLASSES, DECODER_CLASSES, draw, labels, tensor

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError
from ppocr_ext.losses import LossContext, TaughtLoss, build_loss

LABELLED, LINES, FRAMES = 2, 5, 6
LOSS = {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"NRTRLoss": None}]}


def parts(lines=LINES, labelled=LABELLED):
    """Logits of the network that get a gradient, the batch, and the teacher's logits by image."""
    ctc, gtc = labels([2] * lines, 3)
    predicts = {
        "ctc": tensor(draw("ctc", [LINES, FRAMES, CLASSES])[:lines], trained=True),
        "gtc": tensor(draw("gtc", [LINES, 4, DECODER_CLASSES])[:lines], trained=True),
    }
    images = np.arange(lines, dtype="float32").reshape(-1, 1, 1, 1)
    flags = (np.arange(lines) < labelled).astype("int64")
    return predicts, [tensor(each) for each in (images, ctc, gtc, np.full(lines, 2), np.ones(lines), flags)]


def taught(teacher):
    return TaughtLoss(build_loss(LOSS), lambda images: tensor(teacher[images.numpy().astype(int).ravel()]))


def softmax(logits):
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


def test_the_parts_are_those_of_a_plain_computation():
    teacher = 3 * draw("teacher", [LINES, FRAMES, CLASSES])
    predicts, batch = parts()
    values = taught(teacher)(predicts, batch)
    alone, few = parts(LABELLED)
    labelled = build_loss(LOSS)(alone, few[:-1])
    q = softmax(teacher[LABELLED:].astype(np.float64))
    p = softmax(predicts["ctc"].numpy()[LABELLED:].astype(np.float64))
    weights = np.where(q.argmax(-1) != 0, 1.0, 0.1)
    assert 0 < (weights == 1).sum() < weights.size
    kept = ((q * np.log(q / p)).sum(-1) * weights).sum() / (LINES - LABELLED)
    np.testing.assert_allclose(float(values["kept"]), kept, rtol=1e-5)
    for name in ("CTCLoss", "NRTRLoss"):
        assert float(values[name]) == float(labelled[name])
    np.testing.assert_allclose(float(values["loss"]), kept + float(labelled["loss"]), rtol=1e-5)


def test_a_sample_has_a_gradient_of_its_own_part_alone():
    predicts, batch = parts()
    teacher = draw("teacher", [LINES, FRAMES, CLASSES])
    values = taught(teacher)(predicts, batch)
    (values["CTCLoss"] + values["NRTRLoss"]).backward()
    assert all(not predicts[head].grad[LABELLED:].any() for head in predicts)
    assert all(predicts[head].grad[:LABELLED].any() for head in predicts)

    predicts, batch = parts()
    taught(teacher)(predicts, batch)["kept"].backward()
    assert not predicts["ctc"].grad[:LABELLED].any() and predicts["ctc"].grad[LABELLED:].any()
    assert predicts["gtc"].grad is None or not predicts["gtc"].grad.any()


def test_a_batch_without_such_samples_has_the_loss_of_its_labels():
    predicts, batch = parts(labelled=LINES)
    values = taught(draw("teacher", [LINES, FRAMES, CLASSES]))(predicts, batch)
    assert float(values["kept"]) == 0
    assert float(values["loss"]) == float(build_loss(LOSS)(predicts, batch[:-1])["loss"])


def test_a_resumed_loss_has_the_state_of_its_labels():
    context = LossContext(Charset(tuple("abcde")), {None: 2})
    center = {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"CenterLoss": {"update": "ema"}}]}
    labels = build_loss(center, context)
    state = TaughtLoss(labels, lambda images: images).state_dict()
    assert state.keys() == labels.state_dict().keys() and state


def test_the_features_of_a_head_go_with_their_samples():
    predicts, batch = parts()
    of_pair = {**predicts, "ctc": (paddle.zeros([LINES, FRAMES, 2]), predicts["ctc"])}
    loss = taught(draw("teacher", [LINES, FRAMES, CLASSES]))
    assert float(loss(of_pair, batch)["loss"]) == float(loss(predicts, batch)["loss"])


HEAD = {"key": "head_out", "multi_head": True}
PAIR = {"weight": 1.0, "model_name_pairs": [["Student", "Teacher"]], **HEAD}
OF_LABELS = [
    {"DistillationCTCLoss": {"weight": 1.0, "model_name_list": ["Student"], **HEAD}},
    {"DistillationNRTRLoss": {"weight": 0.5, "model_name_list": ["Student"], **HEAD}},
    {"DistillationDMLLoss": {**PAIR, "dis_head": "gtc"}},
]


def distilled(losses):
    return build_loss({"name": "CombinedLoss", "loss_config_list": losses})


@pytest.mark.parametrize("labelled", [LABELLED, LINES])
def test_in_a_distillation_the_teacher_alone_teaches_samples_without_label(labelled):
    def outputs(rows):
        student, batch = parts(rows, labelled)
        teacher = {
            "ctc": tensor(3 * draw("teacher", [LINES, FRAMES, CLASSES])[:rows]),
            "gtc": tensor(draw("guide", [LINES, 4, DECODER_CLASSES])[:rows]),
        }
        return student, {"Student": {"head_out": student}, "Teacher": {"head_out": teacher}}, batch

    frames = {"CTCFrameKDLoss": PAIR}
    student, predicts, batch = outputs(LINES)
    values = TaughtLoss(distilled([*OF_LABELS, frames]), None)(predicts, batch)
    _, few, few_batch = outputs(labelled)
    of_labels = distilled(OF_LABELS)(few, few_batch[:-1])
    of_frames = distilled([frames])(predicts, batch[:-1])
    assert float(values["ctc_frame_kd_0"]) == float(of_frames["ctc_frame_kd_0"])
    total = float(of_labels["loss"]) + float(of_frames["loss"])
    np.testing.assert_allclose(float(values["loss"]), total, rtol=1e-6)
    values["loss"].backward()
    assert not student["gtc"].grad[labelled:].any() and student["ctc"].grad.any(axis=[1, 2]).all()


def test_a_distillation_whose_losses_all_read_labels_has_no_place_for_samples_without_label():
    for loss in (distilled(OF_LABELS), build_loss(LOSS)):
        with raises_code(ConfigError, "conflicting_keys", "CTCFrameKDLoss"):
            TaughtLoss(loss, None)
