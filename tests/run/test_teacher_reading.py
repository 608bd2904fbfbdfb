"""A frozen teacher that reads no better than chance is refused before the first step; one that reads is not touched."""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from tiny_runs import MULTI_SCALE

import ppocr_ext.run.model_setup as model_setup
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.errors import WeightsError
from ppocr_ext.loop.session import train
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.modeling.heads.nrtr_head import END_ID, START_ID
from ppocr_ext.run.context import RunContext, RunOptions, open_context
from ppocr_ext.run.model_setup import LINES, likeness, require_reading
from ppocr_ext.run.networks import build_network
from ppocr_ext.run.one_batch import one_batch
from ppocr_ext.run.run import Run

ALLOW = "Global.allow_untrained_teacher"
TEACHER = "Architecture.Models.Teacher.pretrained"
DIGITS = "0123456789"
Reader = Callable[[str], str]


def shifted(text: str) -> str:
    """As a dictionary in another order gives it."""
    return text.translate(str.maketrans(DIGITS, DIGITS[1:] + DIGITS[0]))


def noise(text: str) -> str:
    return "".join(random.choice(DIGITS) for _ in text)


def weak(text: str) -> str:
    return "".join(c if random.random() < 0.3 else random.choice(DIGITS) for c in text)


def seldom(text: str) -> str:
    return text if random.random() < 0.2 else ""


def texts_of(count: int, seed: int, longest: int) -> list[str]:
    random.seed(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(random.choice(DIGITS) for _ in range(random.randint(3, longest)))] = None
    return list(found)


@pytest.mark.parametrize("longest", [6, 20])
@pytest.mark.parametrize(
    ("reader", "least", "most"),
    [
        (str, 1.0, 1.0),
        (weak, 1.0, 1.0),
        (seldom, 0.97, 1.0),
        (noise, 0.0, 0.15),
        (shifted, 0.0, 0.0),
        (lambda text: "", 0.0, 0.0),
        (lambda text: "7", 0.0, 0.15),
        (lambda text: "1" * len(text), 0.0, 0.15),
    ],
)
def test_who_reads_is_told_from_who_does_not(reader, least, most, longest):
    """Also with labels of many lengths: the right length alone is no reading."""
    passed = 0
    for seed in range(40):
        labels = texts_of(LINES, seed, longest)
        own, chance = likeness([reader(label) for label in labels], labels)
        passed += own > chance
    assert least <= passed / 40 <= most


@pytest.mark.parametrize("count", [8, 16])
def test_few_samples_do_not_refuse_a_weak_reader(count):
    passed = 0
    for seed in range(40):
        labels = texts_of(count, seed, 6)
        own, chance = likeness([weak(label) for label in labels], labels)
        passed += own > chance
    assert passed >= 39


class KnownImages(paddle.nn.Layer):
    """A teacher that knows the text of each image, and reads it in its own way."""

    def __init__(self, texts: dict[bytes, str], charset: Charset, reader: Reader, branch: str) -> None:
        super().__init__()
        self.head = SimpleNamespace(branches=frozenset({branch}))
        self.texts, self.charset, self.reader = texts, charset, reader
        self.calls = 0

    def forward(self, images: Any, labels: Any, request: Any) -> Any:
        self.calls += 1
        texts = [self.reader(self.texts[image.tobytes()]) for image in images.numpy()]
        if request.branches == {"gtc"}:
            ids = np.full([len(texts), 12], END_ID)
            for row, text in zip(ids, texts, strict=True):
                row[: len(text) + 1] = [START_ID, *(self.charset.nrtr_symbols.index(c) for c in text)]
            return {"head_out": [paddle.to_tensor(ids), paddle.ones(ids.shape)]}
        frames = np.zeros([len(texts), 20, self.charset.ctc_classes], "float32")
        for row, text in zip(frames, texts, strict=True):
            row[:, self.charset.blank_id] = 0.5
            for place, character in enumerate(text):
                row[2 * place, self.charset.ctc_symbols.index(character)] = 1.0
        return {"head_out": paddle.to_tensor(frames)}


@pytest.fixture
def context(tiny):
    values = {ALLOW: False, TEACHER: "weights"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ppocr_ext.check.files._check_weights", lambda *_: None)
        return open_context(tiny("distill", **values), RunOptions("train"))


BATCHES: list[Any] = []  # of models_of


def models_of(context: RunContext, reader: Reader, branch: str) -> Any:
    """The tiny networks, with a teacher that knows the samples."""
    network = build_network(context.components, context.charset)
    wide = context.components.with_values({"Train.loader.batch_size_per_card": LINES})
    batch = one_batch(replace(context, components=wide), network, LINES)
    BATCHES.append(batch)
    texts = {
        image.tobytes(): str(text) for image, text in zip(batch.entries[0].numpy(), batch.texts, strict=True)
    }
    network.models["Teacher"] = KnownImages(texts, context.charset, reader, branch)
    return network


@pytest.mark.parametrize("branch", ["ctc", "gtc"])
def test_a_reading_teacher_passes_and_one_of_another_dictionary_does_not(context, branch):
    require_reading(context, models_of(context, str, branch), ["Teacher"])
    with raises_code(WeightsError, "teacher_cannot_read", "Teacher", "24 samples", branch, ALLOW):
        require_reading(context, models_of(context, shifted, branch), ["Teacher"])


def test_a_teacher_that_makes_an_error_in_almost_each_line_is_warned_of(context, caplog):
    require_reading(context, models_of(context, lambda text: text[:-1] + "0", "ctc"), ["Teacher"])
    assert "samples of Train right, and would teach its errors too" in caplog.text
    caplog.clear()
    require_reading(context, models_of(context, str, "ctc"), ["Teacher"])
    assert "right" not in caplog.text


@pytest.mark.parametrize(("reader", "warns"), [(shifted, True), (str, False), (lambda text: "7", False)])
def test_weights_to_fine_tune_of_another_dictionary_are_warned_of(context, reader, warns, caplog):
    single = models_of(context, reader, "ctc").models["Teacher"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(model_setup, "one_batch", lambda *_: BATCHES[-1])
        require_reading(context, single, [None])
    assert ("probably another dictionary" in caplog.text) == warns and single.training


def test_who_is_not_judged(context, captchas, tmp_path):
    def calls(context: RunContext, branch: str = "ctc", names: tuple[str, ...] = ("Teacher",)) -> int:
        network = models_of(context, shifted, branch)
        require_reading(context, network, names)
        return int(network.models["Teacher"].calls)

    allowed = context.components.with_values({ALLOW: True})
    assert calls(replace(context, components=allowed)) == 0
    resumed: Any = SimpleNamespace(prefix="run/latest")
    assert calls(replace(context, checkpoint=resumed)) == 0
    second: Any = SimpleNamespace(rank=1, size=2)
    assert calls(replace(context, team=second)) == 0
    assert calls(context, "sar") == 0
    assert calls(context, names=()) == 0
    # few different labels
    lines = (captchas / "train_list.txt").read_text().splitlines()
    (tmp_path / "same.txt").write_text("".join(f"{line.split(chr(9))[0]}\t123\n" for line in lines))
    same = {"Train.dataset.label_file_list": [str(tmp_path / "same.txt")]}
    assert calls(replace(context, components=context.components.with_values(same))) == 0


@pytest.fixture
def weights(tiny, tmp_path):
    """A file of random weights for the teacher."""
    network = Run.build(tiny("student", **{"Global.dry_step": False}), "train").network
    paddle.save(network.state_dict(), str(tmp_path / "random.pdparams"))
    return str(tmp_path / "random")


SETTINGS: list[dict[str, Any]] = [
    {},
    {
        "Train.dataset.name": "MultiScaleDataSet",
        "Train.sampler": {**MULTI_SCALE, "scales": [[128, 32], [96, 32]], "first_bs": 8},
        "Global.allow_different_preprocessing": True,
    },
]


@pytest.mark.e2e
@pytest.mark.parametrize("values", SETTINGS, ids=["files", "scales"])
def test_a_training_is_the_same_with_and_without_the_reading(values, tiny, tmp_path, weights, monkeypatch):
    transforms = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    transforms.insert(1, {"RecAug": None})
    if "Train.sampler" in values:
        transforms = [each for each in transforms if "RecResizeImg" not in each]
    judged: list[tuple[list[str], list[str]]] = []

    def passes(texts: list[str], labels: list[str]) -> tuple[float, float]:
        judged.append((texts, labels))
        return 1.0, 0.0

    monkeypatch.setattr(model_setup, "likeness", passes)
    states = []
    for name, allowed in (("without", True), ("with", False)):
        own = {
            TEACHER: weights,
            ALLOW: allowed,
            **values,
            "Train.dataset.transforms": transforms,
            "Global.save_model_dir": str(tmp_path / name),
            "Global.epoch_num": 1,
            "Global.save_teacher": True,
        }
        train(tiny("distill", **own))
        states.append(read_state(tmp_path / name / "latest.pdparams"))
        assert len(judged) == (0 if allowed else 2)  # CTC and NRTR
    for texts, labels in judged:
        assert len(texts) == len(labels) == len(set(labels)) >= 20
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(value, states[1][name]) for name, value in states[0].items())


def test_a_run_refuses_random_weights_and_leaves_them(tiny, weights):
    values = {TEACHER: weights, "Global.dry_step": False}
    with raises_code(WeightsError, "teacher_cannot_read", "Teacher", ALLOW):
        Run.build(tiny("distill", **values, **{ALLOW: False}), "train")
    run = Run.build(tiny("distill", **values), "train")
    assert state_digest(run.network.Teacher) == run.training.frozen_digests["Teacher"]


def test_arabic_texts_are_compared_as_they_are_written(tiny, captchas, tmp_path, monkeypatch):
    """PaddleOCR's decoder would turn the texts of such a dictionary around."""
    (tmp_path / "arabic.txt").write_text("\n".join("ابتثجحخدذر") + "\n", encoding="utf-8")
    letters = str.maketrans(DIGITS, "ابتثجحخدذر")
    lines = (captchas / "train_list.txt").read_text().translate(letters)
    names = [line.split("\t")[0] for line in (captchas / "train_list.txt").read_text().splitlines()]
    own = [f"{name}\t{line.split(chr(9))[1]}" for name, line in zip(names, lines.splitlines(), strict=True)]
    (tmp_path / "train.txt").write_text("\n".join(own) + "\n", encoding="utf-8")
    monkeypatch.setattr("ppocr_ext.check.files._check_weights", lambda *_: None)
    values = {
        ALLOW: False,
        TEACHER: "weights",
        "Global.character_dict_path": str(tmp_path / "arabic.txt"),
        "Train.dataset.label_file_list": [str(tmp_path / "train.txt")],
    }
    context = open_context(tiny("distill", **values), RunOptions("train"))
    found = []
    monkeypatch.setattr(model_setup, "likeness", lambda *pair: found.append(likeness(*pair)) or found[-1])
    for branch in ("ctc", "gtc"):
        require_reading(context, models_of(context, str, branch), ["Teacher"])
    assert [own for own, _ in found] == [1.0, 1.0]
