"""A misspelt key or name is an error with the right one; another that nothing reads is a warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paddle
import pytest
from official_facts import Check, errors_at, facts, only

from ppocr_ext.check import check_all
from ppocr_ext.config import Config, load
from ppocr_ext.config.config_view import override
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host
from ppocr_ext.losses import build_loss
from ppocr_ext.registry import BACKBONES, OPTIMIZERS

HEADS = "Architecture.Head.head_list"
MISSPELT = [
    ("Global.epohc_num", 3, "epoch_num"),
    ("Global.pretrained", "x", "pretrained_model"),
    ("Global.epochs", 3, "Global.epoch_num"),
    ("Global.dict_path", "dict.txt", "Global.character_dict_path"),
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
        assert facts(found) == [("warning", "unused_key", path)]
    else:
        (issue,) = (issue for issue in found if issue.code == "unknown_key")
        assert issue.level == "error" and issue.path.startswith(path) and f"{right!r}" in issue.message


MISNAMED = [
    ("Architecture.Backbone.name", "SVTRv3", "SVTRv2"),
    ("Architecture.Head.name", "MultiHeads", "MultiHead"),
    ("Loss.name", "MultLoss", "MultiLoss"),
    ("Loss.name", "PARSeqLoss", "ParseQLoss"),
    ("Optimizer.name", "AdmaW", "AdamW"),
    ("Optimizer.lr.name", "Cosin", "Cosine"),
    ("Metric.name", "RecMetrics", "RecMetric"),
    ("PostProcess.name", "CTCLabelDecoder", "CTCLabelDecode"),
    ("Train.dataset.name", "MultiscaleDataset", "MultiScaleDataSet"),
    ("Train.sampler.name", "MultiscaleSampler", "MultiScaleSampler"),
    ("Train.loader.collate_fn", "SSLRotateColate", "SSLRotateCollate"),
    ("Train.dataset.transforms.MultiLabelEncode.gtc_encode", "NRTRLabelEncoder", "NRTRLabelEncode"),
    (f"{HEADS}.CTCHead.Neck.name", "svrt", "svtr"),
]


@pytest.mark.parametrize(("path", "name", "nearest"), MISNAMED)
def test_an_unknown_name_names_the_nearest(
    path: str, name: str, nearest: str, one: Config, check: Check
) -> None:
    issue = only(errors_at(check(one.with_values({path: name})), path))
    assert issue.code == "unknown_component"
    assert f"{name!r}" in issue.message and f"{nearest!r}" in issue.message


def test_a_transform_that_the_host_lacks_is_named(one: Config, check: Check) -> None:
    transforms = one.thaw()["Train"]["dataset"]["transforms"]
    transforms[1] = {"RecAugg": None}
    issue = only(check(one.with_values({"Train.dataset.transforms": transforms})))
    assert facts([issue]) == [("error", "unknown_component", "Train.dataset.transforms.RecAugg")]
    assert "'RecAug'" in issue.message


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("Architecture.Head.name", "SATRNHead"),
        ("Loss.name", "AsterLoss"),
        ("Architecture.Transform", {"name": "STN_ON"}),
        ("Architecture.Neck", {"name": "SequenceEncoder", "encoder_type": "cascadernn"}),
    ],
)
def test_a_component_of_a_checkout_advises_host(path: str, name: Any, one: Config, check: Check) -> None:
    found = check(one.with_values({path: name}))
    assert any(issue.code == "unknown_component" and "`--host DIR`" in issue.message for issue in found)


def test_a_name_that_paddleocr_gave_up_names_its_successor(one: Config, check: Check) -> None:
    found = check(one.with_values({"Architecture.Backbone": {"name": "repvit_svtr"}}))
    assert found[0].code == "unknown_component" and "'RepSVTR'" in found[0].message


def test_other_unknown_keys_are_warnings(one: Config, check: Check) -> None:
    values = {
        "Global.my_plugin_width": 3,
        "MyPlugin": {"width": 3},
        "Architecture.Backbone.zzz": 1,
        "Train.loader.zzz": 1,
        "PostProcess.zzz": 1,
    }
    found = check(one.with_values(values))
    assert sorted(facts(found)) == sorted(("warning", "unused_key", path) for path in values)


def test_keys_of_the_previous_optimizer_are_not_misspelt(one: Config, check: Check) -> None:
    found = check(one.with_values({"Optimizer.name": "Adam", "Optimizer.lr.name": "Const"}))
    unused = ("no_weight_decay_name", "one_dim_param_no_weight_decay")
    assert facts(found) == [("warning", "unused_key", f"Optimizer.{key}") for key in unused]


def test_a_misspelt_section_is_an_error(one: Config, check: Check) -> None:
    issue = only(check(one.with_values({"Optimzer": {}})))
    assert facts([issue]) == [("error", "unknown_key", "Optimzer")] and "'Optimizer'" in issue.message


def with_options(config: Config, *options: str) -> Config:
    return Config.of(override(config._node, options))


def test_an_unread_option_is_an_error_and_a_plus_forces_it(one: Config, check: Check) -> None:
    found = check(with_options(one, "Global.foo.bar=1", "Global.epohc_num=3", "Train.loader.zzz=1"))
    assert [(issue.level, issue.code, issue.path, issue.where) for issue in found] == [
        ("error", "unused_option", "Global.foo", "-o Global.foo.bar=1"),
        ("error", "unknown_key", "Global.epohc_num", "-o Global.epohc_num=3"),
        ("error", "unused_option", "Train.loader.zzz", "-o Train.loader.zzz=1"),
    ]
    assert all(f"-o +{issue.path}=" in issue.message for issue in (found[0], found[2]))
    assert check(with_options(one, "+Global.foo.bar=1", "+Global.epohc_num=3", "+Train.loader.zzz=1")) == []


def test_a_key_that_paddleocr_ignores_is_a_warning_as_an_option_too(one: Config, check: Check) -> None:
    keys = (
        "Global.load_static_weights",
        "Optimizer.lr.T_max",
        "Optimizer.lr.div_factor",
        "Optimizer.lr.pct_start",
    )
    keys += ("Train.loader.prefetch_factor", "Eval.loader.prefetch_factor")
    found = check(with_options(one, *(f"{key}=2" for key in keys)))
    assert sorted(facts(found)) == sorted(("warning", "unused_key", key) for key in keys)
    assert all("PaddleOCR ignores" in issue.message for issue in found)


def test_an_option_may_give_a_whole_sub_model(two: Config, check: Check) -> None:
    student = json.dumps(two.at("Architecture.Models.Student").thaw())
    assert check(with_options(two, f"Architecture.Models.Student=!replace {student}")) == []
    found = check(with_options(two, "Architecture.Models.Studnet.freeze_params=true"))
    (issue,) = errors_at(found, "Architecture.Models.Studnet")
    assert issue.code == "unknown_sub_model" and "'Student'" in issue.message


def test_an_issue_has_file_and_line(tmp_path: Path, one: Config, check: Check) -> None:
    (tmp_path / "my.yml").write_text(one.to_yaml())
    (tmp_path / "over.yml").write_text("Global:\n\n  epohc_num: 3\n")
    found = check(load([tmp_path / "my.yml", tmp_path / "over.yml"]))
    assert [(issue.code, issue.where) for issue in found] == [("unknown_key", f"{tmp_path / 'over.yml'}:3")]


def test_a_plugins_component_is_judged_by_its_signature(host: Host, one: Config) -> None:
    @BACKBONES.register("CheckedNet")
    class CheckedNet:
        def __init__(self, in_channels: int, width: int, depth: int = 2, **kwargs: Any) -> None:
            self.stride = kwargs.get("stride", 1)

    try:
        backbone = {"name": "CheckedNet", "stride": 2, "depht": 3, "zzz": 1}
        found, unused = check_all(one.with_values({"Architecture.Backbone": backbone}), host, "train")
    finally:
        del BACKBONES._own["CheckedNet"]
    path = "Architecture.Backbone"
    assert facts(found) == [
        ("warning", "unused_key", f"{path}.stride"),
        ("warning", "unknown_key", f"{path}.depht"),
        ("warning", "unused_key", f"{path}.zzz"),
        ("error", "missing_key", f"{path}.width"),
    ]
    assert "'depth'" in found[1].message
    assert unused == []  # any of them may be read from its `**kwargs`


def test_a_class_of_paddles_own_that_a_plugin_registers(one: Config, check: Check) -> None:
    OPTIMIZERS.register("CheckedLamb")(paddle.optimizer.Lamb)
    try:
        values = {"Optimizer.name": "CheckedLamb", "Optimizer.lamb_weight_decay": 0.01, "Optimizer.zzz": 1}
        found = check(one.with_values(values))
    finally:
        del OPTIMIZERS._own["CheckedLamb"]
    assert ("warning", "unused_key", "Optimizer.zzz") in facts(found)
    assert not any(issue.path.endswith("lamb_weight_decay") for issue in found)


def test_keys_that_no_component_takes_are_listed_for_the_builders(host: Host, one: Config) -> None:
    config = one.with_values({"Loss": {"name": "CTCLoss", "zzz": 1}})
    issues, unused = check_all(config, host, "train")
    assert [issue.code for issue in issues if issue.path == "Loss.zzz"] == ["unused_key"]
    assert ("Loss", "zzz") in unused
    assert config.without(unused).at("Loss") == {"name": "CTCLoss"}


def test_a_builder_called_from_python_reports_unknown_keys(warned: list[str]) -> None:
    build_loss({"name": "CTCLoss", "zzz": 1})
    assert len(warned) == 1 and "zzz" in warned[0]
    with pytest.raises(ConfigError, match="Did you mean 'use_focal_loss'"):
        build_loss({"name": "CTCLoss", "use_focal_los": True})
