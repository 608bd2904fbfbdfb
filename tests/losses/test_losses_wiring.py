"""What is checked when a loss is built, which outputs it requires, and how parts are added up."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import paddle
import pytest
from error_codes import raises_code
from loss_inputs import PAIRS, batch, outputs, predictions

from ppocr_ext.errors import ConfigError, UnknownComponentError
from ppocr_ext.losses import build_loss
from ppocr_ext.registry import LOSSES

OFFICIAL = {
    "name": "CombinedLoss",
    "loss_config_list": [
        {"DistillationDKDLoss": {"weight": 0.1, "model_name_pairs": [["Student", "Teacher"]], "key": "head_out",
                                 "multi_head": True, "alpha": 1.0, "beta": 2.0, "dis_head": "gtc", "name": "dkd"}},
        {"DistillationCTCLoss": {"weight": 1.0, "model_name_list": ["Student"], "key": "head_out",
                                 "multi_head": True}},
        {"DistillationNRTRLoss": {"weight": 1.0, "smoothing": False, "model_name_list": ["Student"],
                                  "key": "head_out", "multi_head": True}},
        {"DistillCTCLogits": {"weight": 1.0, "reduction": "mean", "model_name_pairs": [["Student", "Teacher"]],
                              "key": "head_out"}},
    ],
}  # fmt: skip


class BareTensor(paddle.nn.Layer):
    """A foreign loss, as PaddleOCR's CenterLoss is: a tensor, and no `required_outputs`."""

    def forward(self, predicts: Any, batch: Any) -> paddle.Tensor:
        return paddle.to_tensor(3.0)


class Popping(paddle.nn.Layer):
    """A foreign loss that takes its options apart."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.inner = kwargs.pop("inner").pop("value")

    def forward(self, predicts: Any, batch: Any) -> dict[str, paddle.Tensor]:
        return {"loss": paddle.to_tensor(float(self.inner)), "extra": paddle.to_tensor(1.0)}


@pytest.fixture()
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"BareTensor": BareTensor, "Popping": Popping}
    monkeypatch.setattr(LOSSES, "_find_foreign", found.get)
    monkeypatch.setattr(LOSSES, "_foreign_names", lambda: found)


def combined(*entries: Mapping[str, Any]) -> Any:
    return build_loss({"name": "CombinedLoss", "loss_config_list": list(entries)})


def frozen(value: Any) -> Any:
    """As the resolved configuration is: nothing in it can change."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(entry) for key, entry in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(frozen(entry) for entry in value)
    return value


def test_official_distillation_adds_up_and_leaves_its_config() -> None:
    config = copy.deepcopy(OFFICIAL)
    values = build_loss(config)(predictions(outputs()), batch())
    assert config == OFFICIAL
    assert list(values) == ["dkd_0", "loss_ctc_Student_0", "loss_nrtr_Student_0", "ctc_logits_0", "loss"]
    parts = [float(value) for key, value in values.items() if key != "loss"]
    assert float(values["loss"]) == pytest.approx(sum(parts), rel=1e-6)
    frozen_values = build_loss(frozen(OFFICIAL))(predictions(outputs()), batch())
    assert float(frozen_values["loss"]) == float(values["loss"])


def test_official_distillation_reads_both_heads() -> None:
    both = {(model, head) for model in ("Student", "Teacher") for head in ("ctc", "gtc")}
    assert build_loss(OFFICIAL).required_outputs() == both


def test_weights_are_applied_to_parts() -> None:
    [dkd] = OFFICIAL["loss_config_list"][:1]
    once = build_loss({"name": "CombinedLoss", "loss_config_list": [dkd]})
    options = {**dkd["DistillationDKDLoss"], "weight": 0.3}
    thrice = build_loss({"name": "CombinedLoss", "loss_config_list": [{"DistillationDKDLoss": options}]})
    small, large = (loss(predictions(outputs()), batch()) for loss in (once, thrice))
    for key in ("dkd_0", "loss"):
        assert float(large[key]) == pytest.approx(3 * float(small[key]), rel=1e-5)


def test_a_bare_tensor_is_logged_by_the_name_of_its_loss(foreign: None) -> None:
    values = combined({"BareTensor": {"weight": 0.5}}, {"BareTensor": {"weight": 1.0}})({}, [])
    assert {key: float(value) for key, value in values.items()} == {
        "BareTensor": 1.5,
        "BareTensor#2": 3.0,
        "loss": 4.5,
    }


def test_a_loss_without_parts_is_logged_by_its_name() -> None:
    predicts, labels = predictions(outputs())["Student"]["head_out"]["ctc"], batch()
    values = combined({"CTCLoss": {"weight": 2.0}})(predicts, [labels[0], labels[1], labels[3]])
    assert set(values) == {"CTCLoss", "loss"}
    assert float(values["CTCLoss"]) == float(values["loss"])


def test_two_parts_of_one_name_are_both_logged() -> None:
    dml = {"weight": 1.0, "model_name_pairs": PAIRS, "key": "head_out", "multi_head": True,
           "act": "softmax", "use_log": True}  # fmt: skip
    values = combined({"DistillationDMLLoss": {**dml, "dis_head": "ctc"}},
                      {"DistillationDMLLoss": {**dml, "dis_head": "gtc"}})(predictions(outputs()), batch())  # fmt: skip
    assert set(values) == {"dml_0", "dml_0#2", "loss"}
    assert float(values["loss"]) == pytest.approx(float(values["dml_0"]) + float(values["dml_0#2"]), rel=1e-6)


def test_a_foreign_loss_gets_dicts_of_its_own(foreign: None) -> None:
    entry = {"Popping": {"weight": 2.0, "inner": {"value": 5}}}
    loss = combined(entry)
    assert entry == {"Popping": {"weight": 2.0, "inner": {"value": 5}}}
    values = loss({}, [])
    assert (float(values["loss"]), float(values["extra"])) == (10.0, 2.0)
    assert float(build_loss(frozen({"name": "Popping", "inner": {"value": 4}}))({}, [])["loss"]) == 4.0


def test_a_loss_that_does_not_tell_requires_everything(foreign: None) -> None:
    assert combined({"CTCLoss": {"weight": 1}}).required_outputs() == {(None, "ctc")}
    assert combined({"CTCLoss": {"weight": 1}}, {"BareTensor": {"weight": 1}}).required_outputs() is None


@pytest.mark.parametrize(("name", "options", "expected"), [
    ("CTCLoss", {}, {(None, "ctc")}),
    ("NRTRLoss", {}, {(None, "gtc")}),
    ("CELoss", {}, {(None, "gtc")}),
    ("MultiLoss", {"loss_config_list": [{"CTCLoss": None}, {"NRTRLoss": None}]}, {(None, "ctc"), (None, "gtc")}),
    ("DistillationCTCLoss", {"model_name_list": ["A", "B"], "key": "head_out", "multi_head": True},
     {("A", "ctc"), ("B", "ctc")}),
    ("DistillationCTCLoss", {"model_name_list": ["A"]}, {("A", "ctc")}),
    ("DistillationNRTRLoss", {"model_name_list": ["A"], "key": "head_out"}, {("A", "gtc")}),
    ("DistillationDMLLoss", {"model_name_pairs": ["A", "B"], "multi_head": True, "dis_head": "sar"},
     {("A", "sar"), ("B", "sar")}),
    ("DistillationKLDivLoss", {"model_name_pairs": [["A", "B"]], "key": "head_out"},
     {(model, head) for model in "AB" for head in ("ctc", "gtc", "sar")}),
    ("DistillCTCLogits", {"model_name_pairs": [["A", "B"]], "key": "head_out"}, {("A", "ctc"), ("B", "ctc")}),
    ("DistillCTCLogits", {"model_name_pairs": [["A", "B"]]}, {("A", "ctc"), ("B", "ctc")}),
    ("CTCFrameKDLoss", {"model_name_pairs": [["A", "B"], ["A", "C"]], "key": "head_out", "multi_head": True},
     {("A", "ctc"), ("B", "ctc"), ("C", "ctc")}),
    ("MaskedDKDLoss", {"model_name_pairs": [["A", "B"]], "multi_head": True}, {("A", "gtc"), ("B", "gtc")}),
    ("DistillationDistanceLoss", {"model_name_pairs": [["A", "B"]], "key": "backbone_out"},
     {("A", "backbone"), ("B", "backbone")}),
    ("DistillationDistanceLoss", {"model_name_pairs": [["A", "B"]], "key": "neck_out"},
     {("A", "neck"), ("B", "neck")}),
    ("DistillationDistanceLoss", {"model_name_pairs": [["A", "B"]], "key": "hidden_states"},
     {(model, out) for model in "AB" for out in ("ctc", "gtc", "sar", "neck", "backbone")}),
])  # fmt: skip
def test_required_outputs(name: str, options: dict[str, Any], expected: set[tuple[str | None, str]]) -> None:
    assert build_loss({"name": name, **options}).required_outputs() == expected


@pytest.mark.parametrize(("config", "code", "found"), [
    ({}, "missing_key", "name"),
    ({"name": "CombinedLoss"}, "bad_value", "loss_config_list"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": {}}]}, "missing_key", "weight"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": {"weight": "much"}}]}, "bad_value", "'much'"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": {}, "NRTRLoss": {}}]}, "bad_value", "[0]"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": 1.0}]}, "bad_value", "CTCLoss"),
    ({"name": "MultiLoss", "loss_config_list": [{"CELoss": None}]}, "bad_value", "CELoss"),
    ({"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"CTCLoss": None}]}, "duplicate_item", "CTCLoss"),
    ({"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}], "weight_1": None}, "bad_value", "weight_1"),
    ({"name": "NRTRLoss", "smoothing": False, "ignore_index": -1}, "bad_value", "ignore_index is -1"),
    ({"name": "DistillationCTCLoss"}, "bad_value", "model_name_list"),
    ({"name": "DistillationCTCLoss", "model_name_list": "Student"}, "bad_value", "model_name_list"),
    ({"name": "DistillationKLDivLoss"}, "bad_value", "model_name_pairs"),
    ({"name": "DistillationKLDivLoss", "model_name_pairs": [["A", "B", "C"]]}, "bad_value", "model_name_pairs"),
    ({"name": "DistillationKLDivLoss", "model_name_pairs": [["A", "A"]]}, "bad_value", "model_name_pairs"),
    ({"name": "DistillationKLDivLoss", "model_name_pairs": PAIRS, "dis_head": "nrtr"}, "bad_value", "'nrtr'"),
    ({"name": "DistillationDKDLoss", "model_name_pairs": PAIRS, "dis_head": "ctc"}, "bad_value", "MaskedDKDLoss"),
    ({"name": "DistillationDKDLoss", "model_name_pairs": PAIRS, "dis_head": "gtc", "temperature": 0},
     "bad_value", "temperature"),
    ({"name": "MaskedDKDLoss", "model_name_pairs": PAIRS, "alpha": "x"}, "bad_value", "MaskedDKDLoss: alpha"),
    ({"name": "MaskedDKDLoss", "model_name_pairs": PAIRS, "blank_weight": -1}, "bad_value", "blank_weight"),
    ({"name": "DistillationDMLLoss", "model_name_pairs": PAIRS, "act": "relu"}, "bad_value", "'relu'"),
    ({"name": "DistillationDMLLoss", "model_name_pairs": PAIRS, "maps_name": "thrink_maps"},
     "unsupported_key", "maps_name"),
    ({"name": "DistillationDistanceLoss", "model_name_pairs": PAIRS, "mode": "l3"}, "bad_value", "'l3'"),
    ({"name": "CTCFrameKDLoss", "model_name_pairs": PAIRS, "temperatur": 2.0}, "unknown_key", "'temperature'"),
])  # fmt: skip
def test_what_cannot_work_is_refused_when_built(config: dict[str, Any], code: str, found: str) -> None:
    with raises_code(ConfigError, code, found):
        build_loss(config)


def test_an_unknown_loss_is_named_with_the_near_one() -> None:
    with raises_code(
        UnknownComponentError, "unknown_component", "DistilationCTCLoss", "'DistillationCTCLoss'"
    ):
        combined({"DistilationCTCLoss": {"weight": 1.0}})


LISTED = {"key": "head_out", "multi_head": True}


@pytest.mark.parametrize(("name", "options", "code", "facts"), [
    ("DistillationCTCLoss", {"model_name_list": ["Pupil"], **LISTED},
     "missing_output", ("sub-model 'Pupil'", "Student, Teacher")),
    ("DistillationCTCLoss", {"model_name_list": ["Student"], "key": "neck_out"},
     "missing_output", ("key 'neck_out'", "head_out")),
    ("DistillationDMLLoss", {"model_name_pairs": PAIRS, **LISTED, "dis_head": "sar"},
     "missing_output", ("head 'sar'", "ctc, gtc")),
    ("CTCFrameKDLoss", {"model_name_pairs": PAIRS, "key": "head_out"},
     "wrong_output", ("Student.head_out", "multi_head: true")),
])  # fmt: skip
def test_missing_outputs_are_named_when_called(
    name: str, options: dict[str, Any], code: str, facts: tuple[str, ...]
) -> None:
    with raises_code(ConfigError, code, *facts):
        build_loss({"name": name, **options})(predictions(outputs()), batch())


def test_predictions_of_a_single_model_are_explained() -> None:
    loss = build_loss({"name": "DistillationCTCLoss", "model_name_list": ["Student"]})
    with raises_code(ConfigError, "missing_output", "Tensor", "DistillationModel"):
        loss(paddle.ones([1, 2, 3]), batch())


def test_multi_loss_names_the_missing_branch() -> None:
    loss = build_loss({"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"NRTRLoss": None}]})
    head_out = predictions(outputs())["Student"]["head_out"]
    with raises_code(ConfigError, "missing_output", "NRTRLoss", "'gtc'"):
        loss({"ctc": head_out["ctc"]}, batch())


def test_multi_loss_weighs_its_branches() -> None:
    listed = [{"CTCLoss": None}, {"NRTRLoss": {"smoothing": False}}]
    head_out, labels = predictions(outputs())["Student"]["head_out"], batch()
    plain = build_loss({"name": "MultiLoss", "loss_config_list": listed})(head_out, labels)
    weighed = build_loss({"name": "MultiLoss", "loss_config_list": listed, "weight_1": 2.0, "weight_2": 0.5})(
        head_out, labels
    )
    assert float(weighed["CTCLoss"]) == pytest.approx(2 * float(plain["CTCLoss"]))
    assert float(weighed["NRTRLoss"]) == pytest.approx(0.5 * float(plain["NRTRLoss"]))
    assert float(weighed["loss"]) == pytest.approx(float(weighed["CTCLoss"]) + float(weighed["NRTRLoss"]))
