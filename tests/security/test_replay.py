"""An incident of a stranger runs no code, and no label in it leads to memory that is not the network's."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from ppocr_ext.cli.main import main


@pytest.fixture
def incident(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(project, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return Path("incident")


def change_batch(incident: Path, name: str, change: object) -> None:
    with np.load(incident / "batch.npz") as content:
        arrays = dict(content)
    arrays[name] = change(arrays[name])  # type: ignore[operator]
    np.savez(incident / "batch.npz", **arrays)


def test_plugins_are_imported_only_when_asked(
    incident: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("planted_module.py").write_text("open('ran', 'w').close()\n")
    config = (incident / "config.yml").read_text()
    (incident / "config.yml").write_text(config.replace("Global:", "Global:\n  plugins: [planted_module]", 1))
    assert main(["replay", "incident"]) == 2
    assert "plugin_not_loaded" in capsys.readouterr().err and not Path("ran").exists()
    assert main(["replay", "incident", "--import-plugins"]) == 1
    assert Path("ran").exists()
    sys.modules.pop("planted_module")


@pytest.mark.parametrize("entry", ["1", "2"], ids=["CTC", "NRTR"])
@pytest.mark.parametrize("label", [120, 2**31 - 1, -5])
def test_a_label_without_a_class_is_refused(
    incident: Path, entry: str, label: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoil(labels: np.ndarray) -> np.ndarray:
        labels[0, 1] = label
        return labels

    change_batch(incident, entry, spoil)
    assert main(["replay", "incident"]) == 2
    assert "bad_label" in capsys.readouterr().err


CHANGES = {
    "an image of another size": ("0", lambda images: images[:, :, :7]),
    "images as text": ("0", lambda images: np.array(["a"])),
    "labels of fewer lines": ("1", lambda labels: labels[:1]),
    "lengths as numbers with a point": ("3", lambda lengths: lengths / 3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_batch_that_does_not_fit_is_an_error_by_name(
    incident: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change_batch(incident, *CHANGES[name])
    code, said = main(["replay", "incident"]), capsys.readouterr().err
    assert code == 1 or (code == 2 and re.search(r"\[\w+\]$", said)), said


def test_weights_of_another_network_are_refused(incident: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy("run/best_accuracy.pdparams", incident / "weights.pdparams")
    assert main(["replay", "incident"]) in (0, 1)  # of the same network
    shutil.copy(incident / "loss.pdparams", incident / "weights.pdparams")
    assert main(["replay", "incident"]) == 2
    (incident / "incident.json").write_text("[]")
    assert main(["replay", "incident"]) == 2
    assert capsys.readouterr().err.count("error: ") >= 2
