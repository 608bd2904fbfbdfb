"""A misspelt key or name is an error with the right one; another that nothing reads is a warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paddle
import pytest
from official_facts import Check

from ppocr_ext.config import Config, load
from ppocr_ext.config.override import override
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host
from ppocr_ext.issues import report_issues
from ppocr_ext.losses import build_loss
from ppocr_ext.registry import BACKBONES, OPTIMIZERS, said_once

HEADS = "Architecture.Head.head_list"
MISSPELT = [
    ("Global.epohc_num", 3, "epoch_num"),
    ("Global.pretrained", "x", "pretrained_model"),
    ("Architecture.algoritm", "x", "algorithm"),
    ("Architecture.Backbone.dim", [1], "dims"),
    ("Architecture.Head.use_pol", True, "use_pool"),
    (f"{HEADS}.CTCHead.Necks", {}, "Neck"),
    (f"{HEADS}.CTCHead.Neck.hiden_dims", 8, "hidden_dims"),
    (f"{HEADS}.CTCHead.Head.retrun_feats", True, "return_feats"),
    (f"{HEADS}.NRTRHead.nrtr_dims", 8, "nrtr_dim"),
    ("Loss.weight1", 1.0, "weight_1"),
    ("Loss.loss_config_list.NRTRLoss", {"smothing": True}, "smoothing"),
    ("Optimizer.beta_1", 0.9, "beta1"),
    ("Optimizer.lr.warmup_epochs", 1, "warmup_epoch"),
    ("Optimizer.regularizer", {"name": "L2", "factr": 1.0}, "factor"),
    ("Metric.ignore_spaces", True, "ignore_space"),
    ("Train.datasets", {}, "dataset"),
    ("Train.dataset.label_file_lists", [], "label_file_list"),
    ("Train.dataset.transforms.DecodeImage.img_mod", "BGR", "img_mode"),
    ("Train.dataset.transforms.MultiLabelEncode.gtc_encod", "NRTRLabelEncode", "gtc_encode"),
    ("Train.sampler.first_batch", 8, None),
    ("Train.sampler.scale", [], "scales"),
    ("Train.loader.batch_size_per_gpu", 8, "batch_size_per_card"),
    ("Eval.loader.num_worker", 8, "num_workers"),
]


@pytest.mark.parametrize(("path", "value", "right"), MISSPELT)
def test_a_misspelt_key_names_the_right_one(
    path: str, value: Any, right: str | None, one: Config, check: Check
) -> None:
    config = one.with_values({"Optimizer.weight_decay": None} if "regularizer" in path else {})
    found = check(config.with_values({path: value}))
    if right is None:
        assert found == [f"warning: {path}: the key is not used."]
    else:
        spelt = f"unknown key. Did you mean {right!r}?"
        assert [issue for issue in found if spelt in issue and issue.startswith(f"error: {path}")] != []


MISNAMED = [
    ("Architecture.Backbone.name", "SVTRv3", "Unknown backbone 'SVTRv3'. Did you mean 'SVTRv2'?"),
    ("Architecture.Head.name", "MultiHeads", "Unknown head 'MultiHeads'. Did you mean 'MultiHead'?"),
    ("Loss.name", "MultLoss", "Unknown loss 'MultLoss'. Did you mean 'MultiLoss'?"),
    ("Loss.name", "PARSeqLoss", "Did you mean 'ParseQLoss'?"),
    ("Optimizer.name", "AdmaW", "Did you mean 'AdamW'?"),
    ("Optimizer.lr.name", "Cosin", "Did you mean 'Cosine'?"),
    ("Metric.name", "RecMetrics", "Did you mean 'RecMetric'?"),
    (
        "PostProcess.name",
        "CTCLabelDecoder",
        "the host has no decoder 'CTCLabelDecoder'. Did you mean 'CTCLabelDecode'?",
    ),
    ("Train.dataset.name", "MultiscaleDataset", "Did you mean 'MultiScaleDataSet'?"),
    ("Train.sampler.name", "MultiscaleSampler", "the host has no sampler 'MultiscaleSampler'. Did you mean"),
    ("Train.loader.collate_fn", "SSLRotateColate", "Did you mean 'SSLRotateCollate'?"),
    (
        "Train.dataset.transforms.MultiLabelEncode.gtc_encode",
        "NRTRLabelEncoder",
        "Did you mean 'NRTRLabelEncode'?",
    ),
    (f"{HEADS}.CTCHead.Neck.name", "svrt", "the encoder 'svrt' is not provided; use 'svtr' or 'reshape'."),
]


@pytest.mark.parametrize(("path", "name", "said"), MISNAMED)
def test_a_name_that_nobody_has_names_the_nearest(
    path: str, name: str, said: str, one: Config, check: Check
) -> None:
    errors = [issue for issue in check(one.with_values({path: name})) if issue.startswith(f"error: {path}: ")]
    assert len(errors) == 1
    assert said in errors[0]


def test_a_transform_that_the_host_lacks_is_named(one: Config, check: Check) -> None:
    transforms = one.thaw()["Train"]["dataset"]["transforms"]
    transforms[1] = {"RecAugg": None}
    found = check(one.with_values({"Train.dataset.transforms": transforms}))
    path = "Train.dataset.transforms.RecAugg"
    assert found == [f"error: {path}: the host has no transform 'RecAugg'. Did you mean 'RecAug'?"]


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("Architecture.Head.name", "SATRNHead", "head"),
        ("Loss.name", "SARLoss", "loss"),
        ("Architecture.Transform", {"name": "STN_ON"}, "transform"),
    ],
)
def test_what_only_a_checkout_has_is_said_to_be_there(
    path: str, name: Any, kind: str, one: Config, check: Check
) -> None:
    said = f"is a {kind} of PaddleOCR's repository, which the installed package lacks: `--host DIR`"
    assert any(said in issue for issue in check(one.with_values({path: name})))


def test_an_encoder_that_only_a_checkout_has_says_so(one: Config, check: Check) -> None:
    found = check(one.with_values({"Architecture.Neck": {"name": "SequenceEncoder", "encoder_type": "rnn"}}))
    assert any("use 'svtr' or 'reshape', or a checkout that has it (`--host DIR`)." in f for f in found)


def test_a_name_that_paddleocr_gave_up_names_its_successor(one: Config, check: Check) -> None:
    found = check(one.with_values({"Architecture.Backbone": {"name": "repvit_svtr"}}))
    assert "Did you mean 'RepSVTR'?" in found[0]


def test_other_unknown_keys_are_warnings(one: Config, check: Check) -> None:
    values = {
        "Global.my_plugin_width": 3,
        "MyPlugin": {"width": 3},
        "Architecture.Backbone.zzz": 1,
        "Train.loader.zzz": 1,
        "PostProcess.zzz": 1,
    }
    found = check(one.with_values(values))
    assert sorted(found) == sorted(f"warning: {path}: the key is not used." for path in values)


def test_keys_of_the_optimizer_before_are_no_misspellings(one: Config, check: Check) -> None:
    found = check(one.with_values({"Optimizer.name": "Adam", "Optimizer.lr.name": "Const"}))
    unused = ("no_weight_decay_name", "one_dim_param_no_weight_decay")
    assert found == [f"warning: Optimizer.{key}: the key is not used." for key in unused]


def test_a_misspelt_section_is_an_error(one: Config, check: Check) -> None:
    found = check(one.with_values({"Optimzer": {}}))
    assert found == ["error: Optimzer: unknown key. Did you mean 'Optimizer'?"]


def with_options(config: Config, *options: str) -> Config:
    return Config.of(override(config._node, options))


def test_an_option_that_nothing_reads_is_an_error_and_a_plus_forces_it(one: Config, check: Check) -> None:
    found = check(with_options(one, "Global.foo.bar=1", "Global.epohc_num=3", "Train.loader.zzz=1"))
    assert found == [
        "error: -o Global.foo.bar=1: Global.foo: nothing reads this key. `-o +Global.foo=…` sets it all the same.",
        "error: -o Global.epohc_num=3: Global.epohc_num: unknown key. Did you mean 'epoch_num'?",
        "error: -o Train.loader.zzz=1: Train.loader.zzz: nothing reads this key. `-o +Train.loader.zzz=…` sets it "
        "all the same.",
    ]
    assert check(with_options(one, "+Global.foo.bar=1", "+Global.epohc_num=3", "+Train.loader.zzz=1")) == []


def test_an_option_may_give_a_whole_sub_model(two: Config, check: Check) -> None:
    student = json.dumps(two.at("Architecture.Models.Student").thaw())
    assert check(with_options(two, f"Architecture.Models.Student=!replace {student}")) == []
    found = check(with_options(two, "Architecture.Models.Studnet.freeze_params=true"))
    assert any("the files have no such sub-model. Did you mean 'Student'?" in issue for issue in found)


def test_a_key_that_an_option_sets_in_a_file_s_unknown_one_is_an_error(one: Config, check: Check) -> None:
    (issue,) = check(with_options(one, "Architecture.Backbone.use_pos_embedding=true"))
    assert "Did you mean 'use_pos_embed'?" in issue and issue.startswith("error: -o ")


def test_a_fault_says_file_and_line(tmp_path: Path, one: Config, check: Check) -> None:
    (tmp_path / "my.yml").write_text(one.to_yaml())
    (tmp_path / "over.yml").write_text("Global:\n\n  epohc_num: 3\n")
    found = check(load([tmp_path / "my.yml", tmp_path / "over.yml"]))
    assert found == [
        f"error: {tmp_path / 'over.yml'}:3: Global.epohc_num: unknown key. Did you mean 'epoch_num'?"
    ]


def test_a_plugins_component_is_asked_for_its_own_keys(host: Host, one: Config, check: Check) -> None:
    @BACKBONES.register("CheckedNet")
    class CheckedNet:
        def __init__(self, in_channels: int, width: int, depth: int = 2, **kwargs: Any) -> None:
            self.stride = kwargs.get("stride", 1)

    try:
        backbone = {"name": "CheckedNet", "stride": 2, "depht": 3, "zzz": 1}
        found = check(one.with_values({"Architecture.Backbone": backbone}))
    finally:
        del BACKBONES._own["CheckedNet"]
    path = "Architecture.Backbone"
    assert found == [
        f"error: {path}.depht: unknown key. Did you mean 'depth'?",
        f"warning: {path}.zzz: the key is not used.",
        f"error: {path}: width must be given.",
    ]


def test_a_class_of_paddles_own_that_a_plugin_registers(one: Config, check: Check) -> None:
    OPTIMIZERS.register("CheckedLamb")(paddle.optimizer.Lamb)
    try:
        values = {"Optimizer.name": "CheckedLamb", "Optimizer.lamb_weight_decay": 0.01, "Optimizer.zzz": 1}
        found = check(one.with_values(values))
    finally:
        del OPTIMIZERS._own["CheckedLamb"]
    assert "warning: Optimizer.zzz: the key is not used." in found
    assert not any("lamb_weight_decay" in issue for issue in found)


def test_what_was_warned_of_is_not_said_again_when_the_component_is_built(
    host: Host, one: Config, warned: list[str]
) -> None:
    from ppocr_ext.check import check_config

    config = one.with_values({"Loss": {"name": "CTCLoss", "zzz": 1}})
    with said_once():
        issues = [issue for issue in check_config(config, host, "train") if "zzz" in issue.path]
        report_issues(issues + issues)
        build_loss(config.at("Loss").thaw())
    assert warned == [str(issue) for issue in issues]
    assert [issue.code for issue in issues] == ["unused_key"]


def test_what_was_said_of_one_config_says_nothing_of_another(host: Host, one: Config) -> None:
    from ppocr_ext.check import check_config

    with said_once():
        check_config(one.with_values({"Loss": {"name": "CTCLoss", "use_focal_los": True}}), host, "train")
    with said_once(), pytest.raises(ConfigError, match="Did you mean 'use_focal_loss'"):
        build_loss({"name": "CTCLoss", "use_focal_los": True})
