"""A frozen teacher that is an inference model as it is: what it returns, who it teaches, and what it cannot do."""

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near
from released import describe, paddle_release, save_layer
from saved_runs import network_of
from tiny_runs import metrics, tiny_config

from ppocr_ext.charset import Charset
from ppocr_ext.config import load
from ppocr_ext.data.batches import images_of
from ppocr_ext.errors import DataError, PPOCRExtError, WeightsError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.inference.graph import write_reader
from ppocr_ext.inference.released import find_released
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.incidents import replay
from ppocr_ext.loop.session import train
from ppocr_ext.modeling import EVAL, TRAIN
from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.inference_models import Teacher, _columns
from ppocr_ext.run.networks import build_network
from ppocr_ext.run.run import Run

KNOWN = "9z8y7x6543210"  # characters of the teacher, in another order than those of the run
PART = "Architecture.Models.Teacher"
FRAMES = {"weight": 1.0, "model_name_pairs": [["Student", "Teacher"]], "key": "head_out", "multi_head": True}
LABELS = {"weight": 1.0, "model_name_list": ["Student"], "key": "head_out", "multi_head": True}


def losses(**of_pairs):
    """The losses of a config: labels for the student, and others between both."""
    listed = [{"DistillationCTCLoss": LABELS}, {"DistillationNRTRLoss": {**LABELS, "smoothing": False}}]
    return {"Loss.loss_config_list": [*listed, *({name: FRAMES | own} for name, own in of_pairs.items())]}


def release(captchas, folder, seed=0, known=KNOWN, **described):
    """A released model with random weights; return its folder."""
    folder.mkdir(parents=True)
    (folder / "known.txt").write_text("\n".join(known) + "\n")
    student = tiny_config(
        captchas, folder, "student", **{"Global.character_dict_path": str(folder / "known.txt")}
    )
    network, _ = network_of(student, seed)
    network.eval()
    write_reader(network, folder, (3, 32, 128))
    path = paddle_release(folder, folder / "released")
    describe(path, known, **described)
    return path


@pytest.fixture(scope="module")
def teacher(captchas, tmp_path_factory):
    return release(captchas, tmp_path_factory.mktemp("teacher") / "model")


def taught(tiny, path, **values):
    """Config of a student whose teacher is the model at ``path``, which is trusted."""
    part = {
        "pretrained": str(path),
        "freeze_params": True,
        "return_all_feats": True,
        "algorithm": "CTC",
        "Head": {"name": "InferenceModel", "sha256": find_released(path).digest},
    }
    own = {PART: part, "Global.allow_untrained_teacher": True}  # it is random, and cannot read
    return tiny("distill", **{**own, **losses(CTCFrameKDLoss={}), **values})


class Fixed:
    """An engine with given probabilities."""

    place = "model"

    def __init__(self, probabilities):
        self.given = probabilities
        self.images = None

    def probabilities(self, images):
        self.images = images
        return self.given


def scores_of(engine, known, charset, images, flips=False):
    """Probabilities of a teacher with the characters ``known`` for the classes of ``charset``, float64."""
    columns = _columns(Charset(tuple(known)), charset, "Teacher", "model")
    scores = Teacher(engine, columns, charset.ctc_classes, flips)(images).numpy().astype("float64")
    assert np.isfinite(scores).all()
    return np.exp(scores)


@pytest.fixture
def engine():
    # many are nearly 0
    given = np.random.default_rng(3).dirichlet(np.full(7, 0.05), (2, 5)).astype("float32")
    given[0, 0] = [0.5, *[0.0] * 5, 0.5]
    return Fixed(given)


@pytest.fixture
def images():
    return paddle.to_tensor(np.random.default_rng(4).normal(size=(2, 3, 4, 8)).astype("float32"))


@pytest.mark.parametrize("flips", [False, True])
@pytest.mark.parametrize(
    ("charset", "columns"),
    [
        (Charset(("c", "a")), [[0], [3], [1]]),
        (Charset((" ", "a", " "), use_space=True), [[0], [], [1], [4]]),  # labels use the second space
        (Charset(("a", "b"), folds_case=True), [[0], [1, 6], [2, 5]]),
        (Charset(("a", "?"), unknown_symbol="?"), [[0], [1], [2, 3, 4, 5, 6]]),
    ],
)
def test_columns_are_those_of_the_student_and_sum_to_one(flips, charset, columns, engine, images):
    """By a naive sum: the teacher knows ``abc BA``."""
    found = scores_of(engine, "abc BA", charset, images, flips)
    wanted = np.stack([engine.given.astype("float64")[..., each].sum(-1) for each in columns], axis=-1)
    np.testing.assert_allclose(found, wanted / wanted.sum(-1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(engine.images, images.numpy()[:, ::-1] if flips else images.numpy())


def test_nan_of_damaged_weights_is_no_nan_of_an_image(engine, images):
    engine.given = engine.given * np.nan
    with raises_code(WeightsError, "not_finite", "model"):
        scores_of(engine, "abc BA", Charset(("a",)), images)
    teacher = Teacher(engine, np.arange(7), 7, False)
    assert np.isnan(teacher(images * np.inf).numpy()).all()  # the check of the step names the sample


def test_it_returns_what_the_model_computes_and_runs_once(tiny, teacher, captchas):
    """Train and evaluation mode, a frame request and a bare one; the network of the model is the reference."""
    config = taught(tiny, teacher)
    run = Run.build(config, "train")
    own = tiny("student", **{"Global.character_dict_path": str(teacher.parent / "known.txt")})
    network, _ = network_of(own)
    network.eval()
    images = images_of(next(iter(run.data.train_loader)))
    expected = network(images, None, EVAL).numpy()[
        ..., [0, *(1 + KNOWN.index(digit) for digit in "0123456789")]
    ]
    expected /= expected.sum(-1, keepdims=True)
    sub_model = run.network.Teacher
    sub_model.train()
    scores = sub_model(images, None, TRAIN)["head_out"]["ctc"]
    assert_near(scores.exp(), expected)
    assert_near(sub_model(images, None, EVAL)["head_out"], expected)
    assert not sub_model.parameters() and scores.stop_gradient
    assert run.network.caller("Teacher") is sub_model


@pytest.mark.e2e
def test_it_teaches_and_is_recorded_and_an_evaluation_does_not_need_it(tiny, teacher, captchas, tmp_path):
    config = taught(tiny, teacher)
    train(config)
    first, *_, last = (line["losses"]["ctc_frame_kd_0"] for line in metrics(tmp_path / "run", "train"))
    assert 0 < last < first
    written = load([tmp_path / "run" / "config.yml"])
    record = written.at("Global.official_weights").thaw()
    assert record[str(teacher)]["sha256"] == find_released(teacher).digest
    names = paddle.load(str(tmp_path / "run" / "latest.pdparams"))
    assert not [name for name in names if name.startswith("Teacher")]
    best = {"Global.checkpoints": str(tmp_path / "run" / "best_accuracy"), f"{PART}.pretrained": "gone"}
    evaluate(Run.build(written.with_values(best), "eval"))
    other = release(captchas, tmp_path / "other", seed=1)
    resumed = taught(
        tiny, other, **{"Global.checkpoints": str(tmp_path / "run" / "latest"), "Global.epoch_num": 3}
    )
    with raises_code(WeightsError, "other_teacher", "Teacher"):
        train(resumed)


class Spoil(Hook):
    """Make a weight of the student NaN after four steps."""

    def on_start(self, run, training):
        self.weight = run.network.Student.head.ctc_head.fc.weight

    def on_step(self, step):
        if step.position.global_step == 4:
            self.weight.set_value(paddle.full(self.weight.shape, float("nan")))


@pytest.mark.e2e
def test_an_incident_is_replayed_with_it_alone(tiny, teacher, captchas, tmp_path):
    train(taught(tiny, teacher), hooks=[Spoil()])
    [folder] = (tmp_path / "run" / "incidents").iterdir()
    assert replay(folder).incident is not None
    other = release(captchas, tmp_path / "other", seed=1)
    options = [f"{PART}.pretrained={other}", f"{PART}.Head.sha256={find_released(other).digest}"]
    with raises_code(DataError, "damaged_file", "another inference model"):
        replay(folder, options=options)


@pytest.mark.e2e
def test_a_cache_answers_for_it(tiny, teacher, captchas, tmp_path):
    config = taught(tiny, teacher)
    options = CacheOptions(tmp_path / "cache")
    build_cache(config, CacheBuilder(config, options), options)
    run = Run.build(config.with_values({"Train.teacher_cache": str(tmp_path / "cache")}), "train")
    images, *labels = next(iter(run.data.train_loader))
    live = run.network.Teacher(images, labels, TRAIN)["head_out"]["ctc"]
    stored = run.network.caller("Teacher")(images, labels, run.network.train_requests["Teacher"])["head_out"][
        "ctc"
    ]
    assert not run.teacher_cache.live_batches
    np.testing.assert_allclose(stored.exp().numpy(), live.exp().numpy(), atol=1e-3)
    other = release(captchas, tmp_path / "other", seed=1)
    with raises_code(DataError, "other_teacher", "Teacher"):
        Run.build(taught(tiny, other, **{"Train.teacher_cache": str(tmp_path / "cache")}), "train")


def unknown(tiny, teacher):
    return {f"{PART}.Head.sha256": None}, "unknown_model"


def another_digest(tiny, teacher):
    return {f"{PART}.Head.sha256": "0" * 64}, "digest_mismatch"


def no_characters(tiny, teacher):
    file = teacher.parent / "more.txt"
    file.write_text("0\n1\nq\n")
    return {"Global.character_dict_path": str(file)}, "teacher_lacks_characters"


def another_height(tiny, teacher):
    steps = tiny("distill").thaw()["Train"]["dataset"]["transforms"]
    resized = [
        {"RecResizeImg": {"image_shape": [3, 48, 128]}} if "RecResizeImg" in step else step for step in steps
    ]
    values = {"Train.dataset.transforms": resized, "Eval.dataset.transforms": resized}
    return values, "bad_image_size"


def logits(tiny, teacher):
    class Raw(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = paddle.nn.Linear(32, len(KNOWN) + 1)

        def forward(self, images):
            return self.fc(images.mean(axis=1).transpose([0, 2, 1]))

    folder = teacher.parent / "logits"
    folder.mkdir(exist_ok=True)
    save_layer(Raw(), [None, 3, 32, None], folder)
    describe(folder, KNOWN)
    values = {f"{PART}.pretrained": str(folder), f"{PART}.Head.sha256": find_released(folder).digest}
    return values, "not_probabilities"


def no_model(tiny, teacher):
    return {f"{PART}.pretrained": None}, "no_inference_model"


@pytest.mark.parametrize("wrong", [unknown, another_digest, no_characters, another_height, logits, no_model])
def test_what_cannot_be_opened(wrong, tiny, teacher):
    values, code = wrong(tiny, teacher)
    with raises_code(PPOCRExtError, code):
        context = open_context(taught(tiny, teacher, **values), RunOptions("train"))
        build_network(context.components, context.charset)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (losses(DistillCTCLogits={"multi_head": None}), "unsupported_teacher"),
        (losses(DistillationDistanceLoss={"multi_head": None}), "unsupported_teacher"),
        (losses(DistillationDMLLoss={"act": "sigmoid", "dis_head": "ctc"}), "unsupported_teacher"),
        ({f"{PART}.freeze_params": False}, "not_a_teacher"),
        ({f"{PART}.Backbone": {"name": "SVTRv2"}}, "not_a_teacher"),
        (losses(DistillationDMLLoss={"dis_head": "gtc"}), "missing_output"),
    ],
)
def test_what_it_cannot_teach(values, code, tiny, teacher):
    pairs = {
        path: [{k: drop(v) for k, v in entry.items()} for entry in listed]
        if isinstance(listed, list)
        else listed
        for path, listed in values.items()
    }
    with pytest.raises(InvalidConfigError) as caught:
        Run.build(taught(tiny, teacher, **pairs), "train")
    assert code in {issue.code for issue in caught.value.issues}


def drop(options):
    return {key: value for key, value in options.items() if value is not None}
