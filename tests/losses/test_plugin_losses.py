"""Losses of a user's own: with a context, and as they were written for 0.1.0, with ``reads`` and ``prepare``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import paddle
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.losses import CTCLoss, Loss, LossContext, build_loss, required_outputs
from ppocr_ext.registry import LOSSES

CONTEXT = LossContext(Charset(tuple("abc")), {"Student": 7})


class Old(Loss):
    """As in the documentation of 0.1.0."""

    def __init__(self, model: str = "Student") -> None:
        super().__init__()
        self.model = model
        self.seen: list[tuple[int, dict[str | None, int]]] = []

    def prepare(self, charset: Charset, feature_sizes: Mapping[str | None, int]) -> None:
        super().prepare(charset, feature_sizes)
        self.seen.append((charset.ctc_classes, dict(feature_sizes)))

    def forward(self, predicts: Any, batch: Any) -> dict[str, paddle.Tensor]:
        return {"loss": paddle.to_tensor(1.0)}

    def reads(self) -> set[tuple[str | None, str]]:
        return {(self.model, "ctc")}


class Derived(CTCLoss):
    """One of ours whose ``reads`` is overridden."""

    def reads(self) -> set[tuple[str | None, str]]:
        return {*super().reads(), (None, "neck")}


class New(Loss):
    """A loss that takes the context."""

    def __init__(self, model: str = "Student", context: LossContext | None = None) -> None:
        super().__init__()
        self.size = None if context is None else context.feature_size(model)

    def forward(self, predicts: Any, batch: Any) -> dict[str, paddle.Tensor]:
        return {"loss": paddle.to_tensor(1.0)}


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
        LOSSES, "_own", {**LOSSES._own, **{c.__name__: c for c in (Old, Derived, New, AnyOptions)}}
    )


def combined(*names: str) -> dict[str, Any]:
    return {"name": "CombinedLoss", "loss_config_list": [{name: {"weight": 1.0}} for name in names]}


def test_reads_of_a_plugin_is_used() -> None:
    assert build_loss({"name": "Old"}).required_outputs() == {("Student", "ctc")}
    assert build_loss(combined("Old", "CTCLoss")).required_outputs() == {("Student", "ctc"), (None, "ctc")}
    assert required_outputs(Derived()) == {(None, "ctc"), (None, "neck")}
    assert build_loss(combined("Derived")).required_outputs() == {(None, "ctc"), (None, "neck")}
    assert build_loss(combined("Old", "New")).required_outputs() is None


def test_the_old_name_still_answers_for_our_losses() -> None:
    assert build_loss(combined("CTCLoss")).reads() == {(None, "ctc")}


def test_prepare_of_a_plugin_is_called_once_with_the_context() -> None:
    alone, listed = build_loss({"name": "Old"}, CONTEXT), build_loss(combined("Old"), CONTEXT)
    [(_, _, inner)] = listed.losses
    assert alone.seen == inner.seen == [(4, {"Student": 7})]
    assert build_loss({"name": "Old"}).seen == []


def test_a_plugin_gets_the_context_if_its_constructor_takes_it() -> None:
    [(_, _, inner)] = build_loss(combined("New"), CONTEXT).losses
    assert inner.size == 7
    assert build_loss({"name": "New"}).size is None


def test_a_loss_with_any_options_gets_no_context() -> None:
    assert build_loss({"name": "AnyOptions", "beta": 2}, CONTEXT).options == {"beta": 2}
