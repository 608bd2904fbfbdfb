"""Entries of a loss list keep their places and levels when the center loss overlay changes the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppocr_ext.check import Fault, check_config
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config, load
from ppocr_ext.host import Host
from ppocr_ext.io.resources import config_path

OVERLAY = config_path("overlays/center_loss.yml")
LISTED = "Loss.loss_config_list"


@pytest.fixture(params=["distillation", "CTCLoss", "NRTRLoss"])
def file(request: pytest.FixtureRequest, tmp_path: Path, one: Config, two: Config) -> Path:
    """A config that the overlay is laid over; its loss has an option ``zzz`` that nothing reads."""
    if request.param == "distillation":
        config = two.with_values({f"{LISTED}.0.DistillationDKDLoss.zzz": 1})
    else:
        config = one.with_values({"Loss": {"name": request.param, "zzz": 1}})
    (tmp_path / "my.yml").write_text(config.to_yaml())
    return tmp_path / "my.yml"


def faults_of(host: Host, file: Path, *options: str) -> dict[str, Fault]:
    config = load([file, OVERLAY], [f"{LISTED}.CenterLoss.center_file_path=null", *options])
    return {
        fault.path: fault for fault in check_config(config, host, "train") if fault.path.startswith("Loss")
    }


def test_an_entry_of_a_file_has_its_line(host: Host, file: Path) -> None:
    (line,) = (i for i, text in enumerate(file.read_text().splitlines(), 1) if "zzz" in text)
    (fault,) = (fault for path, fault in faults_of(host, file).items() if path.endswith("zzz"))
    assert (fault.level, fault.where) == ("warning", f"{file}:{line}")


def test_an_unread_option_of_the_overlay_s_entry_is_an_error(host: Host, file: Path, tmp_path: Path) -> None:
    option = f"{LISTED}.CenterLoss.qqq=1"
    (fault,) = (fault for path, fault in faults_of(host, file, option).items() if path.endswith("qqq"))
    assert (fault.level, fault.where) == ("error", f"-o {option}")
    assert f"-o +{LISTED}.CenterLoss.qqq=" in fault.message  # which can be pasted
    assert not any(path.endswith("qqq") for path in faults_of(host, file, f"+{option}"))
    assert main(["config", "--check", "-c", str(file), str(OVERLAY), "-o", option]) == 2


@pytest.mark.parametrize("name", ["CTCLoss", "NRTRLoss"])
def test_an_unread_option_of_a_loss_that_is_moved_into_the_list(
    host: Host, tmp_path: Path, one: Config, name: str
) -> None:
    file = tmp_path / "my.yml"
    file.write_text(one.with_values({"Loss": {"name": name}}).to_yaml())
    (fault,) = (f for path, f in faults_of(host, file, "Loss.qqq=1").items() if path.endswith("qqq"))
    assert (fault.level, fault.where, fault.path) == ("error", "-o Loss.qqq=1", f"{LISTED}.{name}.qqq")
    assert "-o +Loss.qqq=" in fault.message
    assert not any(path.endswith("qqq") for path in faults_of(host, file, "+Loss.qqq=1"))
