"""Losses teach sub-models that are trained, each of those is taught, and a frozen one has weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paddle
import pytest
from official_facts import Check, facts, official, with_data

from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.sub_models import check_sub_models
from ppocr_ext.config import Config
from ppocr_ext.host import Host
from ppocr_ext.losses import build_loss
from ppocr_ext.losses.base_loss import Loss
from ppocr_ext.losses.pair_losses import PairLoss
from ppocr_ext.registry import LOSSES

LISTED = "Loss.loss_config_list"
MODELS = "Architecture.Models"
FROZEN = f"{MODELS}.Teacher.freeze_params"
HEAD = {"key": "head_out", "multi_head": True}
SWAPPED = [["Teacher", "Student"]]
PAIRED = [["Student", "Teacher"]]
TEACHES = {
    "DistillationDMLLoss": True,
    "DistillationDistanceLoss": True,
}  # both of a pair; others the first alone
V2 = "ch_PP-OCRv2/ch_PP-OCRv2_rec_distillation.yml"
V3 = "PP-OCRv3/PP-OCRv3_mobile_rec_distillation.yml"


def pair_losses() -> list[str]:
    found = [name for name in LOSSES.names() if isinstance(LOSSES.get(name), type)]
    return [name for name in found if issubclass(LOSSES.get(name), PairLoss)]


def listed(*losses: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {LISTED: [{name: {"weight": 1.0, **options}} for name, options in losses]}


def options_of(name: str, pairs: Any) -> dict[str, Any]:
    """Options with which a pair loss compares the only heads of two sub-models."""
    own = {
        "DistillationDKDLoss": {"dis_head": "gtc"},
        "DistillationDMLLoss": {"act": "softmax"},
        "CTCFrameKDLoss": {"skip_padding": False},
    }
    return {"model_name_pairs": pairs, **own.get(name, {})}


@pytest.mark.parametrize("name", pair_losses())
def test_a_loss_that_detaches_gives_the_second_no_gradient(name: str) -> None:
    """The attribute that the check reads says what the formula does."""
    loss = build_loss({"name": name, **options_of(name, PAIRED)})
    paddle.seed(1)
    logits = {model: paddle.randn([2, 3, 7]) for model in ("Student", "Teacher")}
    for each in logits.values():
        each.stop_gradient = False
    label = paddle.to_tensor([[2, 4, 5, 3, 0], [2, 6, 5, 3, 0]])
    batch = [paddle.zeros([2, 3, 4, 4]), label, paddle.to_tensor([2, 2])]
    loss(logits, batch)["loss"].backward()
    assert float(logits["Student"].grad.abs().sum()) > 0
    second = logits["Teacher"].grad
    has_gradient = second is not None and float(second.abs().sum()) > 0
    assert has_gradient is not LOSSES.get(name).detaches
    assert LOSSES.get(name).symmetric is (name in TEACHES)


@pytest.mark.parametrize("name", pair_losses())
@pytest.mark.parametrize("pairs", [SWAPPED, SWAPPED[0]])
def test_a_pair_is_swapped_where_its_order_matters(name: str, pairs: Any, two: Config, check: Check) -> None:
    values = listed(
        (name, options_of(name, pairs)), ("DistillationCTCLoss", {"model_name_list": ["Student"], **HEAD})
    )
    expected = [] if name in TEACHES else [("error", "swapped_pair", f"{LISTED}.{name}.model_name_pairs")]
    assert facts(check(two.with_values(values))) == expected
    assert facts(check(two.with_values({**values, FROZEN: False}))) == []  # both are trained


@pytest.mark.parametrize(
    ("models", "frozen", "expected"),
    [
        (["Student"], True, []),
        (["Student", "Teacher"], False, []),
        (["Student", "Teacher"], True, ["warning"]),
        (["Teacher"], True, ["warning"]),
    ],
)
def test_labels_for_a_frozen_model(
    models: list[str], frozen: bool, expected: list[str], two: Config, check: Check
) -> None:
    path = f"{LISTED}.DistillationCTCLoss.model_name_list"
    found = check(two.with_values({path: models, FROZEN: frozen}))
    assert facts(found) == [(level, "frozen_is_taught", path) for level in expected]


@pytest.mark.parametrize(
    ("losses", "lacking"),
    [
        ([("CTCFrameKDLoss", {"model_name_pairs": PAIRED, "skip_padding": False})], ["Teacher"]),
        ([("MaskedDKDLoss", {"model_name_pairs": PAIRED, **HEAD})], ["Teacher"]),
        ([("DistillationDMLLoss", {"model_name_pairs": PAIRED, **HEAD})], []),
        ([("DistillationCTCLoss", {"model_name_list": ["Teacher"], **HEAD})], ["Student"]),
        (
            [
                ("DistillationCTCLoss", {"model_name_list": ["Teacher"], **HEAD}),
                ("DistillationNRTRLoss", {"model_name_list": ["Student"], **HEAD}),
            ],
            [],
        ),
    ],
)
def test_a_trained_model_without_a_gradient(
    losses: list[tuple[str, dict[str, Any]]], lacking: list[str], two: Config, check: Check
) -> None:
    found = check(two.with_values({**listed(*losses), FROZEN: False}))
    assert facts(found) == [("error", "untrained_sub_model", f"{MODELS}.{name}") for name in lacking]


def test_a_loss_of_weight_zero_gives_no_gradient(two: Config, check: Check) -> None:
    values = listed(("DistillationCTCLoss", {"model_name_list": ["Student"], **HEAD, "weight": 0}))
    codes = {issue.code for issue in check(two.with_values(values))}
    assert codes == {"untrained_sub_model", "loss_weight"}


@pytest.fixture
def foreign() -> Iterator[str]:
    """The name of a pair loss that is not ours."""

    @LOSSES.register("ForeignPairLoss")
    class ForeignPairLoss(Loss):
        def __init__(self, model_name_pairs: Any = (), key: str | None = None) -> None:
            super().__init__()

        def forward(self, predicts: Any, batch: Any) -> Any:
            return {"loss": paddle.zeros([])}

    ForeignPairLoss.__module__ = "my_plugin"
    yield "ForeignPairLoss"
    del LOSSES._own["ForeignPairLoss"]


def test_a_loss_of_a_plugin_may_teach_any_model(foreign: str, two: Config, check: Check) -> None:
    values = listed((foreign, {"model_name_pairs": PAIRED}))
    assert check(two.with_values({**values, FROZEN: False})) == []
    swapped = check(two.with_values(listed((foreign, {"model_name_pairs": SWAPPED}))))
    assert facts(swapped) == [("warning", "swapped_pair", f"{LISTED}.{foreign}.model_name_pairs")]


@pytest.mark.parametrize("name", [V2, V3])
def test_a_teacher_of_paddleocr_that_someone_freezes_is_a_warning(
    name: str, data: Path, check: Check
) -> None:
    config = Config(with_data(official(name), data))
    assert check(config) == []
    found = check(config.with_values({FROZEN: True, f"{MODELS}.Teacher.pretrained": str(data / "teacher")}))
    taught = [issue for issue in found if issue.code == "frozen_is_taught"]
    assert taught and all(issue.level == "warning" for issue in found)


@pytest.mark.parametrize(
    "given", ["Global.pretrained_model", "Global.checkpoints", f"{MODELS}.Teacher.pretrained"]
)
def test_a_frozen_teacher_has_weights_from_one_of_three_keys(
    given: str, two: Config, data: Path, check: Check
) -> None:
    own = f"{MODELS}.Teacher.pretrained"
    without = two.with_values({own: None})
    assert facts(check(without)) == [("warning", "missing_weights", own)]
    assert check(without.with_values({given: str(data / "teacher")})) == []
    assert check(without.with_values({"Global.allow_untrained_teacher": True})) == []
    assert check(without.with_values({FROZEN: False})) == []
    assert check(without, "eval") == []


@pytest.mark.parametrize("value", [None, "x", True, 0.5, -1, float("nan"), [], {}, [1, [2]], [[1, 2], [3]]])
@pytest.mark.parametrize(
    "path", ["Loss", LISTED, "Architecture.Models", f"{MODELS}.Teacher", "model_name_pairs"]
)
def test_wrong_values_are_left_to_the_other_checks(path: str, value: Any, two: Config, host: Host) -> None:
    path = f"{LISTED}.DistillationDKDLoss.{path}" if path == "model_name_pairs" else path
    check_sub_models(ConfigCheck(two.with_values({path: value}), host, "train"))
