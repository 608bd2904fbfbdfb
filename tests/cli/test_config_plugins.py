"""``ppocr-ext config`` runs no code of the config that it looks at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ppocr_ext import registry
from ppocr_ext.check import check_config
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_path

CODE = "plugin_not_loaded"
MODULE = """
from pathlib import Path
from ppocr_ext.registry import DATASETS, LOSSES

Path(__file__).with_name("imported").write_text("")

@DATASETS.register()
class RadioSignals:
    def __init__(self, config, mode, logger, seed=None): ...

    @classmethod
    def known_keys(cls):
        return ["frequency"]

@LOSSES.register()
class ZebraObjective:
    def __init__(self, width=3): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: ``my.yml`` names components of ``looked_at``, a module in it that leaves a file."""
    (tmp_path / "looked_at.py").write_text(MODULE)
    (tmp_path / "dict.txt").write_text("\n".join("0123456789") + "\n")
    (tmp_path / "val.txt").write_text("")
    own = {
        "_BASE_": str(config_path("quickstart/student.yml")),
        "Global": {"character_dict_path": "dict.txt", "plugins": ["looked_at"], "stripes_of_mine": 3},
        "Zebra": {"stripes": 4},
        "Loss": {"name": "ZebraObjective", "width": 4},
        "Train": {"dataset": {"name": "RadioSignals", "data_dir": "nowhere", "frequency": 7}},
        "Eval": {"dataset": {"data_dir": ".", "label_file_list": ["val.txt"]}},
    }
    (tmp_path / "my.yml").write_text(yaml.safe_dump(own))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("looked_at", None)
    registry.DATASETS._own.pop("RadioSignals", None)
    registry.LOSSES._own.pop("ZebraObjective", None)


@pytest.mark.parametrize("words", [[], ["--check", "--data", "none"]])
def test_nothing_is_imported_and_unknown_names_are_warnings(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["config", "-c", "my.yml", *words]) == 0
    assert not (folder / "imported").exists() and "looked_at" not in sys.modules
    told = capsys.readouterr()
    said = (told.out if words else told.err).splitlines()
    assert all(line.startswith("warning: ") and line.endswith(f"[{CODE}]") for line in said)
    for path in ("Global.plugins", "Global.stripes_of_mine", "Zebra", "Loss.name", "Train.dataset.name"):
        assert sum(f": {path}: " in line for line in said) == 1, path
    (line,) = (line for line in said if ": Global.plugins: " in line)
    assert "looked_at" in line and "--import-plugins" in line


def test_plugins_are_imported_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "-c", "my.yml", "--check", "--data", "none", "--import-plugins"]) == 0
    assert (folder / "imported").exists()
    told = capsys.readouterr()
    assert str(folder / "looked_at.py") in told.err
    assert CODE not in told.out
    assert "Loss.width" not in told.out  # the plugin's own keys are known


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("Loss.name=MultLoss", "unknown_component"),
        ("Global.epohc_num=3", "unknown_key"),
    ],
)
def test_a_misspelling_stays_an_error(folder: Path, option: str, code: str) -> None:
    issues = check_config(load(["my.yml"], [option]), open_host(), "train", ["looked_at"])
    path = option.partition("=")[0]
    assert (path, code) in [(issue.path, issue.code) for issue in issues if issue.level == "error"]
    assert main(["config", "-c", "my.yml", "--check", "-o", option]) == 2


def test_without_plugins_an_unknown_name_is_an_error(folder: Path) -> None:
    option = "Global.plugins=!remove"
    assert main(["config", "-c", "my.yml", "--check", "-o", option]) == 2
    issues = check_config(load(["my.yml"], [option]), open_host(), "train")
    assert {"Loss.name", "Train.dataset.name"} <= {f.path for f in issues if f.level == "error"}
    assert CODE not in {issue.code for issue in issues}


def test_transforms_and_decoders_may_be_a_plugin_s(folder: Path) -> None:
    transforms = [{"DecodeImage": None}, {"Zebras": None}]
    config = load(["my.yml"]).with_values(
        {"Eval.dataset.transforms": transforms, "PostProcess.name": "StripeReader"}
    )
    issues = check_config(config, open_host(), "eval", ["looked_at"])
    assert {(f.path, f.level, f.code) for f in issues if f.path != "Global.plugins"} >= {
        ("Eval.dataset.transforms.Zebras", "warning", CODE),
        ("PostProcess.name", "warning", CODE),
    }
