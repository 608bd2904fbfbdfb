"""What is checked when a loss is built, which outputs it requires, and how parts are added up."""

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import paddle
import pytest
from error_codes import raises_code
from loss_inputs import PAIRS, batch, outputs, predictions

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, UnknownComponentError
from ppocr_ext.losses import Loss, LossContext, build_loss, required_outputs
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
def foreign(monkeypatch):
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


def test_official_distillation_adds_up_and_leaves_its_config():
    config = copy.deepcopy(OFFICIAL)
    values = build_loss(config)(predictions(outputs()), batch())
    assert config == OFFICIAL
    assert list(values) == ["dkd_0", "loss_ctc_Student_0", "loss_nrtr_Student_0", "ctc_logits_0", "loss"]
    parts = [float(value) for key, value in values.items() if key != "loss"]
    assert float(values["loss"]) == pytest.approx(sum(parts), rel=1e-6)
    frozen_loss = build_loss(frozen(OFFICIAL))
    assert float(frozen_loss(predictions(outputs()), batch())["loss"]) == float(values["loss"])
    assert frozen_loss.required_outputs() == {(m, h) for m in ("Student", "Teacher") for h in ("ctc", "gtc")}
    config["loss_config_list"][0]["DistillationDKDLoss"]["weight"] = 0.3
    thrice = build_loss(config)(predictions(outputs()), batch())
    assert float(thrice["dkd_0"]) == pytest.approx(3 * float(values["dkd_0"]), rel=1e-5)


def test_a_bare_tensor_is_logged_by_the_name_of_its_loss(foreign):
    values = combined({"BareTensor": {"weight": 0.5}}, {"BareTensor": {"weight": 1.0}})({}, [])
    assert {key: float(value) for key, value in values.items()} == {
        "BareTensor": 1.5,
        "BareTensor#2": 3.0,
        "loss": 4.5,
    }


def test_two_parts_of_one_name_are_both_logged():
    dml = {"weight": 1.0, "model_name_pairs": PAIRS, "key": "head_out", "multi_head": True,
           "act": "softmax", "use_log": True}  # fmt: skip
    values = combined({"DistillationDMLLoss": {**dml, "dis_head": "ctc"}},
                      {"DistillationDMLLoss": {**dml, "dis_head": "gtc"}})(predictions(outputs()), batch())  # fmt: skip
    assert set(values) == {"dml_0", "dml_0#2", "loss"}
    assert float(values["loss"]) == pytest.approx(float(values["dml_0"]) + float(values["dml_0#2"]), rel=1e-6)


def test_a_foreign_loss_gets_dicts_of_its_own(foreign):
    entry = {"Popping": {"weight": 2.0, "inner": {"value": 5}}}
    loss = combined(entry)
    assert entry == {"Popping": {"weight": 2.0, "inner": {"value": 5}}}
    values = loss({}, [])
    assert (float(values["loss"]), float(values["extra"])) == (10.0, 2.0)
    assert float(build_loss(frozen({"name": "Popping", "inner": {"value": 4}}))({}, [])["loss"]) == 4.0


def test_a_loss_that_does_not_tell_requires_everything(foreign):
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
def test_required_outputs(name, options, expected):
    assert build_loss({"name": name, **options}).required_outputs() == expected


@pytest.mark.parametrize(("config", "code", "found"), [
    ({}, "missing_key", "name"),
    ({"name": "CombinedLoss"}, "bad_value", "loss_config_list"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": {}}]}, "missing_key", "weight"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": {"weight": "much"}}]}, "bad_value", "'much'"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": {}, "NRTRLoss": {}}]}, "bad_value", "[0]"),
    ({"name": "CombinedLoss", "loss_config_list": [{"CTCLoss": 1.0}]}, "bad_value", "CTCLoss"),
    ({"name": "MultiLoss", "loss_config_list": [{"CELoss": None}]}, "unsupported_component", "CELoss"),
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
def test_what_cannot_work_is_refused_when_built(config, code, found):
    with raises_code(ConfigError, code, found):
        build_loss(config)


def test_an_unknown_loss_is_named_with_the_near_one():
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
def test_missing_outputs_are_named_when_called(name, options, code, facts):
    with raises_code(ConfigError, code, *facts):
        build_loss({"name": name, **options})(predictions(outputs()), batch())


def test_outputs_of_another_model_are_explained():
    loss = build_loss({"name": "DistillationCTCLoss", "model_name_list": ["Student"]})
    with raises_code(ConfigError, "missing_output", "Tensor", "DistillationModel"):
        loss(paddle.ones([1, 2, 3]), batch())
    loss = build_loss({"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"NRTRLoss": None}]})
    head_out = predictions(outputs())["Student"]["head_out"]
    with raises_code(ConfigError, "missing_output", "NRTRLoss", "'gtc'"):
        loss({"ctc": head_out["ctc"]}, batch())


def test_multi_loss_weighs_its_branches():
    listed = [{"CTCLoss": None}, {"NRTRLoss": {"smoothing": False}}]
    head_out, labels = predictions(outputs())["Student"]["head_out"], batch()
    plain = build_loss({"name": "MultiLoss", "loss_config_list": listed})(head_out, labels)
    weighed = build_loss({"name": "MultiLoss", "loss_config_list": listed, "weight_1": 2.0, "weight_2": 0.5})(
        head_out, labels
    )
    assert float(weighed["CTCLoss"]) == pytest.approx(2 * float(plain["CTCLoss"]))
    assert float(weighed["NRTRLoss"]) == pytest.approx(0.5 * float(plain["NRTRLoss"]))
    assert float(weighed["loss"]) == pytest.approx(float(weighed["CTCLoss"]) + float(weighed["NRTRLoss"]))


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
def registered(monkeypatch):
    monkeypatch.setattr(
        LOSSES, "_own", {**LOSSES._own, **{c.__name__: c for c in (New, AnyOptions, Telling)}}
    )


def combined_names(*names: str) -> dict[str, Any]:
    return {"name": "CombinedLoss", "loss_config_list": [{name: {"weight": 1.0}} for name in names]}


def test_the_outputs_that_a_plugin_requires_are_known():
    assert build_loss({"name": "Telling"}).required_outputs() == {("Student", "ctc")}
    assert build_loss(combined_names("Telling", "CTCLoss")).required_outputs() == {
        ("Student", "ctc"),
        (None, "ctc"),
    }
    assert build_loss(combined_names("Telling", "New")).required_outputs() is None
    assert required_outputs(object()) is None


def test_a_plugin_gets_the_context_if_its_constructor_takes_it():
    [(_, _, inner)] = build_loss(combined_names("New"), CONTEXT).losses
    assert inner.size == 7
    assert build_loss({"name": "New"}).size is None


def test_a_loss_with_any_options_gets_no_context():
    assert build_loss({"name": "AnyOptions", "beta": 2}, CONTEXT).options == {"beta": 2}


@pytest.mark.parametrize("weight", ["0.1", None, True])
def test_a_weight_of_a_center_loss_must_be_a_number(weight: Any) -> None:
    listed = [{"CTCLoss": None}, {"CenterLoss": {"weight": weight}}]
    with pytest.raises(ConfigError) as raised:
        build_loss({"name": "MultiLoss", "loss_config_list": listed})
    assert raised.value.key == ("weight",)
