"""Hints name what was meant: the section that a key belongs to, the line of a wrong indentation, a host only once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ppocr_ext import registry
from ppocr_ext.check import check_config
from ppocr_ext.check.config_check import home_of
from ppocr_ext.config import Config, load
from ppocr_ext.config.config_view import override
from ppocr_ext.errors import UnknownComponentError
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue

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


@pytest.mark.parametrize("has_checkout", [True, False])
@pytest.mark.parametrize("kind", ["backbone", "dataset"])
def test_a_checkout_is_advised_only_with_the_wheel(
    monkeypatch: pytest.MonkeyPatch, kind: str, has_checkout: bool
) -> None:
    components = registry.Registry(kind)
    components.set_fallback(lambda name: None, lambda: ["Theirs"], has_checkout)
    with pytest.raises(UnknownComponentError) as caught:
        components.get("Zebra")
    assert caught.value.code == "unknown_component"
    assert ("--host DIR" in str(caught.value)) is not has_checkout
    assert "Global.plugins" in str(caught.value)


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


def test_keys_of_the_dataset_beside_it(host: Host, tmp_path: Path, one: Config) -> None:
    own = yaml.safe_dump(one.thaw()["Train"]["dataset"], sort_keys=False)
    text = train_section(one, indented(LOADER, 4), dataset=indented(own, 2))
    issue = issues_of(host, tmp_path, one.thaw(), text)["Train.data_dir"]
    assert issue.where == f"{tmp_path / 'my.yml'}:{line_of(tmp_path, 'data_dir')}"
    assert "`dataset:`" in issue.message


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
