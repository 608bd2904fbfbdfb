"""``_BASE_`` finds the files that come with the package, wherever the package and the config are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError
from ppocr_ext.io import resources


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for configs; the package is installed elsewhere, and the current folder is a third one."""
    package = tmp_path / "site-packages" / "ppocr_ext"
    shutil.copytree(resources.config_root(), package / "configs")
    monkeypatch.setattr(resources, "_PACKAGE", package)
    for name in ("mine", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "mine"


@pytest.mark.parametrize("name", ["configs/svtrv2/distill.yml", "[configs/svtrv2/data.yml, more.yml]"])
def test_a_shipped_file_is_a_base(mine: Path, name: str) -> None:
    (mine / "my.yml").write_text(f"_BASE_: {name}\nGlobal: {{epoch_num: 3}}\n")
    (mine / "more.yml").write_text("_BASE_: configs/svtrv2/heads.yml\n")
    config = load(mine / "my.yml")
    assert config.at("Global.epoch_num") == 3
    assert config.where("Global.log_smooth_window").startswith("configs/svtrv2/data.yml:")


def test_the_file_beside_goes_before_the_shipped_one(mine: Path) -> None:
    (mine / "configs/svtrv2").mkdir(parents=True)
    (mine / "configs/svtrv2/data.yml").write_text("Global: {seed: 5}\n")
    (mine / "my.yml").write_text("_BASE_: configs/svtrv2/data.yml\n")
    assert load(mine / "my.yml") == {"Global": {"seed": 5}}


def test_a_base_that_nobody_has_is_sought_beside_the_file(mine: Path) -> None:
    (mine / "my.yml").write_text("\n_BASE_: configs/none.yml\n")
    with pytest.raises(ConfigError) as caught:
        load(mine / "my.yml")
    assert str(caught.value).startswith(f"{mine / 'configs/none.yml'}: ")
    assert f"{mine / 'my.yml'}:2" in str(caught.value)
    assert main(["config", "--check", "-c", str(mine / "my.yml")]) == 2
