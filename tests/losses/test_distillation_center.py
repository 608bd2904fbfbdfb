"""Center loss of several sub-models: each has its own file, its own size and its own warning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.center import CenterLoss
from ppocr_ext.losses.distillation_center import DistillationCenterLoss

CHARSET = Charset(tuple("abc"))
TWO = ["One", "Two"]


def centers_file(path: Path, dim: int, value: float = 0.0, **meta: object) -> str:
    ids = np.arange(4)
    centers = np.full([4, dim], value, np.float32)
    CenterTable(ids, CHARSET.ctc_symbols, centers, np.ones_like(ids), np.zeros(4), meta).save(path)
    return str(path)


def test_each_has_its_own_file_and_size(tmp_path: Path) -> None:
    files = {
        "One": centers_file(tmp_path / "one.npz", 5, 1.0, model="One"),
        "Two": centers_file(tmp_path / "two.npz", 7, 2.0, model="Two"),
    }
    loss = DistillationCenterLoss(TWO, center_file_path=files)
    loss.prepare(CHARSET, {"One": 5, "Two": 7})
    state = {name: value.numpy() for name, value in loss.state_dict().items()}
    assert state["One.bank.centers"].tolist() == np.full([4, 5], 1.0).tolist()
    assert state["Two.bank.centers"].tolist() == np.full([4, 7], 2.0).tolist()


def test_sizes_may_differ_without_files() -> None:
    loss = DistillationCenterLoss(TWO, update="ema")
    loss.prepare(CHARSET, {"Two": 7, "One": 5})
    shapes = {name: list(value.shape) for name, value in loss.state_dict().items()}
    assert (shapes["One.bank.centers"], shapes["Two.bank.centers"]) == ([4, 5], [4, 7])


def test_centers_of_another_sub_model_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = centers_file(tmp_path / "one.npz", 5, model="One")
    loss = DistillationCenterLoss(TWO, center_file_path=file)
    with caplog.at_level("WARNING", logger="ppocr_ext"):
        loss.prepare(CHARSET, {"One": 5, "Two": 5})
    [record] = caplog.records
    assert "has the centers of One, but Two is pulled to them" in record.getMessage()
    assert "--model Two" in record.getMessage()


def test_centers_that_do_not_say_whose_they_are_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loss = DistillationCenterLoss(TWO, center_file_path=centers_file(tmp_path / "c.npz", 5, model=None))
    with caplog.at_level("WARNING", logger="ppocr_ext"):
        loss.prepare(CHARSET, {"One": 5, "Two": 5})
    assert not caplog.records


def test_a_file_of_no_sub_model_is_refused(tmp_path: Path) -> None:
    files = {name: centers_file(tmp_path / "c.npz", 5) for name in (*TWO, "Tow")}
    with pytest.raises(ConfigError, match="a file for Tow, but the loss is of One, Two"):
        DistillationCenterLoss(TWO, center_file_path=files)


@pytest.mark.parametrize("left", [{}, {"Two": None}])
def test_a_sub_model_without_a_file(tmp_path: Path, left: dict[str, None]) -> None:
    files = {"One": centers_file(tmp_path / "c.npz", 5), **left}
    with pytest.raises(ConfigError, match="no file for Two.*export-center --model Two"):
        DistillationCenterLoss(TWO, center_file_path=files)
    loss = DistillationCenterLoss(TWO, center_file_path=files, update="ema")
    loss.prepare(CHARSET, {"One": 5, "Two": 5})
    state = loss.state_dict()
    assert state["One.bank.known"].numpy().all() and not state["Two.bank.known"].numpy().any()


def test_files_by_sub_model_are_not_for_one_model(tmp_path: Path) -> None:
    files = {"Student": centers_file(tmp_path / "c.npz", 5)}
    with pytest.raises(ConfigError, match="files by sub-model, but there is one model"):
        CenterLoss(center_file_path=files)


@pytest.mark.parametrize("value", [3, 1, 0, "false", None])
def test_blank_must_be_a_truth_value(value: object) -> None:
    with pytest.raises(ConfigError, match=f"blank must be true or false, but is {value!r}"):
        CenterLoss(update="ema", blank=value)
