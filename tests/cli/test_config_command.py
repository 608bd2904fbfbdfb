"""``ppocr-ext config``: the resolved config on one stream, what is wrong with it on the other."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from ppocr_ext.cli import config as config_command
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
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
    assert lines["print_batch_step: 25"].endswith("base.yml:10")
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


def test_places_are_short(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "below").mkdir()
    (files / "over.yml").write_text("Global: {seed: 7}\n")
    expected = {files: "over.yml:1", files / "below": f"{files}/over.yml:1"}
    for here, over in expected.items():
        monkeypatch.chdir(here)
        assert run("-c", files / "my.yml", files / "over.yml") == 0
        out = capsys.readouterr().out
        lines = {line.partition("#")[0].strip(): line.partition("# ")[2] for line in out.splitlines()}
        assert lines["seed: 7"] == over
        assert lines["print_batch_step: 25"] == "configs/quickstart/base.yml:10"
