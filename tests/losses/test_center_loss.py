"""Center loss against PaddleOCR's numbers, against the dense formula, and where frames or centers are missing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
from center_files import centers_file
from error_codes import raises_code
from parity import array, load_case

from ppocr_ext.characters.center_table import CenterTable, read_centers
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, DataError, ModelError
from ppocr_ext.losses import CenterLoss, DistillationCenterLoss, LossContext, build_loss

CASE = load_case("losses_single")
SEED = CASE.info["seed"]
CLASSES, DIM = 37, 16


@pytest.fixture
def file(tmp_path):
    return centers_file(tmp_path / "centers.npz", array("centers", [CLASSES, DIM], SEED))


def reference_inputs() -> tuple[paddle.Tensor, paddle.Tensor]:
    features = paddle.to_tensor(array("features", [4, 40, DIM], SEED), stop_gradient=False)
    return features, paddle.to_tensor(array("student_ctc", [4, 40, CLASSES], SEED, 2.0))


def random_inputs(seed: int = 0, frames: int = 12, classes: int = 6) -> tuple[paddle.Tensor, paddle.Tensor]:
    rng = np.random.default_rng(seed)
    features = paddle.to_tensor(rng.normal(size=[3, frames, 5]).astype("float32"), stop_gradient=False)
    return features, paddle.to_tensor(rng.normal(size=[3, frames, classes]).astype("float32"))


def labels_of(*texts: list[int]) -> list[paddle.Tensor]:
    width = max(map(len, texts))
    label = [text + [0] * (width - len(text)) for text in texts]
    return [
        paddle.zeros([len(texts), 3, 8, 8]),
        paddle.to_tensor(label, dtype="int64").reshape([len(texts), width]),
        paddle.to_tensor([len(text) for text in texts], dtype="int64"),
    ]


def test_value_and_gradient_are_paddleocr_s(file):
    features, logits = reference_inputs()
    values = CenterLoss(num_classes=CLASSES, feat_dim=DIM, center_file_path=file)((features, logits), [])
    values["loss_center"].backward()

    assert float(values["loss_center"]) == pytest.approx(CASE.info["center_loss"], rel=1e-5)
    np.testing.assert_allclose(features.grad.numpy(), CASE.arrays["center_grad"], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("ids", "blank", "counted"),
    [([1, 3], True, [1, 3]), ([0, 1, 2, 3, 4, 5], False, [1, 2, 3, 4, 5])],
    ids=["a class without center", "the blank"],
)
def test_frames_that_are_left_out(tmp_path, ids, blank, counted):
    features, logits = random_inputs()
    file = centers_file(tmp_path / "c.npz", np.zeros([len(ids), 5]), ids=ids)
    value = CenterLoss(6, 5, file, blank=blank)((features, logits), [])["loss"]
    rows = features.numpy().reshape(-1, 5)[np.isin(logits.numpy().argmax(-1).ravel(), counted)]
    assert float(value) == pytest.approx(float((rows**2).sum(1).mean()), rel=1e-5)


def test_no_frame_that_counts_gives_zero_with_a_gradient(tmp_path):
    features, logits = random_inputs()
    file = centers_file(tmp_path / "c.npz", np.zeros([1, 5]), ids=[5])
    never = paddle.concat([logits[:, :, :5], paddle.full([3, 12, 1], -100.0)], axis=2)
    value = CenterLoss(6, 5, file)((features, never), [])["loss"]
    value.backward()
    assert float(value) == 0.0
    assert not features.grad.numpy().any()


def test_aligned_frames_are_pulled_to_the_label_and_not_to_the_prediction(tmp_path):
    features = paddle.to_tensor(np.ones([1, 3, 5], np.float32), stop_gradient=False)
    logits = np.zeros([1, 3, 6], np.float32)
    logits[0, :, 4] = 5.0  # the network reads 4 everywhere
    logits[0, 1, 2] = 4.0  # the label is 2, most probable in the middle
    centers = np.zeros([6, 5])
    centers[4] = 100.0
    file = centers_file(tmp_path / "c.npz", centers)
    loss = CenterLoss(6, 5, file, frames="aligned", blank=False)
    assert float(loss((features, paddle.to_tensor(logits)), labels_of([2]))["loss"]) == pytest.approx(5.0)


def test_aligned_leaves_a_label_out_that_does_not_fit(tmp_path):
    features, logits = random_inputs(frames=3)
    file = centers_file(tmp_path / "c.npz", np.zeros([6, 5]))
    loss = CenterLoss(6, 5, file, frames="aligned")
    value = loss((features, logits), labels_of([1, 1, 1], [2], [3]))["loss"]
    assert float(value) == pytest.approx(float((features.numpy()[1:] ** 2).sum(-1).mean()), rel=1e-5)


def test_ema_starts_at_the_mean_and_then_moves():
    logits = np.full([1, 2, 3], -9.0, np.float32)
    logits[0, :, 1] = 9.0
    loss = CenterLoss(3, 2, update="ema", momentum=0.75)
    first = paddle.to_tensor(np.array([[[1.0, 1.0], [3.0, 3.0]]], np.float32))
    assert float(loss((first, paddle.to_tensor(logits)), [])["loss"]) == pytest.approx(
        2.0
    )  # to the mean, (2, 2)
    second = paddle.to_tensor(np.array([[[6.0, 6.0], [6.0, 6.0]]], np.float32))
    assert float(loss((second, paddle.to_tensor(logits)), [])["loss"]) == pytest.approx(32.0)
    np.testing.assert_allclose(loss.bank.centers.numpy()[1], [3.0, 3.0])
    assert loss.bank.known.numpy().tolist() == [False, True, False]


def test_ema_ignores_rows_that_are_not_finite():
    logits = np.zeros([1, 2, 3], np.float32)
    logits[0, :, 1] = 9.0
    features = np.array([[[np.inf, 0.0], [2.0, 2.0]]], np.float32)
    loss = CenterLoss(3, 2, update="ema")
    loss((paddle.to_tensor(features), paddle.to_tensor(logits)), [])
    np.testing.assert_allclose(loss.bank.centers.numpy()[1], [2.0, 2.0])


def test_state_is_saved_and_comes_back():
    features, logits = random_inputs()
    loss = CenterLoss(6, 5, update="ema", warmup_steps=10)
    loss((features, logits), [])
    state = {name: value.numpy() for name, value in loss.state_dict().items()}
    other = CenterLoss(6, 5, update="ema", warmup_steps=10)
    other.set_state_dict(state)
    again = random_inputs(seed=3)
    assert float(loss(again, [])["loss"]) == float(other(again, [])["loss"]) > 0.0


def test_warmup_grows_linearly(tmp_path):
    features, logits = random_inputs()
    file = centers_file(tmp_path / "c.npz", np.zeros([6, 5]))
    full = float(CenterLoss(6, 5, file)((features, logits), [])["loss"])
    loss = CenterLoss(6, 5, file, warmup_steps=4)
    values = [float(loss((features, logits), [])["loss"]) / full for _ in range(6)]
    assert values == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 1.0])


def relative_file(path: Path, scale: float) -> Path:
    centers = scale * np.array([[50.0, 0.0], [0.0, 0.0], [2.0, 0.0]], np.float32)
    variance = scale**2 * np.array([100.0, 1.0, 4.0])  # means: 2 of the characters, 41.2 with the blank
    CenterTable(np.arange(3), ("", "a", "b"), centers, np.array([4, 4, 2]), variance, {}).save(path)
    return path


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_relative_to_the_variance_the_size_of_features_does_not_count(tmp_path, scale):
    file = relative_file(tmp_path / "c.npz", scale)
    features = paddle.to_tensor(scale * np.array([[[0.5, 0.0]]], np.float32))
    logits = paddle.to_tensor(np.array([[[0.0, 9.0, 0.0]]], np.float32))

    def value(**options):
        return float(CenterLoss(3, 2, str(file), relative=True, **options)((features, logits), [])["loss"])

    assert value(blank=False) == pytest.approx(0.25 / 2)
    assert value() == pytest.approx(0.25 / 41.2)


def test_relative_needs_frames_that_differ(tmp_path):
    table = read_centers(relative_file(tmp_path / "c.npz", 1.0))
    replace(table, variance=np.zeros(3)).save(tmp_path / "still.npz")
    with raises_code(ConfigError, "missing_centers"):
        CenterLoss(3, 2, str(tmp_path / "still.npz"), relative=True)
    with raises_code(ConfigError, "missing_centers"):
        CenterLoss(4, 2, update="ema", relative=True)


def test_a_multihead_s_outputs_and_the_distillation_form(tmp_path):
    features, logits = random_inputs()
    file = centers_file(tmp_path / "c.npz", np.zeros([6, 5]))
    options = {"num_classes": 6, "feat_dim": 5, "center_file_path": file}
    alone = float(CenterLoss(**options)((features, logits), [])["loss"])
    head = {"ctc": (features, logits), "gtc": logits}
    assert float(CenterLoss(**options)(head, [])["loss"]) == pytest.approx(alone)
    entry = {"weight": 0.5, "model_name_list": ["Student"], "key": "head_out", "multi_head": True, **options}
    distillation = build_loss(
        {"name": "CombinedLoss", "loss_config_list": [{"DistillationCenterLoss": entry}]}
    )
    rest = [paddle.zeros([3, 4], "int64"), paddle.ones([3], "int64"), paddle.ones([3])]
    batch = [*labels_of([1], [2], [3])[:2], *rest]
    values = distillation({"Student": {"head_out": head}}, batch)
    assert float(values["loss"]) == pytest.approx(alone / 2)
    assert distillation.required_outputs() == {("Student", "ctc"), ("Student", "features")}


def test_centers_of_another_dictionary_are_refused(tmp_path):
    charset = Charset(tuple("abc"))
    file = centers_file(
        tmp_path / "c.npz", np.zeros([4, 5]), charset_digest="0123", charset="other.txt", classes=9
    )
    with raises_code(DataError, "charset_mismatch", "other.txt", 9):
        CenterLoss(center_file_path=file, context=LossContext(charset, {None: 5}))


@pytest.mark.parametrize(
    ("options", "kind", "code"),
    [
        ({"update": "ema", "momentum": 2.0}, ConfigError, "bad_value"),
        ({"update": "ema"}, ConfigError, "missing_context"),
        ({"update": "ema", "num_classes": 6}, ConfigError, "missing_context"),
        ({"update": "ema", "feat_dim": 5}, ConfigError, "missing_context"),
        (
            {"update": "ema", "feat_dim": 96, "context": LossContext(Charset(tuple("abc")), {None: 5})},
            ConfigError,
            "bad_value",
        ),
        ({"num_classes": CLASSES, "feat_dim": 5, "center_file_path": "FILE"}, DataError, "centers_mismatch"),
    ],
)
def test_what_cannot_be_built_is_refused(file, options, kind, code):
    if "center_file_path" in options:
        options = {**options, "center_file_path": file}
    with raises_code(kind, code):
        CenterLoss(**options)


def test_frozen_centers_without_a_file_are_drawn_as_in_paddleocr():
    one, two = (CenterLoss(CLASSES, DIM).bank for _ in range(2))
    assert bool(one.known.all()) and bool((one.centers == two.centers).all())
    assert float(one.centers.std()) == pytest.approx(1.0, abs=0.3)


def test_a_head_that_does_not_fit_the_centers_is_refused(file):
    loss = CenterLoss(CLASSES, DIM, file)
    with raises_code(ModelError, "shape_mismatch"):
        loss(random_inputs(), [])
    with raises_code(ConfigError, "missing_output"):
        loss(paddle.zeros([2, 3, CLASSES]), [])


CHARSET = Charset(tuple("abc"))
TWO = ["One", "Two"]
EQUAL = LossContext(CHARSET, {"One": 5, "Two": 5})


def file_of(path: Path, dim: int, value: float = 0.0, **meta: object) -> str:
    return centers_file(path, np.full([4, dim], value), characters=CHARSET.ctc_symbols, **meta)


def test_each_has_its_own_file_and_size(tmp_path):
    files = {
        "One": file_of(tmp_path / "one.npz", 5, 1.0, model="One"),
        "Two": file_of(tmp_path / "two.npz", 7, 2.0, model="Two"),
    }
    loss = DistillationCenterLoss(
        TWO, center_file_path=files, context=LossContext(CHARSET, {"One": 5, "Two": 7})
    )
    state = {name: value.numpy() for name, value in loss.state_dict().items()}
    assert state["One.bank.centers"].tolist() == np.full([4, 5], 1.0).tolist()
    assert state["Two.bank.centers"].tolist() == np.full([4, 7], 2.0).tolist()


def test_centers_of_another_sub_model_are_warned_of(tmp_path, caplog):
    file = file_of(tmp_path / "one.npz", 5, model="One")
    with caplog.at_level("WARNING", logger="ppocr_ext"):
        DistillationCenterLoss(TWO, center_file_path=file, context=EQUAL)
        own = file_of(tmp_path / "c.npz", 5, model=None)  # does not say whose they are
        DistillationCenterLoss(TWO, center_file_path=own, context=EQUAL)
    [record] = caplog.records
    assert record.args[:3] == (file, "One", "Two")


@pytest.mark.parametrize("left", [{}, {"Two": None}])
def test_a_sub_model_without_a_file(tmp_path, left):
    files = {"One": file_of(tmp_path / "c.npz", 5), **left}
    with raises_code(ConfigError, "missing_centers", "--model Two"):
        DistillationCenterLoss(TWO, center_file_path=files, context=EQUAL)
    loss = DistillationCenterLoss(TWO, center_file_path=files, update="ema", context=EQUAL)
    state = loss.state_dict()
    assert state["One.bank.known"].numpy().all() and not state["Two.bank.known"].numpy().any()


def test_files_of_other_sub_models_are_refused(tmp_path):
    files = {name: file_of(tmp_path / "c.npz", 5) for name in (*TWO, "Tow")}
    with raises_code(ConfigError, "unknown_sub_model", "Tow"):
        DistillationCenterLoss(TWO, center_file_path=files, context=EQUAL)
    with raises_code(ConfigError, "bad_value"):  # files by sub-model are not for one model
        CenterLoss(center_file_path=files)
    with raises_code(ModelError, "no_ctc_head", "Two"):
        DistillationCenterLoss(TWO, update="ema", context=LossContext(CHARSET, {"One": 5}))


@pytest.mark.parametrize(
    ("value", "code"), [(1, "bad_value"), ("false", "quoted_value"), (None, "bad_value")]
)
def test_blank_must_be_a_truth_value(value, code):
    with raises_code(ConfigError, code, "blank"):
        CenterLoss(update="ema", blank=value)
