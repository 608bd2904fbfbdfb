"""One batch of a config's own data, and the heads that the config trains with it."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.config import Config
from ppocr_ext.errors import DataError, ModelError
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.registry import DATASETS
from ppocr_ext.sanity.subject import Subject, open_subject, peak_rate

FRAMES = 16  # of 128 columns
ANY_SIZE = "Global.allow_different_preprocessing"


@pytest.fixture
def student(tiny: Any) -> Subject:
    return open_subject(tiny("student"), 6)


def paths(text: str) -> int:
    """Count the ways to write `text` in the frames of CTC: a path ends in a new character or a blank each time."""
    repeats = sum(a == b for a, b in pairwise(text))
    return math.comb(FRAMES + len(text) - repeats, 2 * len(text))


def test_the_labels_of_both_heads_are_the_texts_of_the_label_file(student: Subject, captchas: Path) -> None:
    lines = (captchas / "train_list.txt").read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[1] for line in lines[:6]]
    ctc, gtc = student.heads()
    assert [head.name for head in (ctc, gtc)] == ["ctc", "gtc"]
    for head in (ctc, gtc):
        assert sorted(label for _, label in head.readings()) == sorted(texts)
    assert gtc.takes_labels and not ctc.takes_labels
    assert ctc.layer is student.network.head.ctc_head and gtc.layer is student.network.head.gtc_head


def test_the_loss_at_chance_is_that_of_equal_probabilities(student: Subject) -> None:
    ctc, gtc = student.heads()
    labels = [label for _, label in ctc.readings()]
    expected = np.mean([FRAMES * math.log(11) - math.log(paths(label)) for label in labels])
    assert ctc.chance() == pytest.approx(expected, rel=1e-4)
    assert gtc.chance() == pytest.approx(math.log(10 + 5), rel=1e-4)  # 10 digits, blank, 3 marks, a row more


def test_a_new_start_has_the_first_weights_and_the_peak_rate(student: Subject) -> None:
    optimizer = student.restart(0.5)
    assert optimizer.get_lr() == pytest.approx(0.0025) and optimizer._grad_clip.clip_norm == 5.0
    before = float(student.total())
    student.total().backward()
    optimizer.step()
    optimizer.clear_grad()
    assert float(student.total()) != pytest.approx(before)
    student.restart()
    assert float(student.total()) == pytest.approx(before)


def test_a_distillation_has_the_heads_of_its_student(tiny: Any) -> None:
    subject = open_subject(tiny("distill"), 4)
    heads = subject.heads()
    assert [head.name for head in heads] == ["ctc", "gtc"]
    assert all(head.model is subject.network.models["Student"] for head in heads)
    assert subject.network.models["Teacher"].training is False


def augmented(config: Config) -> Config:
    transforms = config.thaw()["Train"]["dataset"]["transforms"]
    return config.with_values(
        {"Train.dataset.transforms": [transforms[0], {"RecAug": None}, *transforms[1:]]}
    )


def test_augmentation_is_left_out_and_named(tiny: Any) -> None:
    plain, other = open_subject(tiny("student"), 4), open_subject(augmented(tiny("student")), 4)
    assert other.batch.left_out == ("RecAug",) and plain.batch.left_out == ()
    assert np.array_equal(plain.batch.entries[0].numpy(), other.batch.entries[0].numpy())


def test_the_samples_have_different_texts(tiny: Any, captchas: Path, tmp_path: Path) -> None:
    lines = (captchas / "train_list.txt").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "list.txt"
    repeated = [
        f"{lines[0]}\n",
        f"{lines[1].split(chr(9))[0]}\t{lines[0].split(chr(9))[1]}\n",
        f"{lines[2]}\n",
    ]
    file.write_text("".join(repeated), encoding="utf-8")
    subject = open_subject(tiny("student", **{"Train.dataset.label_file_list": [str(file)]}), 8)
    [ctc, _] = subject.heads()
    assert sorted(label for _, label in ctc.readings()) == sorted(lines[n].split("\t")[1] for n in (0, 2))


class LabelledDataset:
    """A dataset of a user's own, whose texts nobody sees: it gives ids of classes."""

    def __init__(self, config: Any, mode: str, logger: Any, seed: Any = None) -> None: ...

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> list[Any]:
        ctc, nrtr = np.zeros(8, np.int64), np.zeros(8, np.int64)
        ctc[:2], nrtr[:4] = index + 1, [2, index + 4, index + 4, 3]
        return [np.full((3, 32, 128), index / 9, np.float32), ctc, nrtr, np.array(2), np.float64(1)]


def test_samples_of_unknown_text_are_all_taken(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS._own, "LabelledDataset", LabelledDataset)
    assert open_subject(tiny("student", **{"Train.dataset.name": "LabelledDataset"}), 5).batch.samples == 5


def test_the_batch_size_of_the_config_is_a_limit(tiny: Any) -> None:
    assert open_subject(tiny("student", **{"Train.loader.batch_size_per_card": 3}), 8).batch.samples == 3


def test_a_sampler_of_several_sizes_gives_one(tiny: Any) -> None:
    config = tiny("student")
    transforms = [t for t in config.thaw()["Train"]["dataset"]["transforms"] if "RecResizeImg" not in t]
    subject = open_subject(
        config.with_values(
            {
                ANY_SIZE: True,
                "Train.dataset.name": "MultiScaleDataSet",
                "Train.dataset.ds_width": False,
                "Train.dataset.transforms": transforms,
                "Train.sampler": {
                    "name": "MultiScaleSampler",
                    "scales": [[128, 64], [128, 32], [128, 48]],
                    "first_bs": 8,
                    "fix_bs": False,
                    "divided_factor": [8, 16],
                    "is_training": True,
                },
            }
        ),
        5,
    )
    assert subject.batch.size == (128, 48)
    assert subject.batch.entries[0].shape == [5, 3, 48, 128]


def of_width(tiny: Any, width: int) -> Config:
    """Squash to `width` columns, of which each eight make a frame."""
    transforms = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    transforms[2] = {"RecResizeImg": {"image_shape": [3, 32, width], "padding": False}}
    return tiny("student", **{"Train.dataset.transforms": transforms, ANY_SIZE: True})


def test_labels_that_need_more_frames_are_left_out(tiny: Any) -> None:
    labels = [label for _, label in open_subject(of_width(tiny, 40), 24).heads()[0].readings()]
    assert labels and all(len(label) <= 5 for label in labels)
    with raises_code(DataError, "no_samples"):  # two frames
        open_subject(of_width(tiny, 16), 4)


def test_a_list_without_a_usable_sample_is_an_error(tiny: Any, tmp_path: Path) -> None:
    empty = tmp_path / "list.txt"
    empty.write_text("missing.png\t12\n", encoding="utf-8")
    with raises_code(DataError, "no_samples"):
        open_subject(tiny("student", **{"Train.dataset.label_file_list": [str(empty)]}), 4)


def test_a_config_that_does_not_fit_is_refused_as_by_a_training(tiny: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        open_subject(tiny("student", Loss={"name": "CTCLoss"}), 4)
    assert caught.value.issues[0].path == "Loss"


def test_a_loss_between_networks_alone_teaches_no_text(tiny: Any) -> None:
    loss = tiny("distill").thaw()["Loss"]
    loss["loss_config_list"] = loss["loss_config_list"][2:]
    with raises_code(ModelError, "nothing_to_train"):
        open_subject(tiny("distill", Loss=loss), 4).heads()


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({"name": "Cosine", "learning_rate": 0.002, "warmup_epoch": 5}, 0.002),
        ({"name": "OneCycle", "max_lr": 0.01}, 0.01),
        ({"name": "Piecewise", "decay_epochs": [3], "values": [0.001, 0.0001], "warmup_epoch": 2}, 0.001),
    ],
)
def test_the_peak_is_the_highest_rate_of_a_schedule(options: dict[str, Any], rate: float) -> None:
    assert peak_rate(options) == pytest.approx(rate)
