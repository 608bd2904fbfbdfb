"""Data in a run: LMDBs without their bad samples, and exceptions of a dataset that reach the run."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code
from lmdb_files import write_lmdb
from tiny_runs import MULTI_SCALE

from ppocr_ext.data.load_failures import LoadFailures, sample_key
from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.host import open_host
from ppocr_ext.loop.adapter import HostLoop
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.hooks.run_record import RunRecord
from ppocr_ext.loop.session import train
from ppocr_ext.run import context
from ppocr_ext.run.data_check import label_files_of
from ppocr_ext.run.loader_setup import label_file_dataset_class
from ppocr_ext.run.run import Run


@pytest.fixture(scope="module")
def lmdbs(captchas, tmp_path_factory):
    """The images of ``captchas`` in LMDBs; samples 2 and 5 of the training data cannot be used."""
    root = tmp_path_factory.mktemp("lmdbs")
    for split in ("train", "val"):
        lines = [line.split("\t") for line in (captchas / f"{split}_list.txt").read_text().splitlines()]
        images = {number: (captchas / image).read_bytes() for number, (image, _) in enumerate(lines, start=1)}
        labels = [label for _, label in lines]
        if split == "train":
            labels[1], images[5] = "x", None
        write_lmdb(root / split, labels, images=images)
    return root


def on_lmdb(tiny, lmdbs, **values):
    return tiny(
        "student",
        **{
            "Train.dataset.name": "LMDBDataSet",
            "Train.dataset.data_dir": str(lmdbs / "train"),
            "Eval.dataset.name": "LMDBDataSet",
            "Eval.dataset.data_dir": str(lmdbs / "val"),
            "Global.save_teacher": False,
            **values,
        },
    )


def test_label_files_that_the_dataset_does_not_read_are_none_of_the_run(tiny, lmdbs):
    open_host()
    config = on_lmdb(tiny, lmdbs, **{"Train.dataset.label_file_list": ["gone.txt"]})
    assert label_files_of(config, "Train") == ()
    named = config.with_values({"Train.dataset.name": "SimpleDataSet"})
    assert label_files_of(named, "Train") == (Path("gone.txt"),)


class Losses(Hook):
    def __init__(self):
        self.seen = []

    def on_step(self, step):
        self.seen.append(float(step.losses["loss"]))


def test_an_lmdb_is_trained_on_and_judged_without_its_bad_samples(tiny, lmdbs, captchas):
    run = Run.build(on_lmdb(tiny, lmdbs), "train")
    assert run.data.preflight["Train"].counts == {"unknown_char": 1, "missing_image": 1}
    assert len(run.data.train_loader.dataset) == 22
    assert sorted(int(index) for _, index in run.data.train_loader.dataset.data_idx_order_list) == [
        number for number in range(1, 25) if number not in (2, 5)
    ]
    assert len(run.data.train_loader.batch_sampler) == 2  # 22 // 8: samplers see the true number
    losses = Losses()
    assert HostLoop(run, run.training, [losses]).train().status == "finished"
    assert np.isfinite(losses.seen).all()
    config = on_lmdb(tiny, lmdbs, **{"Global.checkpoints": f"{run.context.folder}/latest"})
    result = evaluate(Run.build(config, "eval"))
    labels = [line.split("\t")[1] for line in (captchas / "val_list.txt").read_text().splitlines()]
    assert [p.image for p in result.predictions] == [f"{lmdbs}/val#{n}" for n in range(1, 11)]
    assert [p.label for p in result.predictions] == labels


def test_samples_of_an_lmdb_that_was_moved_keep_their_keys(tiny, lmdbs, tmp_path):
    """The views of a teacher cache are drawn by these keys."""
    found = []
    for root in (lmdbs, Path(shutil.copytree(lmdbs, tmp_path / "moved"))):
        values = {"Train.dataset.data_dir": str(root)}  # both LMDBs
        dataset = Run.build(on_lmdb(tiny, lmdbs, **values), "train").data.train_loader.dataset
        found.append([sample_key(dataset, index) for index in range(len(dataset))])
    assert found[0] == found[1] and len(set(found[0])) == 32


def test_a_run_says_how_many_lines_could_not_be_loaded(tiny, captchas, tmp_path):
    lines = (captchas / "train_list.txt").read_text().splitlines()
    content = bytearray((captchas / lines[0].split("\t")[0]).read_bytes())
    content[60:-60] = bytes(len(content) - 120)  # head and tail are those of an image
    (tmp_path / "broken.png").write_bytes(content)
    lines[0] = f"{tmp_path}/broken.png\t1234"
    (tmp_path / "list.txt").write_text("\n".join(lines) + "\n")
    values = {
        "Train.dataset.label_file_list": [str(tmp_path / "list.txt")],
        "Global.allow_outside_data_dir": True,
        "Global.report": False,
    }
    train(tiny("student", **values))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["failed_to_load"] == {"Train": 1, "Eval": 0}
    said = (tmp_path / "run" / "train.log").read_text()
    assert said.count("Train: 1 sample could not be loaded") == 1


def test_what_ended_a_run_stands_in_its_record_as_a_sentence(tiny, tmp_path):
    class Fails(Hook):
        def on_step(self, step):
            raise RuntimeError(
                "DataLoader worker(0) caught DataError with message:\nTraceback (most recent call last):\n"
                '  File "x.py", line 3, in y\nppocr_ext.errors.DataError: the image is broken'
            )

        def on_end(self, outcome):
            raise OSError("a hook that stumbles at the end")

    class Ends(Hook):
        def on_end(self, outcome):
            told.append(outcome.status)

    told = []
    with pytest.raises(RuntimeError, match="the image is broken"):
        train(tiny("student", **{"Global.report": False}), hooks=[Fails(), Ends()])
    assert told == ["failed"]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["status"], record["reason"]) == ("failed", "the image is broken")


def test_warnings_of_the_checks_come_from_process_0_alone(tiny, monkeypatch):
    said = []
    monkeypatch.setattr(
        context, "report_issues", lambda issues, strict: said.append([i.text for i in issues])
    )
    config = tiny("student", **{"Loss.zzz": 1})
    for rank in (0, 1):
        monkeypatch.setattr(context.dist, "get_rank", lambda rank=rank: rank)
        warnings, unused = context._check(config, open_host(), context.RunOptions("train"))
        assert ("Loss", "zzz") in unused
        assert [issue.code for issue in warnings] == ["unused_key"] * (rank == 0)
    assert len(said[0]) == 1 and "Loss.zzz: the key is not used." in said[0][0]
    assert said[1] == []


def test_warnings_are_recorded_and_errors_if_strict(tiny):
    config = tiny("student", **{"Loss.weight_2": 0, "Global.dry_step": False})
    run = Run.build(config, "train")
    for record in (json.loads((run.context.folder / "preflight.json").read_text()), preflight_of(run)):
        found = [(issue["level"], issue["code"], issue["path"]) for issue in record["warnings"]]
        assert found == [("warning", "loss_weight", "Loss.weight_2")]
    with raises_code(ConfigError, "loss_weight"):
        Run.build(config.with_values({"Global.strict": True}), "train")


def preflight_of(run):
    """What the record of a run writes at its start, with whatever has been found until then."""
    (run.context.folder / "preflight.json").unlink()
    RunRecord().on_start(run, run.training)
    return json.loads((run.context.folder / "preflight.json").read_text())


def test_an_lmdb_gives_what_the_label_file_gives(tiny, lmdbs, captchas):
    from_lmdb = Run.build(on_lmdb(tiny, lmdbs), "train").data.eval_loader
    from_file = Run.build(tiny("student"), "train").data.eval_loader
    for one, other in zip(from_lmdb, from_file, strict=True):
        for a, b in zip(one, other, strict=True):
            assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("workers", [0, 1])
def test_the_shuffled_order_of_an_lmdb_repeats(tiny, lmdbs, workers):
    values = {"Train.loader.num_workers": workers}
    orders = []
    for _ in range(2):
        run = Run.build(on_lmdb(tiny, lmdbs, **values), "train")
        orders.append(run.data.train_loader.dataset.data_idx_order_list.tolist())
        np.random.rand(3)  # whatever else draws in between
    assert orders[0] == orders[1] != sorted(orders[0])


DECODE = {"DecodeImage": {"img_mode": "BGR", "channel_first": False}}
CHANNEL_FIRST = {"DecodeImage": {"img_mode": "BGR", "channel_first": True}}
JOIN = {"RecConAug": {"prob": 1.0, "image_shape": [32, 320, 3], "max_text_length": 25}}
RESIZE = {"RecResizeImg": {"image_shape": [3, 32, 128]}}
KEEP = {"KeepKeys": {"keep_keys": ["image", "label"]}}


@pytest.fixture
def build(captchas):
    """Return a dataset of 24 samples with the given transforms, and its failures."""

    def build(*transforms, **options):
        host = open_host()
        files = [captchas / "train_list.txt"]
        failures = LoadFailures("Train", 24, 0, UnusableLimit())
        section = {
            "name": "SimpleDataSet",
            "data_dir": str(captchas),
            "label_file_list": [str(file) for file in files],
            "transforms": list(transforms),
            **options,
        }
        config = {"Global": {}, "Train": {"dataset": section, "loader": {"shuffle": True}}}
        kind = label_file_dataset_class(host.component("dataset", "SimpleDataSet"), failures, files, "\t")
        return kind(config, "Train", logging.getLogger("ppocr"), 1), failures

    return build


def test_right_transforms_load_every_sample(build):
    dataset, failures = build(DECODE, JOIN, RESIZE, KEEP, ext_op_transform_idx=1)
    assert [len(dataset[index]) for index in range(24)] == [2] * 24
    assert failures.count == 0


@pytest.mark.parametrize(
    ("transforms", "name"),
    [((DECODE, JOIN, RESIZE, KEEP), "RecConAug"), ((CHANNEL_FIRST, RESIZE, KEEP), "RecResizeImg")],
    ids=["RecConAug without ext_op_transform_idx", "channel_first"],
)
def test_a_wrong_transform_is_named(build, transforms, name):
    dataset, _ = build(*transforms)
    with raises_code(DataError, "too_many_unusable", f": {name}: "):
        dataset[0]


@pytest.mark.parametrize(("mode", "values"), [
    ("Train", {}),
    ("Eval", {}),
    ("Train", {"Train.sampler": MULTI_SCALE, "Train.dataset.name": "MultiScaleDataSet"}),
])  # fmt: skip
def test_a_share_that_leaves_no_sample_is_named(tiny, mode, values):
    values = {**values, f"{mode}.dataset.ratio_list": [0.001], "Global.dry_step": False}
    with raises_code(DataError, "no_samples", f"{mode}.dataset.ratio_list"):
        Run.build(tiny("student", **values, **{"Global.allow_different_preprocessing": True}), "train")
