"""Losses of a user's own: with a context and without."""

from __future__ import annotations

from typing import Any

import paddle
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.losses import Loss, LossContext, build_loss, required_outputs
from ppocr_ext.registry import LOSSES

CONTEXT = LossContext(Charset(tuple("abc")), {"Student": 7})


class New(Loss):
    """A loss that takes the context."""

    def __init__(self, model: str = "Student", context: LossContext | None = None) -> None:
        super().__init__()
        self.size = None if context is None else context.feature_size(model)

    def forward(self, predicts: Any, batch: Any) -> dict[str, paddle.Tensor]:
        return {"loss": paddle.to_tensor(1.0)}


class Telling(New):
    """A loss that says what it requires."""

    def required_outputs(self) -> set[tuple[str | None, str]]:
        return {("Student", "ctc")}


class AnyOptions(Loss):
    """A loss that passes on what it does not know, as PaddleOCR's do."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, predicts: Any, batch: Any) -> dict[str, paddle.Tensor]:
        return {"loss": paddle.to_tensor(1.0)}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LOSSES, "_own", {**LOSSES._own, **{c.__name__: c for c in (New, AnyOptions, Telling)}}
    )


def combined(*names: str) -> dict[str, Any]:
    return {"name": "CombinedLoss", "loss_config_list": [{name: {"weight": 1.0}} for name in names]}


def test_the_outputs_that_a_plugin_requires_are_known() -> None:
    assert build_loss({"name": "Telling"}).required_outputs() == {("Student", "ctc")}
    assert build_loss(combined("Telling", "CTCLoss")).required_outputs() == {
        ("Student", "ctc"),
        (None, "ctc"),
    }
    assert build_loss(combined("Telling", "New")).required_outputs() is None
    assert required_outputs(object()) is None


def test_a_plugin_gets_the_context_if_its_constructor_takes_it() -> None:
    [(_, _, inner)] = build_loss(combined("New"), CONTEXT).losses
    assert inner.size == 7
    assert build_loss({"name": "New"}).size is None


def test_a_loss_with_any_options_gets_no_context() -> None:
    assert build_loss({"name": "AnyOptions", "beta": 2}, CONTEXT).options == {"beta": 2}
