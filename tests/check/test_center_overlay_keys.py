"""Entries of a loss list keep their places and levels when the center loss overlay changes the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppocr_ext.check import check_config
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config, fit_center_losses, load
from ppocr_ext.host import Host
from ppocr_ext.io.resources import config_path
from ppocr_ext.issues import Issue

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


def issues_of(host: Host, file: Path, *options: str) -> dict[str, Issue]:
    config = load([file, OVERLAY], [f"{LISTED}.CenterLoss.center_file_path=null", *options])
    return {
        issue.path: issue for issue in check_config(config, host, "train") if issue.path.startswith("Loss")
    }


def test_an_entry_of_a_file_has_its_line(host: Host, file: Path) -> None:
    (line,) = (i for i, text in enumerate(file.read_text().splitlines(), 1) if "zzz" in text)
    (issue,) = (issue for path, issue in issues_of(host, file).items() if path.endswith("zzz"))
    assert (issue.level, issue.where) == ("warning", f"{file}:{line}")


def test_an_unread_option_of_the_overlay_s_entry_is_an_error(host: Host, file: Path, tmp_path: Path) -> None:
    option = f"{LISTED}.CenterLoss.qqq=1"
    (issue,) = (issue for path, issue in issues_of(host, file, option).items() if path.endswith("qqq"))
    assert (issue.level, issue.where) == ("error", f"-o {option}")
    assert f"-o +{LISTED}.CenterLoss.qqq=" in issue.message  # which can be pasted
    assert not any(path.endswith("qqq") for path in issues_of(host, file, f"+{option}"))
    assert main(["config", "--check", "-c", str(file), str(OVERLAY), "-o", option]) == 2


@pytest.mark.parametrize("name", ["CTCLoss", "NRTRLoss"])
def test_an_unread_option_of_a_loss_that_is_moved_into_the_list(
    host: Host, tmp_path: Path, one: Config, name: str
) -> None:
    file = tmp_path / "my.yml"
    file.write_text(one.with_values({"Loss": {"name": name}}).to_yaml())
    (issue,) = (f for path, f in issues_of(host, file, "Loss.qqq=1").items() if path.endswith("qqq"))
    assert (issue.level, issue.where, issue.path) == ("error", "-o Loss.qqq=1", f"{LISTED}.{name}.qqq")
    assert "-o +Loss.qqq=" in issue.message
    assert not any(path.endswith("qqq") for path in issues_of(host, file, "+Loss.qqq=1"))


def test_the_overlay_over_a_run_that_has_center_loss_changes_it(two: Config, tmp_path: Path) -> None:
    """The config.yml of a distillation with center loss, fine-tuned once more: one center loss, not two."""
    (tmp_path / "two.yml").write_text(two.to_yaml())
    recorded = fit_center_losses(load([tmp_path / "two.yml", OVERLAY]))
    (tmp_path / "config.yml").write_text(recorded.to_yaml())
    (tmp_path / "more.yml").write_text(
        "Loss: {loss_config_list: [CenterLoss: {weight: 0.5, center_file_path: new.npz}]}\n"
    )
    config = fit_center_losses(load([tmp_path / "config.yml", tmp_path / "more.yml"]))
    names = [next(iter(entry)) for entry in config.at(LISTED)]
    assert names == [next(iter(entry)) for entry in recorded.at(LISTED)]
    center = config.at(f"{LISTED}.DistillationCenterLoss")
    assert (center["weight"], center["center_file_path"], center["frames"]) == (0.5, "new.npz", "aligned")
    assert tuple(center["model_name_list"]) == ("Student",)
