"""Center loss of several sub-models: each has its own file, its own size and its own warning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from center_files import centers_file
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.losses import CenterLoss, DistillationCenterLoss, LossContext

CHARSET = Charset(tuple("abc"))
TWO = ["One", "Two"]
EQUAL = LossContext(CHARSET, {"One": 5, "Two": 5})


def file_of(path: Path, dim: int, value: float = 0.0, **meta: object) -> str:
    return centers_file(path, np.full([4, dim], value), characters=CHARSET.ctc_symbols, **meta)


def test_each_has_its_own_file_and_size(tmp_path: Path) -> None:
    files = {
        "One": file_of(tmp_path / "one.npz", 5, 1.0, model="One"),
        "Two": file_of(tmp_path / "two.npz", 7, 2.0, model="Two"),
    }
    loss = DistillationCenterLoss(
        TWO, center_file_path=files, context=LossContext(CHARSET, {"One": 5, "Two": 7})
    )
    state = {name: value.numpy() for name, value in loss.state_dict().items()}
    assert state["One.bank.centers"].tolist() == np.full([4, 5], 1.0).tolist()
    assert state["Two.bank.centers"].tolist() == np.full([4, 7], 2.0).tolist()


def test_centers_of_another_sub_model_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = file_of(tmp_path / "one.npz", 5, model="One")
    with caplog.at_level("WARNING", logger="ppocr_ext"):
        DistillationCenterLoss(TWO, center_file_path=file, context=EQUAL)
        own = file_of(tmp_path / "c.npz", 5, model=None)  # does not say whose they are
        DistillationCenterLoss(TWO, center_file_path=own, context=EQUAL)
    [record] = caplog.records
    assert record.args[:3] == (file, "One", "Two")


def test_a_file_of_no_sub_model_is_refused(tmp_path: Path) -> None:
    files = {name: file_of(tmp_path / "c.npz", 5) for name in (*TWO, "Tow")}
    with raises_code(ConfigError, "unknown_sub_model", "Tow"):
        DistillationCenterLoss(TWO, center_file_path=files, context=EQUAL)


@pytest.mark.parametrize("left", [{}, {"Two": None}])
def test_a_sub_model_without_a_file(tmp_path: Path, left: dict[str, None]) -> None:
    files = {"One": file_of(tmp_path / "c.npz", 5), **left}
    with raises_code(ConfigError, "missing_centers", "--model Two"):
        DistillationCenterLoss(TWO, center_file_path=files, context=EQUAL)
    loss = DistillationCenterLoss(TWO, center_file_path=files, update="ema", context=EQUAL)
    state = loss.state_dict()
    assert state["One.bank.known"].numpy().all() and not state["Two.bank.known"].numpy().any()


def test_files_by_sub_model_are_not_for_one_model(tmp_path: Path) -> None:
    files = {"Student": file_of(tmp_path / "c.npz", 5)}
    with raises_code(ConfigError, "bad_value"):
        CenterLoss(center_file_path=files)


@pytest.mark.parametrize(
    ("value", "code"),
    [(3, "bad_value"), (1, "bad_value"), (0, "bad_value"), ("false", "quoted_value"), (None, "bad_value")],
)
def test_blank_must_be_a_truth_value(value: object, code: str) -> None:
    with raises_code(ConfigError, code, "blank"):
        CenterLoss(update="ema", blank=value)


def test_a_sub_model_without_a_ctc_head_is_named() -> None:
    with raises_code(ModelError, "no_ctc_head", "Two"):
        DistillationCenterLoss(TWO, update="ema", context=LossContext(CHARSET, {"One": 5}))
