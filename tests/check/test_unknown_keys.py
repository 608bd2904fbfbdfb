"""A misspelt key or name is an error with the right one; another that nothing reads is a warning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paddle
import pytest
import yaml
from official_facts import Check, errors_at, facts, only

from ppocr_ext.check import check_all, check_config
from ppocr_ext.check.config_check import home_of
from ppocr_ext.config import Config, load
from ppocr_ext.config.config_view import override
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue
from ppocr_ext.losses import build_loss
from ppocr_ext.registry import BACKBONES, OPTIMIZERS

HEADS = "Architecture.Head.head_list"
MISSPELT = [
    ("Global.epohc_num", 3, "epoch_num"),
    ("Global.pretrained", "x", "pretrained_model"),
    ("Global.pretrain_weights", "x", "Global.pretrained_model"),
    ("Global.epochs", 3, "Global.epoch_num"),
    ("Global.dict_path", "dict.txt", "Global.character_dict_path"),
    ("Architecture.Backbone.dim", [1], "dims"),
    (f"{HEADS}.CTCHead.Necks", {}, "Neck"),
    (f"{HEADS}.CTCHead.Neck.hiden_dims", 8, "hidden_dims"),
    (f"{HEADS}.NRTRHead.nrtr_dims", 8, "nrtr_dim"),
    ("Loss.weight1", 1.0, "weight_1"),
    ("Loss.loss_config_list.NRTRLoss", {"smothing": True}, "smoothing"),
    ("Optimizer.beta_1", 0.9, "beta1"),
    ("Optimizer.lr.warmup_epochs", 1, "warmup_epoch"),
    ("Optimizer.grad_clip", 5.0, "Optimizer.clip_norm_global"),
    ("Global.pretrained_modle", "x", "pretrained_model"),
    ("Optimizer.regularizer", {"name": "L2", "factr": 1.0}, "factor"),
    ("Metric.ignore_spaces", True, "ignore_space"),
    ("Train.dataset.transforms.DecodeImage.img_mod", "BGR", "img_mode"),
    ("Train.dataset.transforms.MultiLabelEncode.gtc_encod", "NRTRLabelEncode", "gtc_encode"),
    ("Train.sampler.first_batch", 8, None),
    ("Train.loader.batch_size_per_gpu", 8, "Train.loader.batch_size_per_card"),
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


@pytest.mark.parametrize("key", ["pretrain_weights", "epohc_num"])
def test_a_misspelt_key_without_a_value_is_a_warning(key: str, one: Config, check: Check) -> None:
    found = check(one.with_values({f"Global.{key}": None}))
    assert facts(found) == [("warning", "unknown_key", f"Global.{key}")]


MISNAMED = [
    ("Architecture.Backbone.name", "SVTRv3", "SVTRv2"),
    ("Loss.name", "MultLoss", "MultiLoss"),
    ("Optimizer.name", "AdmaW", "AdamW"),
    ("Optimizer.lr.name", "Cosin", "Cosine"),
    ("Metric.name", "RecMetrics", "RecMetric"),
    ("PostProcess.name", "CTCLabelDecoder", "CTCLabelDecode"),
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


@pytest.mark.parametrize(("name", "of_fork"), [("MyMultiLoss", True), ("MultLoss", False)])
def test_a_name_with_an_addition_may_be_of_a_fork(
    name: str, of_fork: bool, one: Config, check: Check
) -> None:
    issue = only(errors_at(check(one.with_values({"Loss.name": name})), "Loss.name"))
    assert "'MultiLoss'" in issue.message and ("`--host DIR`" in issue.message) is of_fork


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
        ("Architecture.Transform", {"name": "GA_SPIN"}),
        ("Architecture.Neck", {"name": "SequenceEncoder", "encoder_type": "cascadernn"}),
    ],
)
def test_a_component_of_a_checkout_advises_host(path: str, name: Any, one: Config, check: Check) -> None:
    found = check(one.with_values({path: name}))
    assert any(issue.code == "unknown_component" and "`--host DIR`" in issue.message for issue in found)


def test_a_name_that_paddleocr_gave_up_names_its_successor(one: Config, check: Check) -> None:
    listed = {"Train.dataset.transforms": [{"NRTRRecResizeImg": None}]}
    for values, successor in (
        ({"Architecture.Backbone": {"name": "repvit_svtr"}}, "RepSVTR"),
        (listed, "GrayRecResizeImg"),
        ({"PostProcess.name": "SVTRLabelDecode"}, "CTCLabelDecode"),
        ({"Loss": {"name": "CrossEntropyLoss"}}, "CELoss"),
        ({"Loss": {"name": "DistillationNRTRDMLLoss"}}, "DistillationDMLLoss, dis_head: gtc"),
    ):
        found = check(one.with_values(values))
        assert found[0].code == "unknown_component" and f"'{successor}'" in found[0].message


@pytest.mark.parametrize(
    ("path", "name"), [("Architecture.Head.name", "MyHead"), ("Train.dataset.name", "DistillationDataSet")]
)
def test_a_name_that_is_only_of_the_same_kind_is_no_misspelling(
    path: str, name: str, one: Config, check: Check
) -> None:
    issue = only(errors_at(check(one.with_values({path: name})), path))
    assert issue.code == "unknown_component" and "Did you mean" not in issue.message


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


def test_unused_keys_of_a_part_are_named_together(one: Config, check: Check) -> None:
    backbone = {"name": "PPHGNetV2_B4", "text_rec": True, "use_glb_avg": True, "class_expand": 2048}
    issue = only(check(one.with_values({"Architecture.Backbone": backbone})))
    assert facts([issue]) == [("warning", "unused_key", "Architecture.Backbone")]
    assert "use_glb_avg, class_expand" in issue.message


@pytest.mark.parametrize(
    "path",
    [
        "Global.infer_model",
        "Train.dataset.transforms.RecAug.aug_prob",
        "Global.save_iter_step",  # of forks
        "Architecture.freeze_params_func",
        "Optimizer.weight_decay_adamw",
    ],
)
def test_a_near_miss_that_paddleocr_never_reads_is_a_warning(path: str, one: Config, check: Check) -> None:
    section, _, key = path.rpartition(".")
    values = {section: {key: 0.4}} if "transforms" in path else {path: "x"}
    assert facts(check(one.with_values(values))) == [("warning", "unused_key", path)]


@pytest.mark.parametrize(
    ("name", "key", "value", "changes_nothing"),
    [
        ("PPHGNet_small", "stem_channels", [64, 64, 128], True),
        ("PPHGNet_small", "layer_num", 5, False),
        ("RepSVTR", "zzz", 1, False),
        ("PPHGNet_small", "train_frame", 40, None),  # near a key of ours
        ("PPHGNet_small", "use_ssld", True, None),  # PaddleOCR accepts it
    ],
)
def test_a_key_that_paddleocr_refuses_is_an_error(
    name: str, key: str, value: Any, changes_nothing: bool | None, one: Config, check: Check
) -> None:
    issue = only(check(one.with_values({"Architecture.Backbone": {"name": name, key: value}})))
    assert issue.path == f"Architecture.Backbone.{key}"
    assert (issue.code == "refused_key") is (changes_nothing is not None)
    assert ("nothing changes" in issue.message) is bool(changes_nothing)


def test_a_rate_that_the_schedule_does_not_read_names_its_own_keys(one: Config, check: Check) -> None:
    rates = {"name": "Piecewise", "learning_rate": 1e-3, "decay_epochs": [3], "values": [1e-3, 1e-4]}
    issue = only(check(one.with_values({"Optimizer.lr": rates})))
    assert facts([issue]) == [("warning", "unused_key", "Optimizer.lr.learning_rate")]
    assert "decay_epochs" in issue.message and "values" in issue.message


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


def test_the_margin_of_an_earlier_version_is_a_warning(one: Config, check: Check) -> None:
    margin = "{update: ema, margin: 1.0, look_alikes: shipped}"
    found = check(with_options(one, f"Loss={{name: CTCLoss, loss_config_list: [{{CenterLoss: {margin}}}]}}"))
    assert {(level, code) for level, code, _ in facts(found)} == {("warning", "unused_key")}
    assert len(found) == 2


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


# Hints name what was meant: the section that a key belongs to, the line of a wrong indentation, a host only once

MISPLACED = [
    ("Global.learning_rate", "Optimizer.lr.learning_rate"),
    ("Global.learning_rat", "Optimizer.lr.learning_rate"),
    ("Global.batch_size", "Train.loader.batch_size_per_card"),
    ("Global.num_workers", "Train.loader.num_workers"),
    ("Optimizer.warmup_epoch", "Optimizer.lr.warmup_epoch"),
    ("Eval.batch_size", "Eval.loader.batch_size_per_card"),
    ("Train.seed", "Global.seed"),
    ("epoch_num", "Global.epoch_num"),
]


@pytest.mark.parametrize(("path", "home"), MISPLACED)
def test_a_key_in_the_wrong_section_names_the_right_one(
    host: Host, one: Config, path: str, home: str
) -> None:
    assert home_of(tuple(path.split("."))) == home
    if path.startswith("Global"):
        given = Config.of(override(one._node, [f"{path}=1"]))
        (issue,) = (issue for issue in check_config(given, host, "train") if issue.path == path)
        assert issue.level == "error" and home in issue.message
        assert "training_step" not in issue.message and "eval_batch_step" not in issue.message
    (issue,) = (f for f in check_config(one.with_values({path: 1}), host, "train") if f.path == path)
    of_others = path.endswith((".learning_rate", ".batch_size"))  # no config of PaddleOCR has these there
    assert (issue.level, issue.code) == (("error", "unknown_key") if of_others else ("warning", "unused_key"))
    assert home in issue.message


def issues_of(host: Host, folder: Path, config: dict[str, Any], text: str) -> dict[str, Issue]:
    del config["Train"]
    (folder / "my.yml").write_text(yaml.safe_dump(config, sort_keys=False) + text)
    return {issue.path: issue for issue in check_config(load(folder / "my.yml"), host, "train")}


def line_of(folder: Path, text: str) -> int:
    lines = (folder / "my.yml").read_text().splitlines()
    return max(i for i, line in enumerate(lines, 1) if text in line)


LOADER = "shuffle: true\nbatch_size_per_card: 8\ndrop_last: true\nnum_workers: 0\n"


def indented(text: str, spaces: int) -> str:
    return "".join(f"{' ' * spaces}{line}\n" for line in text.splitlines())


def train_section(one: Config, loader: str, dataset: str | None = None) -> str:
    own = yaml.safe_dump(one.thaw()["Train"]["dataset"], sort_keys=False)
    return "Train:\n  dataset:\n" + (dataset or indented(own, 4)) + "  loader:\n" + loader


@pytest.mark.parametrize("spaces", [2, 0])
def test_keys_of_the_loader_beside_it(host: Host, tmp_path: Path, one: Config, spaces: int) -> None:
    found = issues_of(host, tmp_path, one.thaw(), train_section(one, indented(LOADER, spaces)))
    path = "Train.batch_size_per_card" if spaces else "batch_size_per_card"
    issue = found[path]
    assert (issue.level, issue.where) == (
        "error",
        f"{tmp_path / 'my.yml'}:{line_of(tmp_path, 'batch_size_per_card')}",
    )
    assert "indentation" in issue.message and "`loader:`" in issue.message and "num_workers" in issue.message
    assert "Train.loader" not in found
    if spaces:
        assert "Train.shuffle" not in found  # named in the one issue


def test_an_empty_loader_without_its_keys_must_be_given(host: Host, tmp_path: Path, one: Config) -> None:
    found = issues_of(host, tmp_path, one.thaw(), train_section(one, ""))
    assert found["Train.loader"].code == "missing_key"


def test_a_key_beside_a_whole_loader_is_an_unused_one(host: Host, one: Config) -> None:
    issues = check_config(one.with_values({"Train.shuffle": True}), host, "train")
    assert [(issue.path, issue.level) for issue in issues] == [("Train.shuffle", "warning")]


@pytest.mark.parametrize("key", ["dict", "lr", "loss"])
def test_a_far_fetched_name_is_no_hint(key: str, one: Config, host: Host) -> None:
    config = Config.of(override(one._node, [f"Global.{key}=4"]))
    (issue,) = (f for f in check_config(config, host, "train") if f.path == f"Global.{key}")
    assert issue.level == "error"
    assert not any(name in issue.message for name in ("strict", "lower", "scale_loss"))
