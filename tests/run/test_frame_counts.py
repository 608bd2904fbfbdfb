"""How many CTC frames labels have to fit: as each section pools, of the networks that matter, and without a trace."""

import random
import re

import numpy as np
import paddle
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError, ModelError, WeightsError
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.registry import BACKBONES, LOSSES
from ppocr_ext.run.frame_counts import count_frames, trained_with_ctc
from ppocr_ext.run.loader_setup import label_check
from ppocr_ext.run.run import Run


@BACKBONES.register()
class PoolsInTraining(paddle.nn.Layer):
    """A plugin that pools by its mode: a fixed number of frames in training, W/8 in evaluation."""

    def __init__(self, in_channels=3, frames=10, least_height=0):
        super().__init__()
        self.out_channels = 12
        self.train_frames, self.least_height = frames, least_height
        self.conv = paddle.nn.Conv2D(in_channels, 12, 3, padding=1)
        self.norm = paddle.nn.BatchNorm2D(12)
        self.dropout = paddle.nn.Dropout(0.5)

    def forward(self, x):
        if not self.training and x.shape[2] < self.least_height:
            raise ValueError(f"height {x.shape[2]} is too small in evaluation")
        x = self.dropout(self.norm(self.conv(x)))
        if self.training:
            return paddle.nn.functional.adaptive_avg_pool2d(x, [1, self.train_frames])
        return paddle.nn.functional.avg_pool2d(x, [x.shape[2], 8])


@LOSSES.register()
class SomebodysLoss(paddle.nn.Layer):
    """It may read anything."""


SMALL = {"name": "PPLCNetV3", "scale": 0.25, "conv_kxk_num": 1}
POOLS = {"Architecture.Backbone": {"name": "PoolsInTraining"}}


def built(config):
    plain = config.thaw()["Architecture"]
    models = plain.get("Models", {"": plain})
    for model in models.values():
        model["Head"]["out_channels_list"] = {"CTCLabelDecode": 11, "NRTRLabelDecode": 13}
    return build_model(plain)


def resized(config, mode, shape, name="RecResizeImg", **options):
    """The config with another resizing transform in ``mode``."""
    plain = config.thaw()[mode]["dataset"]["transforms"]
    changed = [
        {name: {"image_shape": shape, "padding": False, **options}} if "RecResizeImg" in t else t
        for t in plain
    ]
    return config.with_values({f"{mode}.dataset.transforms": changed})


@pytest.mark.parametrize(
    "backbone", [{"name": "PoolsInTraining", "frames": 10}, {**SMALL, "train_frames": 10}]
)
def test_train_has_the_frames_of_training_and_eval_those_of_evaluation(backbone, tiny):
    config = tiny("student", **{"Architecture.Backbone": backbone})
    model = built(config)
    trained, evaluated = count_frames(model, config, "Train"), count_frames(model, config, "Eval")
    assert (trained.least, evaluated.least) == (10, 16)
    assert (trained.fixed_by, evaluated.fixed_by) == (("Architecture.Backbone.train_frames",), ())
    many = tiny("student", **{"Architecture.Backbone": {**backbone, next(reversed(backbone)): 40}})
    assert count_frames(built(many), many, "Train").least == 40  # of which evaluation has 16


@pytest.mark.parametrize("training", [True, False])
def test_nothing_of_the_model_or_the_generators_changes(tiny, training):
    config = tiny("student", **POOLS)
    model = built(config)
    model.train() if training else model.eval()
    model.backbone.norm.eval()  # set by its owner, and not to be switched on by us
    paddle.seed(7), random.seed(7), np.random.seed(7)
    before = state_digest(model)
    modes = [layer.training for layer in model.sublayers(include_self=True)]
    count_frames(model, config, "Train")
    drawn = paddle.rand([4]).numpy(), random.random(), np.random.rand()
    assert state_digest(model) == before
    assert [layer.training for layer in model.sublayers(include_self=True)] == modes
    paddle.seed(7), random.seed(7), np.random.seed(7)
    assert (drawn[0] == paddle.rand([4]).numpy()).all()
    assert drawn[1:] == (random.random(), np.random.rand())


@pytest.mark.parametrize(
    "name", ["SVTRRecResizeImg", "VLRecResizeImg", "ABINetRecResizeImg", "CTCRecResizeImg"]
)
def test_every_resizing_transform(tiny, name):
    config = resized(tiny("student"), "Train", [3, 32, 160], name)
    assert count_frames(built(config), config, "Train").least == 20
    unknown = resized(config, "Eval", [3, 32, 128], eval_mode=True, padding=True)
    frames = count_frames(built(unknown), unknown, "Eval")
    assert (frames.least, dict(frames.by_size)) == (None, {(32, 128): 16})


def test_of_several_scales_the_narrowest_counts_and_each_is_known(tiny):
    sampler = {"name": "MultiScaleSampler", "scales": [[320, 32], [163, 50]]}
    config = tiny("student", **{"Train.sampler": sampler, "Train.dataset.name": "MultiScaleDataSet"})
    frames = count_frames(built(config), config, "Train")
    assert (frames.least, frames(32, 320), frames(48, 160), frames(32, 328)) == (20, 40, 20, None)
    assert frames.path == "Train.sampler.scales"


def test_ds_width_has_a_count_for_each_width(tiny):
    values = {
        "Train.sampler": {"name": "MultiScaleSampler", "scales": [[320, 32]], "max_w": 128},
        "Train.dataset.name": "MultiScaleDataSet",
        "Train.dataset.ds_width": True,
    }
    config = tiny("student", **values)
    frames = count_frames(built(config), config, "Train")
    assert dict(frames.by_size) == {(32, 32): 4, (32, 64): 8, (32, 96): 12, (32, 128): 16}
    assert frames.least == 4


def test_another_decoder_does_not_hide_what_ctc_trains(tiny):
    config = tiny("student", **{"PostProcess.name": "NRTRLabelDecode"})
    model = built(config)
    assert count_frames(model, config, "Train").least == 16
    assert count_frames(model, config, "Eval").least is None


def test_which_networks_a_ctc_loss_trains(tiny):
    assert trained_with_ctc(tiny("student")) == (None,)
    assert trained_with_ctc(tiny("student", Loss={"name": "CTCLoss"})) == (None,)
    assert trained_with_ctc(tiny("student", Loss={"name": "NRTRLoss"})) == ()
    assert trained_with_ctc(tiny("student", Loss={"name": "SomebodysLoss"})) == (None,)
    listed = "Loss.loss_config_list.DistillationCTCLoss.model_name_list"
    assert trained_with_ctc(tiny("distill", **{listed: ["Teacher", "Student"]})) == (
        "Student",
    )  # a frozen teacher


def test_a_list_of_a_loss_that_is_not_ours_is_its_own_business(tiny):
    own = {"name": "SomebodysLoss", "loss_config_list": [{"PartOfTheirs": {"a": 1}}, "text"]}
    assert trained_with_ctc(tiny("student", Loss=own)) == (None,)
    assert label_check(tiny("student", Loss=own), Charset(tuple("01")), None) is None


def test_only_trained_sub_models_count(tiny):
    pools = {"name": "PoolsInTraining"}
    teacher = tiny("distill", **{"Architecture.Models.Teacher.Backbone": pools})
    assert count_frames(built(teacher), teacher, "Train").least == 16
    student = tiny("distill", **{"Architecture.Models.Student.Backbone": pools})
    assert count_frames(built(student), student, "Train").least == 10
    listed = "Loss.loss_config_list.DistillationCTCLoss.model_name_list"
    both = {"Architecture.Models.Teacher.freeze_params": False, listed: ["Student", "Teacher"]}
    taught = tiny("distill", **{"Architecture.Models.Teacher.Backbone": pools, **both})
    assert count_frames(built(taught), taught, "Train").least == 10


def test_return_feats_does_not_hide_the_logits(tiny):
    config = tiny("student")
    model = built(config)
    model.head.ctc_head.return_feats = True
    assert count_frames(model, config, "Train").least == 16


def test_a_size_that_is_refused_in_evaluation_alone_is_one_to_train_at(tiny):
    backbone = {"name": "PoolsInTraining", "least_height": 48}
    config = tiny("student", **{"Architecture.Backbone": backbone})
    model = built(config)
    assert count_frames(model, config, "Train").least == 10
    with pytest.raises(
        ModelError, match=r"Eval\.dataset\.transforms\.RecResizeImg\.image_shape.*\[3, 32, 128\]"
    ):
        count_frames(model, config, "Eval")


def test_labels_need_not_fit_what_is_not_read(tiny):
    """The NRTR branch, or the export of centers, does not read CTC's frames."""
    config = resized(tiny("student"), "Eval", [3, 32, 32])
    with pytest.raises(WeightsError):  # the data pass
        Run.build(config.with_values({"Global.allow_different_preprocessing": True}), "eval", reads_ctc=False)


def narrow(config, width):
    return resized(config, "Train", [3, 32, width]).with_values(
        {"Global.allow_different_preprocessing": True}
    )


def test_labels_that_do_not_fit_the_frames_are_left_out(tiny, captchas):
    labels = [line.split("\t")[1] for line in (captchas / "train_list.txt").read_text().splitlines()]
    fitting = [t for t in labels if len(t) + sum(a == b for a, b in zip(t, t[1:], strict=False)) <= 4]
    values = {"Train.loader.batch_size_per_card": 1, "Global.max_unusable": 1}
    run = Run.build(narrow(tiny("student", **values), 32), "train")
    assert run.data.preflight["Train"].usable == len(fitting) < len(labels)
    assert run.data.preflight["Train"].counts == {"too_long_for_frames": len(labels) - len(fitting)}


def long_labels(tiny, captchas, folder):
    """A student of PPLCNetV3 with images 640 wide, and labels of 60 characters in Train."""
    image = (captchas / "train_list.txt").read_text().split("\t")[0]
    (folder / "long.txt").write_text(f"{image}\t{'0123456789' * 6}\n" * 8)
    longest = {"Global.max_text_length": 62, "Architecture.Head.head_list.NRTRHead.max_text_length": 62}
    listed = {"Train.dataset.label_file_list": [str(folder / "long.txt")], "Architecture.Backbone": SMALL}
    config = tiny("student", **{"Global.dry_step": False, **longest, **listed})
    return resized(resized(config, "Train", [3, 32, 640]), "Eval", [3, 32, 640])


def test_a_long_label_trains_if_training_frames_follow_the_width(tiny, captchas, tmp_path):
    config = long_labels(tiny, captchas, tmp_path)
    with pytest.raises(
        DataError, match=r"60 frames, CTC has 40(.|\n)*Architecture\.Backbone\.train_frames: width"
    ):
        Run.build(config, "train")
    run = Run.build(config.with_values({"Architecture.Backbone.train_frames": "width"}), "train")
    batch = next(iter(run.data.train_loader))
    losses = run.training.loss(run.model(batch[0], data=batch[1:]), batch)
    assert float(losses["CTCLoss"]) > 1.0  # 0 if nothing fits


def test_one_message_tells_all_that_long_labels_need(tiny, captchas, tmp_path):
    """What it says is enough: with it the same lines are used."""
    image = (captchas / "train_list.txt").read_text().split("\t")[0]
    (tmp_path / "list.txt").write_text(f"{image}\t{'0123456789' * 3}\n{image}\t{'1122334455' * 2}9\n" * 8)
    config = tiny("student", **{"Train.dataset.label_file_list": [str(tmp_path / "list.txt")]})
    with pytest.raises(DataError) as refused:
        Run.build(config, "train")
    length = int(re.search(r"Global\.max_text_length: (\d+)", str(refused.value))[1])
    width = int(re.search(r"(\d+) instead of 128", str(refused.value))[1])
    wide = resized(resized(config, "Train", [3, 32, width]), "Eval", [3, 32, width])
    heads = "Architecture.Head.head_list.NRTRHead.max_text_length"
    run = Run.build(wide.with_values({"Global.max_text_length": length, heads: length}), "train")
    assert (length, run.data.preflight["Train"].usable) == (32, 16)
