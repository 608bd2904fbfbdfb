"""Numbers and truths written as text, missing sections and keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from official_facts import Check

import ppocr_ext
from ppocr_ext.check.global_keys import GLOBAL_KEYS
from ppocr_ext.config import Config
from ppocr_ext.config.override import override

WRONG = [
    ("Global.epoch_num", 2.5, "2.5 is not a whole number of at least 1."),
    ("Global.epoch_num", "20", "'20' is not a whole number of at least 1. Write it without quotes."),
    ("Global.seed", -1, "-1 is not a whole number of at least 0."),
    ("Global.print_batch_step", True, "True is not a whole number of at least 1."),
    ("Global.use_gpu", "true", "'true' is neither true nor false. Write it without quotes."),
    ("Global.use_space_char", "no", "'no' is neither true nor false. Write it without quotes."),
    ("Global.scale_loss", "1024", "'1024' is no number. Write it without quotes."),
    ("Global.max_unusable", 10, "it is 10, but must be between 0 and 1."),
    ("Global.amp_level", "02", "'02' is none of"),
    ("Global.plugins", "my_module", "'my_module' is no list. Write [my_module]."),
    ("Global.save_model_dir", False, "False is not the name of a folder."),
    ("Global.eval_batch_step", "often", "'often' is neither a number of steps nor [first, every]."),
    ("Global.eval_batch_step", [0, 0], "[0, 0] evaluates every 0 steps from 0 on."),
    ("Optimizer.lr.learning_rate", "1e-3", "'1e-3' is text. Write the number without quotes."),
    ("Optimizer.weight_decay", "0.05", "'0.05' is text. Write the number without quotes."),
    ("Optimizer.lr.learning_rate", "fast", "'fast' is no number."),
    ("Optimizer.lr.learning_rate", [0.1], "[0.1] is no number."),
    ("Optimizer.weight_decay", float("nan"), "nan is no number."),
    ("Optimizer.weight_decay", [1], "[1] is no number."),
    ("Optimizer.clip_norm_global", True, "True is no number."),
    ("Optimizer.clip_norm_global", -1, "-1 is negative. Give a number of at least 0."),
    ("Optimizer.lr.learning_rate", -0.001, "-0.001 is negative."),
    ("Train.dataset.transforms", [], "is empty, but must be given."),
    ("Architecture.Head.head_list", None, "is empty; it lists the heads: `- CTCHead: {…}`"),
    ("Architecture", None, "is empty, but `train` needs it."),
    ("Global.amp_dtype", "fp16", "'fp16' is none of float16, bfloat16."),
    ("Global.unknown_char", "drop", "'drop' is none of drop_line, drop_char."),
    ("Global.pretrained_model", ["a"], "['a'] is no text."),
    ("Train.dataset.transforms", None, "is empty, but must be given."),
    ("Train.dataset.label_file_list", None, "is empty, but must be given."),
    ("Train.dataset.label_file_list", {"a": 1}, "{'a': 1} is no list of label files."),
    ("Train.dataset.data_dir", 3, "3 is not the name of a folder."),
    ("Architecture.Backbone.use_pool", "true", "'true' is text. Write true or false, without quotes."),
    ("Train.loader.batch_size_per_card", 0, "0 is not a whole number of at least 1."),
    ("Train.loader.shuffle", "false", "'false' is neither true nor false. Write it without quotes."),
    ("Metric.main_indicator", "accuracy", "'accuracy' is not among acc, norm_edit_dis."),
    ("Optimizer.group_lr", True, "is not supported. Take it out."),
    (
        "Optimizer.regularizer",
        {"name": "L2", "factor": 1.0},
        "`regularizer` and `weight_decay` exclude each other.",
    ),
]


@pytest.mark.parametrize(("path", "value", "said"), WRONG)
def test_a_value_of_the_wrong_kind_is_named(
    path: str, value: Any, said: str, one: Config, check: Check
) -> None:
    (issue,) = check(one.with_values({path: value}))
    assert issue.startswith(f"error: {path}: ") and said in issue


def test_only_what_would_do_without_quotes_is_said_to(one: Config, check: Check) -> None:
    found = check(one.with_values({"Global.use_gpu": "flase", "Global.epoch_num": "two"}))
    assert sorted(found) == [
        "error: Global.epoch_num: 'two' is not a whole number of at least 1.",
        "error: Global.use_gpu: 'flase' is neither true nor false.",
    ]


LACKING = [
    ("Optimizer.lr.learning_rate", "Optimizer.lr: learning_rate must be given."),
    ("Optimizer.lr", "Optimizer: `lr` is missing"),
    ("Loss.name", "Loss: `name` is missing."),
    ("Train.loader.drop_last", "Train.loader: drop_last must be given."),
    ("Train.dataset.data_dir", "Train.dataset: data_dir must be given."),
    ("Train.sampler.scales", "Train.sampler: scales must be given."),
    ("Architecture.algorithm", "Architecture.algorithm: is missing"),
    ("Architecture.Head.head_list", "Architecture.Head: head_list must be given."),
    ("Train", "The config has no section Train, which `train` needs."),
    (
        "Eval.dataset.transforms.KeepKeys.keep_keys",
        "Eval.dataset.transforms.KeepKeys: keep_keys must be given.",
    ),
]


@pytest.mark.parametrize(("path", "said"), LACKING)
def test_what_must_be_given_is_named(path: str, said: str, one: Config, check: Check) -> None:
    config = one.thaw()
    *parents, last = path.split(".")
    node = config
    for part in parents:
        node = next(item[part] for item in node if part in item) if isinstance(node, list) else node[part]
    del node[last]
    assert any(issue.startswith(f"error: {said}") for issue in check(config))


def test_an_evaluation_needs_neither_train_nor_loss(one: Config, check: Check) -> None:
    config = one.thaw()
    for section in ("Train", "Loss", "Optimizer"):
        del config[section]
    assert check(config, "eval") == []
    assert len(check(config, "train")) == 3


def test_null_is_no_value(one: Config, check: Check) -> None:
    assert (
        check(one.with_values({f"Global.{key}": None for key in GLOBAL_KEYS if key != "character_dict_path"}))
        == []
    )


def test_every_key_of_global_has_a_meaning() -> None:
    assert [name for name, key in GLOBAL_KEYS.items() if not key.meaning.strip()] == []


def test_every_key_of_global_that_the_package_reads_is_known() -> None:
    package = Path(ppocr_ext.__file__).parent
    reading = re.compile(r"""["'(]Global\.(\w+)["']""")
    read = {
        name for file in package.rglob("*.py") for name in reading.findall(file.read_text(encoding="utf-8"))
    }
    assert len(read) > 20
    assert read - set(GLOBAL_KEYS) == set()


def every_path(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from every_path(item, (*path, str(key)))


@pytest.mark.parametrize("value", [5, [{}], {}], ids=str)
def test_a_value_of_any_form_anywhere_is_a_fault_and_no_crash(value: Any, two: Config, check: Check) -> None:
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
    assert found[0].startswith(
        f"error: {option}: Architecture{model}: has no {part}. Give it one, such as `{part}:"
    )
    assert model or len(found) == 1
    config = one.thaw()
    del config["Architecture"][part]
    assert [issue[:38] for issue in check(config)] == [f"error: Architecture: has no {part}. Give it"[:38]]


@pytest.mark.parametrize(
    "option",
    [
        "Architecture.Head.head_list=null",
        "Architecture.Head.name=null",
        "Architecture=null",
        "Loss.loss_config_list=null",
        "Optimizer.lr=null",
        "Train.loader=null",
        "Metric.name=null",
    ],
)
def test_an_option_that_takes_something_away_is_the_place(option: str, one: Config, check: Check) -> None:
    (issue,) = check(placed(one, option))
    assert issue.startswith(f"error: -o {option}: ")


def test_a_sub_model_that_was_taken_away_is_the_one_fault(two: Config, check: Check) -> None:
    (issue,) = check(placed(two, "Architecture.Models.Student=null"))
    assert issue.startswith("error: -o Architecture.Models.Student=null: ")
    (issue,) = check(placed(two, "Architecture.Models.Student.Head.head_list=null"))
    assert issue.startswith("error: -o Architecture.Models.Student.Head.head_list=null: ")


def test_a_schedules_own_rates_are_not_negative_either(one: Config, check: Check) -> None:
    rates = {"name": "Piecewise", "decay_epochs": [3], "values": [0.1, -0.01]}
    (issue,) = check(one.with_values({"Optimizer.lr": rates}))
    assert issue.startswith("error: Optimizer.lr.values.1: -0.01 is negative.")


@pytest.mark.parametrize("role", ["train", "eval"])
def test_an_evaluation_that_would_skip_or_mix_lines_is_warned_of(
    role: str, one: Config, check: Check
) -> None:
    for key in ("drop_last", "shuffle"):
        (found,) = check(one.with_values({f"Eval.loader.{key}": True}), role)
        assert found.startswith(f"warning: Eval.loader.{key}: ")
        assert check(one.with_values({f"Eval.loader.{key}": False}), role) == []


def with_options(config: Config, *options: str) -> Config:
    return Config.of(override(config._node, options))


def test_an_evaluation_of_a_share_of_the_lines_is_warned_of(one: Config, check: Check) -> None:
    path = "Eval.dataset.ratio_list"
    assert check(one.with_values({path: [1.0]})) == []
    for share in ([0.5], 0.5):
        (issue,) = check(one.with_values({path: share}))
        assert issue.startswith(f"warning: {path}: ")


def test_an_empty_global_is_called_so(one: Config, check: Check) -> None:
    assert any(issue.startswith("error: Global: ") for issue in check(one.with_values({"Global": None})))


@pytest.mark.parametrize("key", ["learning_rate", "grad_clip"])
def test_what_the_program_gives_the_optimizer_is_no_option(key: str, one: Config, check: Check) -> None:
    option = f"Optimizer.{key}=4"
    (issue,) = check(with_options(one, option))
    assert issue.startswith(f"error: -o {option}: Optimizer.{key}: ")
