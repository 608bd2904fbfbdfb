"""The dry step: wiring faults are named with their config path, good configs pass, and no trace is left."""

import copy
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from lmdb_files import write_lmdb
from paddle import nn

from ppocr_ext.check import check_all
from ppocr_ext.checkpoint.files import read_plain_pickle, read_state
from ppocr_ext.cli.config import dry_check
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config, resolve_charset, switch_features_on, with_class_counts
from ppocr_ext.host import open_host
from ppocr_ext.issues import Issue
from ppocr_ext.loop.session import train
from ppocr_ext.modeling.heads.multi_head import CTCHead
from ppocr_ext.registry import DATASETS, LOSSES
from ppocr_ext.run import dry_step
from ppocr_ext.run.context import RunOptions, resolve_context
from ppocr_ext.run.dry_step import same_as_before
from ppocr_ext.run.host_config import complete
from ppocr_ext.run.networks import build_network

TRAIN, EVAL = "Train.dataset.transforms", "Eval.dataset.transforms"
TRAIN_KEYS, EVAL_KEYS = (f"{transforms}.KeepKeys.keep_keys" for transforms in (TRAIN, EVAL))
LISTED = "Loss.loss_config_list"
CTC = f"{LISTED}.DistillationCTCLoss"
HEADS = "Architecture.Head.head_list.NRTRHead"
STUDENT = "Architecture.Models.Student"
KEPT = ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]
ANY_SIZES = {"Global.allow_different_preprocessing": True}
JOINED = {"RecConAug": {"prob": 1.0, "ext_data_num": 1, "image_shape": [32, 128, 3], "max_text_length": 25}}
LONGER = {"Global.max_text_length": 25, f"{HEADS}.max_text_length": 25}
ODD_KEY = {TRAIN_KEYS: [*KEPT, "label_ace"]}

Found = set[tuple[str, str]]
Change = Callable[[Config], Config]


def found(config: Config, role: str = "train") -> Found:
    """Code and path of the errors that `config --check` reports."""
    return {(issue.code, issue.path) for issue in issues(config, role) if issue.level == "error"}


def issues(config: Config, role: str = "train", said: list[str] | None = None) -> list[Issue]:
    static, unused = check_all(config, open_host(), role)
    if any(issue.level == "error" for issue in static):
        return static
    return static + dry_check(config, open_host(), role, unused, (said if said is not None else []).append)[0]


def transforms(config: Config, mode: str) -> list[Any]:
    listed: list[Any] = config.thaw()[mode]["dataset"]["transforms"]
    return listed


def changed(mode: str, change: Callable[[list[Any]], Any], **values: Any) -> Change:
    """Return a function that changes the list of transforms of ``mode``."""

    def changed_config(config: Config) -> Config:
        listed = transforms(config, mode)
        change(listed)
        return config.with_values({f"{mode}.dataset.transforms": listed, **values})

    return changed_config


def given(values: dict[str, Any]) -> Change:
    return lambda config: config.with_values(values)


def schedule(**options: Any) -> Change:
    return given({"Optimizer.lr": options})


def without(path: str, place: int = -1) -> Change:
    """Return a function that removes an entry of a list."""

    def changed_config(config: Config) -> Config:
        plain = config.thaw()
        entry: Any = plain
        for key in path.split("."):
            entry = entry[key]
        entry.pop(place)
        return Config(plain)

    return changed_config


def single(name: str) -> Callable[[list[Any]], None]:
    """Encode one label, for one head."""

    def change(listed: list[Any]) -> None:
        listed[1], listed[-1] = {name: None}, {"KeepKeys": {"keep_keys": ["image", "label", "length"]}}

    return change


def sar(listed: list[Any]) -> None:
    listed[1] = {"MultiLabelEncode": None}
    listed[-1] = {"KeepKeys": {"keep_keys": ["image", "label_ctc", "label_sar", "length", "valid_ratio"]}}


def first(name: str, options: Any = None) -> Change:
    """Return a function that moves a transform before the decoding of the image."""
    return lambda config: config.with_values(
        {TRAIN: [{name: options}, *(t for t in transforms(config, "Train") if name not in t)], **ANY_SIZES}
    )


def not_decoded(mode: str) -> Change:
    return lambda config: config.with_values(
        {f"{mode}.dataset.transforms": [t for t in transforms(config, mode) if "DecodeImage" not in t]}
    )


def drawn(config: Config, *more: Any) -> Config:
    """Train on drawn images, which nothing resizes but ``more``."""
    listed = [t for t in transforms(config, "Train") if "RecResizeImg" not in t]
    dataset = {"name": "CaptchaDataSet", "size": 8, "transforms": [*listed[:-1], *more, listed[-1]]}
    return config.with_values({"Train.dataset": dataset})


def ctc_head(config: Config) -> Config:
    """One CTC head in place of two heads."""
    head = {"Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"}, "Head": {"name": "CTCHead"}}
    values = {f"Architecture.{part}": options for part, options in head.items()}
    return config.with_values({**values, "Loss": {"name": "CTCLoss"}})


@pytest.fixture
def one(tiny):
    """One network with a MultiHead."""
    return tiny("student")


@pytest.fixture
def two(tiny):
    """A teacher and a student."""
    return tiny("distill")


@pytest.fixture
def scales(one):
    """Images of two heights, which the dataset resizes."""
    sampler = {
        "name": "MultiScaleSampler",
        "scales": [[128, 32], [128, 48]],
        "first_bs": 4,
        "divided_factor": [8, 16],
    }
    listed = [each for each in transforms(one, "Train") if "RecResizeImg" not in each]
    values = {"Train.sampler": sampler, "Train.dataset.name": "MultiScaleDataSet", TRAIN: listed}
    return one.with_values({**values, **ANY_SIZES})


# Faults that no other test plants (tests/faults/part_faults.py has more): the config, the change, and what is found
WRONG: dict[str, tuple[str, Change, Found]] = {
    "a label that no transform makes": (
        "one", changed("Train", lambda t: t[1]["MultiLabelEncode"].pop("gtc_encode")),
        {("unknown_sample_key", TRAIN_KEYS)},
    ),
    "a label of a head that is not kept": (
        "one", given({TRAIN_KEYS: [key for key in KEPT if key != "label_gtc"]}), {("labels_not_kept", TRAIN_KEYS)},
    ),
    "labels of SAR for NRTR": ("one", changed("Train", sar), {("label_mismatch", TRAIN_KEYS)}),
    "valid_ratio that nothing makes": (
        "one", changed("Eval", lambda t: t.__setitem__(2, {"PRENResizeImg": {"image_shape": [32, 128]}}), **ANY_SIZES),
        {("unknown_sample_key", EVAL_KEYS)},
    ),
    "valid_ratio that is lost again": (
        "one", changed("Eval", lambda t: t.insert(1, t.pop(2))), {("unknown_sample_key", EVAL_KEYS)},
    ),
    "a transform after KeepKeys": (
        "one", changed("Eval", lambda t: t.append({"NormalizeImage": None}), **ANY_SIZES),
        {("transform_order", f"{EVAL}.KeepKeys")},
    ),
    "no KeepKeys": ("one", changed("Eval", lambda t: t.pop()), {("missing_transform", EVAL)}),
    "the image is not the first entry": (
        "one", given({EVAL_KEYS: [KEPT[1], KEPT[0], *KEPT[2:]]}), {("keep_keys_order", EVAL_KEYS)},
    ),
    "one head that is given two labels": ("one", ctc_head, {("label_mismatch", TRAIN_KEYS)}),
    "a decoder of other labels": (
        "one", changed("Eval", single("NRTRLabelEncode")), {("label_mismatch", EVAL_KEYS)},
    ),
    "an image that is changed at random before it is decoded": (
        "one", first("SVTRRecAug"), {("image_not_decoded", f"{TRAIN}.SVTRRecAug")},
    ),
    "a loss without its weight": (
        "two", given({CTC: {"model_name_list": ["Student"], "key": "head_out", "multi_head": True}}),
        {("missing_key", f"{CTC}.weight")},
    ),
    "an endless weight": ("two", given({f"{CTC}.weight": float("inf")}), {("bad_value", f"{CTC}.weight")}),
    "a loss that is of no branch": (
        "one", given({LISTED: [{"CTCLoss": None}, {"NRTRLoss": None}, {"CELoss": None}]}),
        {("unsupported_component", f"{LISTED}.CELoss")},
    ),
    "an image that is resized before it is decoded": (
        "one", first("RecResizeImg", {"image_shape": [3, 32, 128]}), {("image_not_decoded", f"{TRAIN}.RecResizeImg")},
    ),
    "an image that is augmented before it is decoded": (
        "one", first("SVTRRecAug"), {("image_not_decoded", f"{TRAIN}.SVTRRecAug")},
    ),
    "images that nothing decodes": (
        "one", not_decoded("Eval"), {("image_not_decoded", f"{EVAL}.RecResizeImg")},
    ),
    "images that nothing decodes, of several sizes": (
        "scales", not_decoded("Train"), {("image_not_decoded", TRAIN)},
    ),
    "valid_ratio of a dataset that does not resize": (
        "one", lambda config: drawn(config.with_values(ANY_SIZES)), {("unknown_sample_key", TRAIN_KEYS)},
    ),
    "two sections that fail together": (
        "one", given({**ODD_KEY, EVAL_KEYS: ODD_KEY[TRAIN_KEYS]}),
        {("unknown_sample_key", TRAIN_KEYS), ("unknown_sample_key", EVAL_KEYS)},
    ),
    "labels that are kept in another order": (
        "one", given({TRAIN_KEYS: ["image", "label_ctc", "length", "label_gtc", "valid_ratio"]}),
        {("keep_keys_order", TRAIN_KEYS)},
    ),
    "images of one channel": (
        "one",
        given({f"{mode}.RecResizeImg.image_shape": [1, 32, 128] for mode in (TRAIN, EVAL)}),
        {("bad_value", f"{mode}.RecResizeImg.image_shape") for mode in (TRAIN, EVAL)},
    ),
    "images that are joined with encoded labels": (
        "one", changed("Train", lambda t: t.insert(2, JOINED), **LONGER), {("transform_order", f"{TRAIN}.RecConAug")},
    ),
    "a schedule with a rate too few": (
        "one", schedule(name="Piecewise", decay_epochs=[1, 2], values=[0.001, 0.0001]),
        {("bad_value", "Optimizer.lr")},
    ),
    "milestones that go back": (
        "one", schedule(name="MultiStepDecay", learning_rate=0.001, milestones=[5, 2], gamma=0.1),
        {("bad_value", "Optimizer.lr")},
    ),
    "a strategy that OneCycle lacks": (
        "one", schedule(name="OneCycle", max_lr=0.001, anneal_strategy="sine"), {("bad_value", "Optimizer.lr")},
    ),
    "parts of which none needs the output of another": (
        "two",
        given({f"Architecture.Models.{name}.Backbone": {"name": "MobileNetV3", "scale": 0.7}
               for name in ("Student", "Teacher")}
              | {"Optimizer.lr": {"name": "OneCycle", "max_lr": 0.001, "anneal_strategy": "sine"}, **ODD_KEY}),
        {("bad_value", f"Architecture.Models.{name}.Backbone.scale") for name in ("Student", "Teacher")}
        | {("bad_value", "Optimizer.lr"), ("unknown_sample_key", TRAIN_KEYS)},
    ),
    "a loss of a branch that is not there": (
        "one", without("Architecture.Head.head_list"), {("missing_output", f"{LISTED}.NRTRLoss")},
    ),
    "losses of branches with one head, whose text the loop would read too": (
        "one", lambda config: ctc_head(config).with_values(
            {"Loss": config.at("Loss").thaw(), "Global.cal_metric_during_train": True}
        ),
        {("missing_output", f"{LISTED}.{name}") for name in ("CTCLoss", "NRTRLoss")},
    ),
    "a decoder of sub-models": (
        "one", given({"PostProcess.name": "DistillationCTCLabelDecode"}), {("decoder_failed", "PostProcess.name")},
    ),
    "a loss of sub-models": (
        "one",
        given({"Loss": {"name": "CombinedLoss", "loss_config_list": [
            {"DistillationCTCLoss": {"weight": 1.0, "model_name_list": ["A"], "multi_head": True}}]}}),
        {("missing_output", CTC)},
    ),
    "a metric of sub-models": (
        "one", given({"Metric": {"name": "DistillationMetric", "key": "Student"}}), {("wrong_output", "Metric.name")},
    ),
    "a loss that takes all heads for one": (
        "two", given({f"{CTC}.multi_head": False}), {("wrong_output", CTC)},
    ),
    "a loss of no output": (
        "two", given({f"{CTC}.key": None}), {("missing_output", CTC)},
    ),
    "a decoder of a sub-model that is not there": (
        "two", given({"PostProcess.model_name": ["Studnet"]}), {("unknown_sub_model", "PostProcess.model_name")},
    ),
    "a decoder of one model": (
        "two", given({"PostProcess.name": "CTCLabelDecode"}), {("decoder_failed", "PostProcess.name")},
    ),
    "a metric of one model": ("two", given({"Metric.name": "RecMetric"}), {("metric_failed", "Metric.name")}),
    "a loss of one model": (
        "two", given({"Loss": {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}]}}),
        {("missing_output", f"{LISTED}.CTCLoss")},
    ),
    "a key of a model that gives its head alone": (
        "two", given({f"{STUDENT}.return_all_feats": False}),
        {("decoder_failed", "PostProcess.key"), ("missing_output", CTC),
         ("missing_output", f"{LISTED}.DistillationNRTRLoss"), ("missing_output", f"{LISTED}.CTCFrameKDLoss")},
    ),
    "a branch that a sub-model has not": (
        "two", without(f"{STUDENT}.Head.head_list"), {("missing_output", f"{LISTED}.DistillationNRTRLoss")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name, request):
    config, change, expected = WRONG[name]
    assert found(change(request.getfixturevalue(config))) == expected


RIGHT: dict[str, tuple[str, Change]] = {
    "one network": ("one", given({})),
    "a distillation": ("two", given({})),
    "several sizes": ("scales", given({})),
    "one head with its label": ("one", lambda config: changed("Train", single("CTCLabelEncode"))(ctc_head(config))),
    "drawn images that are resized": (
        "one", lambda config: drawn(config, copy.deepcopy(transforms(config, "Train")[2])),
    ),
    "the name of an exported model": ("two", given({"Global.model_name": "PP-OCRv5_mobile_rec"})),
    "batches of one image that differ in size": ("scales", given({"Train.sampler.first_bs": 1})),
    "batches of one image": (
        "one", given({f"{mode}.loader.batch_size_per_card": 1 for mode in ("Train", "Eval")}),
    ),
    "images that are joined": (
        "one",
        changed(
            "Train",
            lambda t: t.insert(1, JOINED),
            **{"Train.dataset.ext_op_transform_idx": 1, **LONGER},
        ),
    ),
    "features": ("one", given({"Global.return_feats": True})),
    "mixed precision": ("one", given({"Global.use_amp": True, "Global.amp_level": "O1"})),
    "a compiled network": ("one", given({"Global.to_static": True})),
    "the metric of training batches": ("one", given({"Global.cal_metric_during_train": True})),
    "worker processes": ("one", given({"Train.loader.num_workers": 2})),
    "centers": ("one", given({LISTED: [{"CTCLoss": {}}, {"NRTRLoss": {}}, {"CenterLoss": {"update": "ema"}}]})),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_fits_raises_nothing(name, request):
    config, change = RIGHT[name]
    assert found(switch_features_on(change(request.getfixturevalue(config)))) == set()
    if name in ("one network", "a distillation"):
        assert found(request.getfixturevalue(config), "eval") == set()


def test_frames_that_differ_between_teacher_and_student(two):
    """SVTRv2 has W / 8 frames, PPLCNetV3 has 40 in training whatever the width."""
    pairs = {"model_name_pairs": [["Student", "Teacher"]], "key": "head_out", "multi_head": True}
    options = {"weight": 1.0, "act": "softmax", "use_log": True, "dis_head": "ctc"}
    loss = {"DistillationDMLLoss": {**pairs, **options}}
    backbone = {"name": "PPLCNetV3", "scale": 0.25, "conv_kxk_num": 1}
    listed = [*two.thaw()["Loss"]["loss_config_list"], loss]
    config = two.with_values({f"{STUDENT}.Backbone": backbone, LISTED: listed})
    (issue,) = issues(config)
    assert (issue.code, issue.path) == ("shape_mismatch", f"{LISTED}.DistillationDMLLoss")
    assert all(fact in issue.message for fact in ("40", "16", "train_frames: width"))
    assert found(config.with_values({f"{STUDENT}.Backbone.train_frames": "width"})) == set()


def test_each_section_pools_as_it_will_be_used(two):
    """PPLCNetV4 trains images 32 high, a frozen teacher too, but cannot evaluate them."""
    backbone = {"name": "PPLCNetV4", "model_size": "tiny"}
    models = ("Teacher", "Student")
    config = two.with_values({f"Architecture.Models.{name}.Backbone": backbone for name in models})
    (issue,) = issues(config)
    assert (issue.code, issue.path) == ("image_size", f"{STUDENT}.Backbone")
    assert "[3, 48, 128]" in issue.message and issue.message.count("Fix") == 1
    higher = {f"{EVAL}.RecResizeImg.image_shape": [3, 48, 128]}
    assert found(config.with_values({**higher, **ANY_SIZES})) == set()


def test_the_heights_of_a_backbone_are_its_own(one):
    sizes = {f"{mode}.RecResizeImg.image_shape": [3, 144, 320] for mode in (TRAIN, EVAL)}
    backbone = {"name": "PPLCNetV4", "model_size": "tiny"}
    (issue,) = issues(one.with_values({"Architecture.Backbone": backbone, **sizes}))
    assert issue.code == "shape_mismatch" and "48" in issue.message and "SVTRv2" not in issue.message


def test_weights_that_do_not_fit_are_named_before_the_training(one, two, tmp_path):
    """Those on this machine; a name that would be downloaded is left alone."""
    context = resolve_context(one, open_host(), RunOptions("train"), (), "cpu")
    paddle.save(build_network(context.components, context.charset).state_dict(), str(tmp_path / "w.pdparams"))
    key, own = "Global.pretrained_model", f"{STUDENT}.pretrained"
    start, wider = {key: str(tmp_path / "w")}, {"Architecture.Backbone.dims": [8, 16, 32]}
    assert found(one.with_values(start)) == set()
    assert found(one.with_values({**start, **wider})) == {("weights_mismatch", key)}
    assert found(one.with_values({**start, **wider, "Global.pretrained_partial": True})) == set()
    assert found(one.with_values({key: "PP-OCRv4_mobile_rec", **wider})) == set()
    (tmp_path / "more.txt").write_text("".join(f"{each}\n" for each in "0123456789abc"))
    larger = one.with_values({**start, "Global.character_dict_path": str(tmp_path / "more.txt")})
    before = str(context.charset.path)
    assert found(larger) == {("weights_mismatch", key)}
    assert dry_check(larger, open_host(), "train", (), print, before)[0] == []
    of_student = {own: start[key], f"{STUDENT}.Backbone.dims": [8, 16, 32]}
    assert found(two.with_values(of_student)) == {("weights_mismatch", own)}


def test_a_failure_of_the_dataset_itself_is_named(one):
    (issue,) = issues(one.with_values({"Train.dataset.ext_op_transform_idx": "first"}))
    assert (issue.code, issue.path) == ("dataset_failed", "Train.dataset")
    assert "slice indices" in issue.message  # what PaddleOCR's dataset raises


def test_a_head_of_another_width(one):
    head = {
        "name": "Transformer",
        "d_model": 36,
        "nhead": 4,
        "num_encoder_layers": -1,
        "num_decoder_layers": 1,
    }
    values = {"Architecture.Head": head, "Architecture.algorithm": "NRTR", "Loss": {"name": "NRTRLoss"}}
    config = one.with_values({**values, "PostProcess.name": "NRTRLabelDecode"})
    for mode in ("Train", "Eval"):
        config = changed(mode, single("NRTRLabelEncode"))(config)
    both = issues(config)
    assert {(issue.code, issue.path) for issue in both} == {("shape_mismatch", "Architecture.Head")}
    assert len(both) == 2 and all("16" in issue.message and "36" in issue.message for issue in both)


def test_a_head_that_lacks_a_neck_is_told_which(one):
    sizes = {f"{mode}.RecResizeImg.image_shape": [3, 32, 96] for mode in (TRAIN, EVAL)}
    config = changed("Train", single("CTCLabelEncode"))(ctc_head(one)).with_values(sizes)
    both = issues(config.with_values({"Architecture.Neck": None}))
    assert {(issue.code, issue.path) for issue in both} == {("network_failed", "Architecture.Head")}, both
    assert all("encoder_type: reshape" in issue.message for issue in both)


def test_a_softmax_before_the_losses(two, monkeypatch):
    before = CTCHead.forward

    def twice(self, *args: Any, **kwargs: Any) -> Any:
        return paddle.nn.functional.softmax(before(self, *args, **kwargs))

    monkeypatch.setattr(CTCHead, "forward", twice)
    heads = {("not_logits", f"Architecture.Models.{name}.Head") for name in ("Teacher", "Student")}
    assert found(two) == heads


class PluginDataset:
    """A dataset of a user's own, which gives batches as PaddleOCR's losses read them."""

    def __init__(self, config: Any, mode: str, logger: Any, seed: Any = None) -> None:
        self.label = [1, 2, 3]

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> list[Any]:
        ctc, nrtr = np.zeros(8, np.int64), np.zeros(8, np.int64)
        ctc[:3], nrtr[:5] = self.label, [2, 5, 6, 7, 3]
        return [np.zeros((3, 32, 128), np.float32), ctc, nrtr, np.array(3), np.float64(1)]


class PluginLoss(nn.Layer):
    """A loss of a user's own, which does not say what it reads."""

    def forward(self, predictions: Any, batch: Any) -> dict[str, Any]:
        return {"loss": predictions["Student"]["head_out"]["ctc"].mean() * batch[3].astype("float32").mean()}


def test_components_of_plugins(two):
    DATASETS.register("PluginDataset")(PluginDataset)
    LOSSES.register("PluginLoss")(PluginLoss)
    try:
        assert found(two.with_values({"Train.dataset.name": "PluginDataset"})) == set()
        assert found(two.with_values({"Loss": {"name": "PluginLoss"}})) == set()
        listed = [*two.thaw()["Loss"]["loss_config_list"], {"PluginLoss": {"weight": 1.0}}]
        assert found(two.with_values({LISTED: listed})) == set()
    finally:
        del DATASETS._own["PluginDataset"], LOSSES._own["PluginLoss"]


def test_lmdbs(one, captchas, tmp_path):
    lines = [line.split("\t") for line in (captchas / "val_list.txt").read_text().splitlines()]
    images = {number: (captchas / image).read_bytes() for number, (image, _) in enumerate(lines, start=1)}
    for name in ("train", "val"):
        write_lmdb(tmp_path / name, ["x", *(label for _, label in lines[1:])], images=images)
    dataset = {"name": "LMDBDataSet", "transforms": transforms(one, "Train")}
    both = {
        f"{mode}.dataset": {**dataset, "data_dir": str(tmp_path / name)}
        for mode, name in (("Train", "train"), ("Eval", "val"))
    }
    said: list[str] = []
    assert issues(one.with_values(both), said=said) == [] and said == []
    wrong = one.with_values({"Train.dataset": both["Train.dataset"], **ODD_KEY})
    assert found(wrong) == {("unknown_sample_key", TRAIN_KEYS)}


def test_an_entry_without_its_encoder_names_the_encoder(one):
    (issue,) = issues(changed("Train", lambda t: t.pop(1))(one))
    assert (issue.code, issue.path) == ("unknown_sample_key", TRAIN_KEYS)
    assert "add MultiLabelEncode" in issue.message


def test_widths_by_the_ratio_of_images(scales, captchas, tmp_path):
    lines = (captchas / "train_list.txt").read_text().splitlines()
    (tmp_path / "list.txt").write_text("".join(f"{line}\t160\t60\n" for line in lines))
    values = {"Train.dataset.ds_width": True, "Train.dataset.label_file_list": [str(tmp_path / "list.txt")]}
    assert found(scales.with_values(values)) == set()


def test_samples_are_drawn_if_none_can_be_read(one, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    said: list[str] = []
    config = one.with_values({"Train.dataset.label_file_list": [str(tmp_path / "empty.txt")]})
    assert issues(config, said=said) == []
    assert len(said) == 1 and "Train" in said[0] and "Eval" not in said[0]
    wrong = config.with_values(ODD_KEY)
    assert found(wrong) == {("unknown_sample_key", TRAIN_KEYS)}


def test_it_can_be_switched_off(one):
    wrong = one.with_values({**ODD_KEY, "Global.dry_step": False})
    assert found(wrong) == set()


def weights_after_an_epoch(config: Config, folder: Path, on: bool) -> dict[str, np.ndarray]:
    values = {"Global.dry_step": on, "Global.epoch_num": 1, "Global.save_model_dir": str(folder / str(on))}
    train(config.with_values(values))
    states = read_plain_pickle(folder / str(on) / "latest.states")
    return {**read_state(folder / str(on) / "latest.pdparams"), **states["loss"]}


@pytest.mark.parametrize("kind", ["student", "distill"])
def test_it_leaves_no_trace(kind, tiny, tmp_path):
    """With augmentation, dropout and centers that move, the weights after an epoch are bit-identical."""
    config = changed("Train", lambda listed: listed.insert(1, {"RecAug": None}))(tiny(kind))
    if kind == "student":
        listed = [{"CTCLoss": {}}, {"NRTRLoss": {}}, {"CenterLoss": {"update": "ema", "warmup_steps": 2}}]
        config = config.with_values({LISTED: listed})
    off, on = (weights_after_an_epoch(config, tmp_path, each) for each in (False, True))
    assert off.keys() == on.keys() and len(on) > 20
    assert [name for name in on if not np.array_equal(on[name], off[name])] == []


def test_it_puts_the_networks_back(two, monkeypatch):
    context = resolve_context(two, open_host(), RunOptions("train"), (), "cpu")
    model = build_network(context.components, context.charset)
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    modes = [layer.training for layer in model.sublayers()]
    generators = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        paddle.get_rng_state()[0].current_seed(),
    )
    monkeypatch.setattr(dry_step, "try_network", lambda *args: model)
    assert dry_step.try_config(context, print) == (model, [])
    assert all(np.array_equal(tensor.numpy(), before[name]) for name, tensor in model.state_dict().items())
    assert modes == [layer.training for layer in model.sublayers()]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert generators[:2] == (random.getstate(), np.random.get_state()[1].tolist())


def test_a_resumed_run_leaves_it_out_if_nothing_changed(one, tmp_path):
    train(one.with_values({"Global.epoch_num": 1}))
    charset = resolve_charset(one, open_host().find_file)
    latest = Path(str(one.at("Global.save_model_dir"))) / "latest"

    def same(**values: Any) -> bool:
        config = one.with_values({"Global.epoch_num": 2, **values})
        return same_as_before(with_class_counts(complete(config, charset), charset), charset, latest)

    assert same()
    assert not same(**{"Loss.weight_2": 0.25})
    assert not same(**{"Train.loader.batch_size_per_card": 4})
    assert not same_as_before(one, charset, tmp_path / "elsewhere" / "latest")


def test_the_config_command_runs_it(one, tmp_path, capsys):
    file = tmp_path / "my.yml"
    wrong = one.with_values(ODD_KEY)
    file.write_text(wrong.to_yaml())
    command = ["config", "-c", str(file), "--check"]
    assert main(command) == 2
    assert "[unknown_sample_key]" in capsys.readouterr().out
    assert main([*command, "--data", "none"]) == 0
    capsys.readouterr()
    file.write_text(wrong.with_values({"Global.plugins": ["not_imported"]}).to_yaml())
    assert main(command) == 0
    assert "--import-plugins" in capsys.readouterr().out


def test_a_neck_that_is_too_narrow_for_the_classes_is_a_warning(one, tmp_path, capsys):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("\n".join(string.digits + string.ascii_letters) + "\n", encoding="utf-8")
    config = one.with_values({"Global.character_dict_path": str(dictionary)})
    assert [(each.code, each.level) for each in issues(config)] == [("narrow_neck", "warning")]
    wide = config.with_values({"Architecture.Head.head_list.0.CTCHead.Neck": {"name": "reshape"}})
    assert not issues(wide)
    (tmp_path / "my.yml").write_text(config.to_yaml(), encoding="utf-8")
    assert main(["config", "--check", "-c", str(tmp_path / "my.yml")]) == 0
    assert "warning: " in capsys.readouterr().out
