"""Space files: what is read, what is refused and where, and the space that is made from a config."""

from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.config import Config, load
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_path, config_root
from ppocr_ext.tuning.space import check_space, default_space, read_space, space_text

ROOT = config_root()
RATE = "Optimizer.lr.learning_rate"
SECTIONS = {"Global", "Architecture", "Loss", "Optimizer", "Train", "Eval", "Metric"}


def is_whole(path: Path) -> bool:
    """Whether a config can be trained; others are parts of one."""
    try:
        config = load([path])
    except ConfigError:
        return False
    return set(config) >= SECTIONS and config.at(RATE, None) is not None


TRAINABLE = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.yml") if is_whole(path))


def student() -> Config:
    return load([config_path("quickstart/student.yml")])


def written(folder: Path, text: str) -> Path:
    file = folder / "space.yml"
    file.write_text(f"# a comment\n{text}\n", encoding="utf-8")
    return file


def test_a_space_holds_what_its_file_says(tmp_path: Path) -> None:
    text = """
Optimizer.lr.learning_rate: {low: 5e-4, high: 0.005, log: true}
Optimizer.lr.warmup_epoch: {low: 0, high: 5}
Train.loader.batch_size_per_card: {low: 16, high: 64, step: 16}
Optimizer.name: {choices: [AdamW, Adam]}
"""
    rate, warm_up, batch, name = read_space(written(tmp_path, text), student())
    assert rate.holds(0.0005) and rate.holds(0.001234) and not rate.holds(0.0051) and rate.step is None
    assert warm_up.holds(3) and not warm_up.holds(2.5) and not warm_up.holds(6)
    assert [size for size in range(80) if batch.holds(size)] == [16, 32, 48, 64]
    assert name.holds("Adam") and not name.holds("SGD")


@pytest.mark.parametrize(
    ("line", "code", "fact"),
    [
        ("Optimizer.lr.learning_rat: {low: 0.001, high: 0.01}", "unknown_key", "'learning_rate'"),
        ("Optimizer.lr: {low: 0.001, high: 0.01}", "bad_value", "section"),
        ("Optimizer: {lr: {learning_rate: {low: 1, high: 2}}}", "unknown_key", "'lr'"),
        (f"{RATE}: {{low: 0.01, hihg: 0.02}}", "unknown_key", "'high'"),
        (f"{RATE}: {{low: 0.01, high: 0.001}}", "bad_value", "0.001"),
        (f"{RATE}: {{low: 0, high: 0.1, log: true}}", "bad_value", "above 0"),
        (f"{RATE}: {{low: 0.001, high: 0.1, log: true, step: 0.1}}", "bad_value", "step"),
        (f"{RATE}: {{low: 0.001, high: .nan}}", "bad_value", "high"),
        (f"{RATE}: {{low: '0.001', high: 0.1}}", "quoted_value", "low"),
        (f"{RATE}: {{low: 0.001, high: 0.1, step: 0}}", "bad_value", "step"),
        (f"{RATE}: {{choices: [0.005]}}", "bad_value", "two or more"),
        (f"{RATE}: {{choices: [0.005, [1]]}}", "bad_value", "numbers or texts"),
        (f"{RATE}: {{choices: [0.005, 2020-01-01]}}", "bad_value", "numbers or texts"),
        (f"{RATE}: {{choices: [0.005, 0.1], low: 1}}", "bad_value", "beside"),
        (f"{RATE}: {{low: 0.01, high: 0.1}}", "bad_value", "0.005"),
        ("Global.epoch_num: {low: 10, high: 100, step: 10}", "bad_value", "21"),
        ("Eval.loader.batch_size_per_card: {choices: [100, 200]}", "bad_value", "Eval"),
        ("Global.save_model_dir: {choices: [a, b]}", "bad_value", "save_model_dir"),
    ],
)
def test_a_wrong_space_is_refused_with_its_place(tmp_path: Path, line: str, code: str, fact: str) -> None:
    file = written(tmp_path, line)
    with raises_code(ConfigError, code, f"{file}:2", fact):
        read_space(file, student())


def test_all_issues_are_listed_at_once(tmp_path: Path) -> None:
    file = written(tmp_path, "A.b: {low: 1, high: 2}\nC.d: {low: 1}\n")
    with raises_code(ConfigError, "config_issues", f"{file}:2", f"{file}:3"):
        read_space(file, student())


def test_a_value_that_no_run_accepts_is_found_before_the_first_trial(tmp_path: Path) -> None:
    file = written(tmp_path, "Optimizer.name: {choices: [AdamW, Adamw2]}")
    (tmp_path / "dict.txt").write_text("0\n1\n")
    (tmp_path / "list.txt").write_text("")
    files = {
        "Global.character_dict_path": str(tmp_path / "dict.txt"),
        "Eval.dataset.data_dir": str(tmp_path),
        "Eval.dataset.label_file_list": [str(tmp_path / "list.txt")],
    }
    config = student().with_values(files)
    with raises_code(ConfigError, "unknown_component", f"{file}:2", "Adamw2"):
        check_space(read_space(file, config), config, open_host())
    check_space(default_space(config), config, open_host())


@pytest.mark.parametrize("name", TRAINABLE)
def test_the_default_space_of_a_shipped_config_is_one_that_can_be_read(name: str, tmp_path: Path) -> None:
    assert len(TRAINABLE) > 30
    config = load([ROOT / name])
    space = default_space(config)
    keys = [parameter.key for parameter in space]
    assert RATE in keys and len(keys) == len(set(keys))
    rate = space[keys.index(RATE)].values
    assert rate["high"] / rate["low"] == pytest.approx(9, rel=0.01)
    read = read_space(
        written(tmp_path, space_text(space)), config
    )  # each key is there, each own value among its values
    assert [(each.key, each.values) for each in read] == [(each.key, each.values) for each in space]


def test_a_distillation_is_tuned_by_its_weights_and_temperature() -> None:
    space = {each.key: each for each in default_space(load([config_path("quickstart/distill.yml")]))}
    losses = "Loss.loss_config_list"
    assert f"{losses}.DistillationCTCLoss.weight" not in space  # the first: only ratios matter
    assert space[f"{losses}.CTCFrameKDLoss.weight"].ends == (0.333, 3.0)
    assert space[f"{losses}.CTCFrameKDLoss.temperature"].ends == (1.0, 2.0, 4.0)
    assert space["Optimizer.weight_decay"].ends == (0.01, 0.03, 0.05, 0.1)


def test_a_config_without_numbers_to_tune_needs_a_space() -> None:
    with raises_code(ConfigError, "missing_option", "--space"):
        default_space(Config({"Global": {}}))
