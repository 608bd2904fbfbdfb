"""``ppocr-ext config``: the resolved config on one stream, what is wrong with it on the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from ppocr_ext import registry
from ppocr_ext.check import check_config
from ppocr_ext.cli import config as config_command
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The quickstart's student with the files that it names: ``my.yml``."""
    (tmp_path / "dict.txt").write_text("\n".join("0123456789") + "\n")
    cv2.imwrite(
        str(tmp_path / "a.png"),
        np.zeros((32, 128, 3), np.uint8) + np.arange(32, dtype=np.uint8)[:, None, None],
    )
    (tmp_path / "val.txt").write_text("a.png\t123\n" * 4)
    own = {
        "_BASE_": str(config_path("quickstart/student.yml")),
        "Global": {"character_dict_path": str(tmp_path / "dict.txt")},
        "Eval": {"dataset": {"data_dir": str(tmp_path), "label_file_list": [str(tmp_path / "val.txt")]}},
    }
    (tmp_path / "my.yml").write_text(yaml.safe_dump(own))
    return tmp_path


def run(*words: str | Path) -> int:
    return main(["config", *map(str, words)])


def test_the_yaml_is_complete_and_has_the_place_of_each_value(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-c", files / "my.yml", "-o", "Global.epoch_num=3") == 0
    told = capsys.readouterr()
    assert told.err == "no issues\n"
    lines = {line.partition("#")[0].strip(): line.partition("# ")[2] for line in told.out.splitlines()}
    assert lines["epoch_num: 3"] == "-o"
    assert lines["save_epoch_step: 1000000"] == lines["CTCLabelDecode: 11"] == "computed"
    assert lines["print_batch_step: 25"].endswith("base.yml:11")
    again = files / "again.yml"
    again.write_text(told.out)
    plain = yaml.safe_load(told.out)
    assert plain["Architecture"]["Head"]["out_channels_list"]["NRTRLabelDecode"] == 14
    assert "Architecture.Head.out_channels_list" in plain["computed"]
    whole = load([again])
    original = load([files / "my.yml"])
    assert all(
        whole.at(path) == original.at(path) for path in ("Train", "Eval", "Loss", "Optimizer", "Metric")
    )
    assert run("-c", again, "--check", "--strict") == 0


def test_a_warning_of_the_dry_step_is_an_issue(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "dict.txt").write_text(
        "\n".join("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") + "\n"
    )
    neck = "Architecture.Head.head_list.CTCHead.Neck={name: svtr, dims: 48}"
    assert run("-c", files / "my.yml", "--check", "-o", neck) == 0
    out = capsys.readouterr().out
    assert "[narrow_neck]" in out and "no issues" not in out


def test_check_prints_only_the_issues(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-c", files / "my.yml", "--check") == 0
    told = capsys.readouterr()
    usable, frames, unchecked, last = told.out.splitlines()
    assert "4 samples, all usable" in usable and "T = 16" in frames and "CaptchaDataSet" in unchecked
    assert (last, told.err) == ("no issues", "")
    assert (
        run("-c", files / "my.yml", "-o", "Global.epohc_num=3", "Eval.dataset.data_dir=/no/data", "--check")
        == 2
    )
    out, err = capsys.readouterr()
    unknown, missing = out.splitlines()
    assert unknown.startswith("error: -o Global.epohc_num=3: Global.epohc_num: ")
    assert "'epoch_num'" in unknown and unknown.endswith("[unknown_key]")
    assert "Eval.dataset.data_dir: " in missing and missing.endswith("[missing_folder]")
    assert err == ""


def test_a_warning_is_an_error_under_strict(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "over.yml").write_text("Architecture: {Backbone: {zzz: 1}}\n")
    both = ("-c", files / "my.yml", files / "over.yml", "--check")
    said = f"{files / 'over.yml'}:1: Architecture.Backbone.zzz: the key is not used. [unused_key]\n"
    assert run(*both, "--data", "none") == 0
    assert capsys.readouterr().out == f"warning: {said}"
    assert run(*both, "--strict") == run(*both, "-o", "Global.strict=true") == 2
    assert capsys.readouterr().out == f"error: {said}" * 2


def test_the_role_says_what_is_needed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = "Train.loader.batch_size_per_card=0"
    assert run("-c", files / "my.yml", "-o", option, "--check") == 2
    assert run("-c", files / "my.yml", "-o", option, "--check", "--role", "eval") == 0
    assert "no issues" in capsys.readouterr().out


def test_check_looks_for_the_device(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-c", files / "my.yml", "--check", "-o", "Global.use_xpu=true") == 2
    out = capsys.readouterr().out
    assert "-o Global.use_xpu=true: Global.use_xpu" in out and "no issues" not in out
    assert run("-c", files / "my.yml", "-o", "Global.use_xpu=true") == 0  # without --check: the config alone
    capsys.readouterr()
    assert run("-c", files / "my.yml", "--check", "--data", "none", "-o", 'Global.use_xpu="no"') == 2
    (line,) = capsys.readouterr().out.splitlines()
    assert "Global.use_xpu" in line and line.endswith("[quoted_value]")


def test_check_looks_at_the_data(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "val.txt").write_text("a.png\t123\nnowhere.png\t1\n")
    assert run("-c", files / "my.yml", "--check") == 2
    out = capsys.readouterr().out
    assert f"{files / 'val.txt'}:2: missing_image" in out and "no issues" not in out
    assert run("-c", files / "my.yml", "--check", "--data", "none") == 0
    (files / "val.txt").write_text("a.png\t123\n" * 20 + "nowhere.png\t1\n")
    assert run("-c", files / "my.yml", "--check") == 0
    assert run("-c", files / "my.yml", "--check", "--strict") == 2
    assert run("-c", files / "my.yml", "--check", "-o", "Global.strict=true") == 2


def test_the_quick_look_stops(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["a.png\t123\n"] * 5000
    (files / "val.txt").write_text("".join(lines) + "nowhere.png\t1\n" * 1000)
    monkeypatch.setattr(config_command, "_SECONDS", 0.0)
    assert run("-c", files / "my.yml", "--check") == 0
    assert "2,048" in capsys.readouterr().out
    assert run("-c", files / "my.yml", "--check", "--data", "all") == 2


def test_the_yaml_without_a_dictionary(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "dict.txt").unlink()
    assert run("-c", files / "my.yml") == 2
    out, err = capsys.readouterr()
    assert "out_channels_list" not in out and "epoch_num: 21" in out
    assert err.startswith("error: ") and "[missing_file]" in err and len(err.splitlines()) == 1


# ``ppocr-ext config`` runs no code of the config that it looks at

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
