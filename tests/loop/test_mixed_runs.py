"""Runs whose batches have lines of other lists beside those of Train, with their labels or with a teacher."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code
from lmdb_files import write_lmdb
from test_exact_resume import content
from tiny_runs import DRAWING, MULTI_SCALE, StopAfter, metrics

from ppocr_ext.checkpoint.contents import BEFORE
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train
from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache
from ppocr_ext.sanity.subject import open_subject
from ppocr_ext.teacher_cache.store import Store

pytestmark = pytest.mark.e2e


class Batches(Hook):
    """Note the samples of each batch, and how many of them are labelled."""

    def __init__(self):
        self.seen = []

    def measure_outputs(self, predictions, batch, losses):
        self.seen.append((len(batch[0]), int(batch[-1].sum()) if len(batch) == 6 else None))
        return {}


@pytest.fixture
def mixed(tiny, captchas, weights, tmp_path):
    """Config of a run from `weights`: three batches of eight an epoch, and the images of Eval beside them."""

    def build(name="run", labelled=True, kind="student", **values):
        transforms = tiny(kind).thaw()["Train"]["dataset"]["transforms"]
        images = tmp_path / "images.txt"
        lines = (captchas / "val_list.txt").read_text(encoding="utf-8").splitlines()
        images.write_text("".join(f"{line.split(chr(9))[0]}\n" for line in lines), encoding="utf-8")
        files = [str(captchas / "val_list.txt" if labelled else images)]
        base = {
            "Global.save_model_dir": str(tmp_path / name),
            "Global.pretrained_model": str(weights) if kind == "student" else None,
            "Global.dry_step": False,
            "Train.dataset.transforms": [transforms[0], *DRAWING[1:], *transforms[1:]],
            "Train.mix": [{"dataset": {"label_file_list": files}, "share": 0.3, "labelled": labelled}],
        }
        if not labelled and kind == "student":
            base["Eval.general.dataset.label_file_list"] = [str(captchas / "val_list.txt")]
            base["Eval.general.max_drop"] = 0.9
        return tiny(kind, **{**base, **values})

    return build


def several_scales(mixed, **values):
    """What a run with a MultiScaleSampler changes."""
    transforms = mixed().thaw()["Train"]["dataset"]["transforms"]
    base = {
        "Train.dataset.name": "MultiScaleDataSet",
        "Train.dataset.ds_width": False,
        "Train.dataset.transforms": [each for each in transforms if "RecResizeImg" not in each],
        "Train.sampler": MULTI_SCALE,
        "Global.allow_different_preprocessing": True,
    }
    return {**base, **values}


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("scales", [False, True])
def test_a_resumed_run_is_bit_identical_to_the_unbroken_one(mixed, tmp_path, labelled, scales):
    values = several_scales(mixed) if scales else {}
    batches = Batches()
    train(mixed("whole", labelled, **values), hooks=[batches])
    own = 4 if scales else 8
    counts = np.diff([int(3 / 7 * own * number) for number in range(len(batches.seen) + 1)])
    assert batches.seen == [(own + count, None if labelled else own) for count in counts]
    train(mixed("broken", labelled, **values), hooks=[StopAfter(len(batches.seen) // 2 + 1)])
    train(mixed("broken", labelled, **values, **{"Global.checkpoints": str(tmp_path / "broken" / "latest")}))
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "broken")
    for part in whole:
        np.testing.assert_equal(resumed[part], whole[part], err_msg=part)
    kept = [line for line in metrics(tmp_path / "whole", "train") if line["losses"].get("kept", 0) > 0]
    assert len(kept) == (0 if labelled else len(batches.seen))


def test_in_a_distillation_its_teacher_teaches_lines_without_labels(mixed, tmp_path):
    batches = Batches()
    train(mixed(labelled=False, kind="distill", **{"Global.epoch_num": 1}), hooks=[batches])
    assert [count for count, _ in batches.seen] == [11, 11, 12] and {own for _, own in batches.seen} == {8}
    assert not (tmp_path / "run" / f"{BEFORE}.pdparams").exists()  # nothing is kept of weights before


def cached(folder: Path) -> dict[str, str]:
    return {"Train.teacher_cache": str(folder)}


def test_a_teacher_cache_holds_the_lines_of_all_lists(mixed, captchas, tmp_path):
    few, folder = tmp_path / "few.txt", tmp_path / "cache"
    lines = (captchas / "train_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    few.write_text("".join(lines[:3]), encoding="utf-8")

    def config(name="run", **values):
        taught = mixed(labelled=False, kind="distill").thaw()["Train"]["mix"]
        mix = [{"dataset": {"label_file_list": [str(few)]}, "share": 0.1}, *taught]
        mix.append({"dataset": {"name": "CaptchaDataSet", "size": 5}, "share": 0.1})
        return mixed(name, False, "distill", **{"Train.mix": mix, "Global.epoch_num": 3, **values})

    options = CacheOptions(folder, views=2, seed=5, processes=2)
    build_cache(config(), CacheBuilder(config(), options), options)
    assert Store(folder).entries == 2 * (24 + 10 + 5)  # the three are among the 24, and look the same there
    (tmp_path / "empty").mkdir()
    shutil.copy(folder / "cache.json", tmp_path / "empty")
    train(config("whole", **cached(folder)))
    train(config("live", **cached(tmp_path / "empty")))
    train(config("broken", **cached(folder)), hooks=[StopAfter(5)])
    resumed = {"Global.checkpoints": str(tmp_path / "broken" / "latest")}
    train(config("broken", **cached(folder), **resumed))
    ours, live = (metrics(tmp_path / name, "train") for name in ("whole", "live"))
    assert [each["teacher_cached"] for each in ours] == [1.0] * 9
    for one, other in zip(ours, live, strict=True):
        assert one["losses"] == pytest.approx(other["losses"], abs=1e-3)
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "broken")
    for part in whole:
        np.testing.assert_equal(resumed[part], whole[part], err_msg=part)


def test_what_a_cache_draws_depends_on_its_own_seed_alone(mixed, tmp_path):
    drawn = [{"dataset": {"name": "CaptchaDataSet", "size": 5}, "share": 0.1}]

    def images(seed):
        config = mixed(kind="distill", **{"Train.mix": drawn, "Global.seed": seed})
        loader = CacheBuilder(config, CacheOptions(tmp_path / "cache", views=1, seed=5))._loader
        return np.concatenate([batch[0].numpy() for batch in loader.read_view(0, loader.of_view(0))])

    found = images(1)
    assert len(found) == 24 + 5
    np.testing.assert_array_equal(images(2), found)


def test_lines_with_the_size_of_their_batch_have_no_views(mixed, tmp_path):
    config = mixed(**several_scales(mixed), kind="distill")
    with raises_code(ConfigError, "conflicting_keys", "Train.mix", "MultiScaleSampler"):
        CacheBuilder(config, CacheOptions(tmp_path / "cache"))


def test_the_weights_that_teach_stay_those_before_the_training(mixed, tmp_path):
    train(mixed(labelled=False), hooks=[StopAfter(2)])
    Path(f"{tmp_path / 'run' / BEFORE}.pdparams").unlink()
    with raises_code(WeightsError, "missing_file"):
        train(mixed(labelled=False, **{"Global.checkpoints": str(tmp_path / "run" / "latest")}))


LIST = {"label_file_list": ["tests"]}


@pytest.mark.parametrize(
    ("values", "labelled"),
    [
        ({"Train.mix.0.share": 1.0}, True),
        ({"Train.mix.0.share": 0}, True),
        ({"Train.mix.0.share": None}, True),
        ({"Train.mix.0.share": "0.3"}, True),
        ({"Train.mix.0.labelled": "no"}, True),
        ({"Train.mix.0.shares": 0.3}, True),
        ({"Train.mix.0.dataset": None}, True),
        ({"Train.mix.0.dataset.label_file_list": ["nothing.txt"]}, True),
        ({"Train.mix": {"share": 0.3}}, True),
        ({"Train.mix": [0.3]}, True),
        ({"Train.mix": 0.3}, True),
        ({"Train.mix": [{"dataset": LIST, "share": share} for share in (0.7, 0.2, 0.1)]}, True),
        ({"Train.mix.0.dataset.transforms": [{"DecodeImage": {}}]}, True),
        ({"Train.mix.0.dataset.name": "MultiScaleDataSet"}, True),
        ({"Eval.general": None}, False),
        ({"Architecture.Head": {"name": "Transformer", "d_model": 16}}, False),
        ({"Global.cal_metric_during_train": True}, False),
    ],
)
def test_a_mix_that_cannot_be_meant_is_refused(mixed, values, labelled):
    with pytest.raises(InvalidConfigError) as error:
        train(mixed(labelled=labelled, **values))
    assert any(issue.path.startswith("Train.mix") for issue in error.value.issues)


def test_a_run_from_nothing_has_no_weights_that_teach(mixed):
    with raises_code(WeightsError, "missing_weights"):
        train(mixed(labelled=False, **{"Global.pretrained_model": None}))


def test_a_list_without_labels_needs_no_sizes_of_its_images(mixed, captchas, tmp_path):
    """Its images get the size of their batch, also beside lines that name width and height."""
    lines = (captchas / "train_list.txt").read_text(encoding="utf-8").splitlines()
    sized = tmp_path / "sized.txt"
    sized.write_text("".join(f"{line}\t160\t60\n" for line in lines), encoding="utf-8")
    batches = Batches()
    values = several_scales(
        mixed, **{"Train.dataset.ds_width": True, "Train.dataset.label_file_list": [str(sized)]}
    )
    train(mixed(labelled=False, **values), hooks=[batches])
    assert all(labelled == 4 < count for count, labelled in batches.seen) and batches.seen


def test_lists_of_three_images_of_an_lmdb_and_of_drawn_ones(mixed, captchas, tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("".join((captchas / "train_list.txt").read_text().splitlines(keepends=True)[:3]))
    lmdb = {"name": "LMDBDataSet", "data_dir": str(write_lmdb(tmp_path / "lmdb", ["12", "12"]))}
    drawn = {"name": "CaptchaDataSet", "size": 5}
    lists = ({"label_file_list": [str(few)]}, lmdb, drawn)
    batches = Batches()
    train(mixed(**{"Train.mix": [{"dataset": each, "share": 0.2} for each in lists]}), hooks=[batches])
    assert {count for count, _ in batches.seen} == {20} and len(batches.seen) == 6
    assert "each 8.0 times" in (tmp_path / "run" / "train.log").read_text("utf-8")  # 2 epochs, 12 of 3 images


def test_a_sanity_check_learns_the_labels_alone(mixed):
    assert open_subject(mixed(labelled=False), 4).context.config.at("Train.mix") is None


def test_images_that_train_and_judge_are_named(mixed, captchas, caplog):
    both = {"Eval.general.dataset.label_file_list": [str(captchas / "train_list.txt")]}
    train(mixed(**both), hooks=[StopAfter(1)])
    leaks = [each.getMessage() for each in caplog.records if "trained_samples" in each.getMessage()]
    assert len(leaks) == 2 and "10 of 10" in leaks[0] and "24 of 24" in leaks[1]
