"""Numbers and truths written as text, missing sections and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from official_facts import Check, facts

from ppocr_ext.config import Config
from ppocr_ext.config.config_view import override
from ppocr_ext.config.global_keys import GLOBAL_KEYS
from ppocr_ext.inference import runners

WRONG = [
    ("Global.epoch_num", 2.5, "bad_value", "at least 1"),
    ("Global.epoch_num", "20", "quoted_value", "'20'"),
    ("Global.seed", -1, "bad_value", "between 0 and"),
    ("Global.print_batch_step", True, "bad_value", "True"),
    ("Global.use_gpu", "true", "quoted_value", "'true'"),
    ("Global.scale_loss", "1024", "quoted_value", "'1024'"),
    ("Global.max_unusable", 10, "bad_value", "between 0 and 1"),
    ("Global.amp_level", "02", "bad_value", "O0, OD, O1, O2"),
    ("Global.plugins", "my_module", "bad_value", "[my_module]"),
    ("Global.save_model_dir", False, "bad_value", "quotes"),
    ("Global.eval_batch_step", "often", "bad_value", "[first, every]"),
    ("Global.eval_batch_step", [0, 0], "bad_value", "[0, 0]"),
    ("Optimizer.lr.learning_rate", "1e-3", "quoted_value", "'1e-3'"),
    ("Optimizer.lr.learning_rate", "fast", "bad_value", "'fast'"),
    ("Optimizer.weight_decay", float("nan"), "bad_value", "nan"),
    ("Optimizer.clip_norm_global", -1, "bad_value", "at least 0"),
    ("Optimizer.lr.learning_rate", -0.001, "bad_value", "-0.001"),
    ("Train.dataset.transforms", [], "empty_value", ""),
    ("Architecture.Head.head_list", None, "empty_value", "CTCHead"),
    ("Architecture", None, "empty_value", "`train`"),
    ("Global.amp_dtype", "fp16", "bad_value", "float16, bfloat16"),
    ("Global.unknown_char", "drop", "bad_value", "drop_line, drop_char"),
    ("Global.pretrained_model", ["a"], "bad_value", "['a']"),
    ("Train.dataset.label_file_list", None, "empty_value", ""),
    ("Train.dataset.label_file_list", {"a": 1}, "bad_value", "{'a': 1}"),
    ("Train.dataset.data_dir", 3, "bad_value", "3"),
    ("Architecture.Backbone.use_pool", "true", "quoted_value", "'true'"),
    ("Train.loader.batch_size_per_card", 0, "bad_value", "at least 1"),
    ("Train.loader.shuffle", "false", "quoted_value", "'false'"),
    ("Metric.main_indicator", "accuracy", "bad_value", "acc, norm_edit_dis"),
    ("Global.epoch_num", 0, "bad_value", "at least 1"),
    ("Global.seed", 1e20, "bad_value", "4294967295"),
    ("Global.nonfinite", "rollback", "bad_value", "stop, skip"),
    ("Global.early_stop", {"patience": 0}, "bad_value", "0"),
    ("Optimizer.lr.learning_rate", float("nan"), "bad_value", "nan"),
    ("Optimizer.beta1", float("nan"), "bad_value", "nan"),
    ("Optimizer.beta2", 9.99, "bad_value", "9.99"),
    ("Loss.weight_1", float("nan"), "bad_value", "nan"),
    ("Train.loader.batch_size_per_card", "8", "quoted_value", "'8'"),
    ("Train.dataset.ratio_list", 2.0, "bad_value", "between 0 and 1"),
    ("Train.dataset.ratio_list", [1.0, 0.5], "length_mismatch", "2 shares"),
    ("Eval.dataset.ratio_list", [1.0, 1.0], "length_mismatch", "2 shares"),
    ("Train.teacher_cache", "no/cache", "missing_folder", "no/cache"),
    ("Optimizer.group_lr", True, "unsupported_key", ""),
    ("Optimizer.regularizer", {"name": "L2", "factor": 0.001}, "conflicting_keys", "`weight_decay`"),
]


@pytest.mark.parametrize(("path", "value", "code", "fact"), WRONG)
def test_a_wrong_value_is_named(
    path: str, value: Any, code: str, fact: str, one: Config, check: Check
) -> None:
    (issue,) = check(one.with_values({path: value}))
    assert facts([issue]) == [("error", code, path)] and fact in issue.message


def test_a_number_of_a_distillation_loss_is_finite(two: Config, check: Check) -> None:
    path = "Loss.loss_config_list.DistillationDKDLoss.beta"
    assert ("error", "bad_value", path) in facts(check(two.with_values({path: float("nan")})))


def test_an_engine_that_is_not_installed_is_named(
    one: Config, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "Global.teacher_engine": "openvino",
        "Global.eval_engine": "onnxruntime",
        "Global.use_gpu": False,
    }
    config = one.with_values(values)
    monkeypatch.setattr(runners, "find_spec", lambda name: name)
    assert check(config) == []
    monkeypatch.setattr(runners, "find_spec", lambda name: None)
    for role, key, package in (("train", "teacher_engine", "openvino"), ("eval", "eval_engine", "onnx")):
        (issue,) = check(config, role)
        assert facts([issue]) == [("error", "missing_package", f"Global.{key}")]
        assert f"ppocr-ext[{package}]" in issue.message
        assert check(config.with_values({"Global.use_gpu": True}), role) == []  # the network itself computes
    assert check(config, "predict") == []


def test_only_a_value_that_fits_without_quotes_is_called_quoted(one: Config, check: Check) -> None:
    found = check(one.with_values({"Global.use_gpu": "flase", "Global.epoch_num": "two"}))
    assert sorted(facts(found)) == [
        ("error", "bad_value", "Global.epoch_num"),
        ("error", "bad_value", "Global.use_gpu"),
    ]


LACKING = [
    "Optimizer.lr.learning_rate",
    "Optimizer.lr",
    "Loss.name",
    "Train.loader.drop_last",
    "Train.dataset.data_dir",
    "Train.sampler.scales",
    "Architecture.algorithm",
    "Architecture.Head.head_list",
    "Eval.dataset.transforms.KeepKeys.keep_keys",
    "Train",
]


@pytest.mark.parametrize("path", LACKING)
def test_a_missing_key_is_named(path: str, one: Config, check: Check) -> None:
    config = one.thaw()
    *parents, last = path.split(".")
    node = config
    for part in parents:
        node = next(item[part] for item in node if part in item) if isinstance(node, list) else node[part]
    del node[last]
    code = "missing_key" if parents else "missing_section"
    assert ("error", code, path) in facts(check(config))


def test_an_evaluation_needs_neither_train_nor_loss(one: Config, check: Check) -> None:
    config = one.thaw()
    for section in ("Train", "Loss", "Optimizer"):
        del config[section]
    assert check(config, "eval") == []
    assert len(check(config, "train")) == 3


def test_null_is_the_default(one: Config, check: Check) -> None:
    assert (
        check(one.with_values({f"Global.{key}": None for key in GLOBAL_KEYS if key != "character_dict_path"}))
        == []
    )


def every_path(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from every_path(item, (*path, str(key)))


@pytest.mark.parametrize("value", [5, [{}], {}], ids=str)
def test_a_value_of_any_type_anywhere_raises_nothing(value: Any, two: Config, check: Check) -> None:
    named = [
        path for path in every_path(two.thaw()) if path[0] in ("Architecture", "Loss", "PostProcess", "Eval")
    ]
    named = [path for path in named if "Teacher" not in path]
    assert len(named) > 80
    for path in named:
        check(two.with_values({path: value}))


def placed(config: Config, option: str) -> Config:
    return Config.of(override(config._node, [option]))


@pytest.mark.parametrize("part", ["Backbone", "Head"])
@pytest.mark.parametrize("model", ["", ".Models.Student"])
def test_a_model_without_backbone_or_head(
    part: str, model: str, one: Config, two: Config, check: Check
) -> None:
    config = two.with_values({"Architecture.Models.Student.return_all_feats": False}) if model else one
    option = f"-o Architecture{model}.{part}=null"
    found = check(placed(config, option.removeprefix("-o ")))
    assert facts(found)[0] == ("error", "missing_part", f"Architecture{model}.{part}")
    assert found[0].where == option
    assert model or len(found) == 1
    config = one.thaw()
    del config["Architecture"][part]
    assert facts(check(config)) == [("error", "missing_part", f"Architecture.{part}")]


@pytest.mark.parametrize(
    "option",
    [
        "Architecture.Head.head_list=null",
        "Architecture=null",
        "Optimizer.lr=null",
        "Train.loader=null",
    ],
)
def test_an_option_that_removes_a_value_is_the_place(option: str, one: Config, check: Check) -> None:
    (issue,) = check(placed(one, option))
    assert (issue.level, issue.where) == ("error", f"-o {option}")


def test_a_removed_sub_model_is_the_only_issue(two: Config, check: Check) -> None:
    for option in ("Architecture.Models.Student=null", "Architecture.Models.Student.Head.head_list=null"):
        (issue,) = check(placed(two, option))
        assert (issue.level, issue.where) == ("error", f"-o {option}")


def test_rates_of_a_schedule_are_not_negative(one: Config, check: Check) -> None:
    rates = {"name": "Piecewise", "decay_epochs": [3], "values": [0.001, -0.01]}
    (issue,) = check(one.with_values({"Optimizer.lr": rates}))
    assert facts([issue]) == [("error", "bad_value", "Optimizer.lr.values.1")] and "-0.01" in issue.message


@pytest.mark.parametrize("role", ["train", "eval"])
def test_an_evaluation_that_skips_or_shuffles_samples_is_a_warning(
    role: str, one: Config, check: Check
) -> None:
    for key in ("drop_last", "shuffle"):
        found = check(one.with_values({f"Eval.loader.{key}": True}), role)
        assert facts(found) == [("warning", "ignored_value", f"Eval.loader.{key}")]
        assert check(one.with_values({f"Eval.loader.{key}": False}), role) == []


def test_an_evaluation_of_a_share_of_the_samples_is_a_warning(one: Config, check: Check) -> None:
    path = "Eval.dataset.ratio_list"
    assert check(one.with_values({path: [1.0]})) == []
    for share in ([0.5], 0.5):
        assert facts(check(one.with_values({path: share}))) == [("warning", "partial_evaluation", path)]


def test_an_empty_global_is_an_error(one: Config, check: Check) -> None:
    assert ("error", "empty_value", "Global") in facts(check(one.with_values({"Global": None})))


@pytest.mark.parametrize("key", ["learning_rate", "grad_clip"])
def test_keys_that_the_program_gives_the_optimizer_are_errors(key: str, one: Config, check: Check) -> None:
    option = f"Optimizer.{key}=4"
    (issue,) = check(placed(one, option))
    assert (issue.level, issue.path, issue.where) == ("error", f"Optimizer.{key}", f"-o {option}")


def test_a_config_without_a_dictionary_is_a_warning(one: Config, check: Check) -> None:
    found = check(one.with_values({"Global.character_dict_path": None}))
    assert facts(found) == [("warning", "no_dictionary", "Global.character_dict_path")]
