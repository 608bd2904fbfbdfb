"""The dry step: wiring faults are named with their config path, good configs pass, and no trace is left."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from ppocr_ext.check import check_config
from ppocr_ext.cli.config import dry_issues
from ppocr_ext.config import Config
from ppocr_ext.host import open_host
from ppocr_ext.issues import Issue

TRAIN, EVAL = "Train.dataset.transforms", "Eval.dataset.transforms"
KEYS = "KeepKeys.keep_keys"
LISTED = "Loss.loss_config_list"
STUDENT = "Architecture.Models.Student"
KEPT = ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]

Found = set[tuple[str, str]]


def found(config: Config, role: str = "train") -> Found:
    """Code and path of the errors that `config --check` reports."""
    return {(issue.code, issue.path) for issue in issues(config, role) if issue.level == "error"}


def issues(config: Config, role: str = "train", said: list[str] | None = None) -> list[Issue]:
    static = check_config(config, open_host(), role)
    if any(issue.level == "error" for issue in static):
        return static
    return static + dry_issues(config, open_host(), role, (said if said is not None else []).append)


def transforms(config: Config, mode: str) -> list[Any]:
    listed: list[Any] = config.thaw()[mode]["dataset"]["transforms"]
    return listed


def changed(config: Config, mode: str, change: Callable[[list[Any]], Any]) -> Config:
    """The config with the list of transforms of ``mode`` changed in place."""
    listed = transforms(config, mode)
    change(listed)
    return config.with_values({f"{mode}.dataset.transforms": listed})


def keeping(*keys: str) -> dict[str, Any]:
    return {"KeepKeys": {"keep_keys": ["image", *keys]}}


@pytest.fixture
def one(tiny):
    """One network with a MultiHead."""
    return tiny("student")


@pytest.fixture
def two(tiny):
    """A teacher and a student."""
    return tiny("distill")


@pytest.fixture
def scales(one):
    """Images of two heights, which the dataset resizes."""
    sampler = {
        "name": "MultiScaleSampler",
        "scales": [[128, 32], [128, 48]],
        "first_bs": 4,
        "divided_factor": [8, 16],
    }
    listed = [each for each in transforms(one, "Train") if "RecResizeImg" not in each]
    values = {"Train.sampler": sampler, "Train.dataset.name": "MultiScaleDataSet", TRAIN: listed}
    return one.with_values({**values, "Global.allow_different_preprocessing": True})


def test_good_configs_pass(one, two, scales) -> None:
    assert found(one) == found(two) == found(scales) == set()
    assert found(one, "eval") == found(two, "eval") == set()


class TestTransforms:
    def test_labels_in_another_order(self, one) -> None:
        kept = ["image", "label_gtc", "label_ctc", "length", "valid_ratio"]
        wrong = one.with_values({f"{TRAIN}.{KEYS}": kept, f"{EVAL}.{KEYS}": kept})
        assert {("label_mismatch", f"{TRAIN}.{KEYS}"), ("label_mismatch", f"{EVAL}.{KEYS}")} <= found(wrong)

    def test_a_label_that_no_transform_makes(self, one) -> None:
        wrong = changed(one, "Train", lambda t: t[1]["MultiLabelEncode"].pop("gtc_encode"))
        assert found(wrong) == {("unknown_sample_key", f"{TRAIN}.{KEYS}")}

    def test_labels_of_sar_for_nrtr(self, one) -> None:
        def sar(listed: list[Any]) -> None:
            listed[1] = {"MultiLabelEncode": None}
            listed[-1] = keeping("label_ctc", "label_sar", "length", "valid_ratio")

        assert ("label_mismatch", f"{TRAIN}.{KEYS}") in found(changed(one, "Train", sar))

    def test_valid_ratio_that_nothing_makes(self, one) -> None:
        wrong = one.with_values({EVAL: [t for t in transforms(one, "Eval") if "RecResizeImg" not in t]})
        assert found(wrong) == {("unknown_sample_key", f"{EVAL}.{KEYS}")}

    def test_valid_ratio_that_is_lost_again(self, one) -> None:
        (issue,) = issues(changed(one, "Eval", lambda t: t.insert(1, t.pop(2))))
        assert (issue.code, issue.path) == ("unknown_sample_key", f"{EVAL}.{KEYS}")
        assert "MultiLabelEncode" in issue.message

    def test_keep_keys_comes_last(self, one) -> None:
        config = one.with_values({"Global.allow_different_preprocessing": True})
        wrong = changed(config, "Eval", lambda t: t.append({"NormalizeImage": None}))
        assert found(wrong) == {("transform_order", f"{EVAL}.KeepKeys")}

    def test_keep_keys_is_there(self, one) -> None:
        assert found(changed(one, "Eval", lambda t: t.pop())) == {("missing_transform", EVAL)}

    def test_the_image_comes_first(self, one) -> None:
        wrong = one.with_values({f"{EVAL}.{KEYS}": [KEPT[1], KEPT[0], *KEPT[2:]]})
        assert found(wrong) == {("keep_keys_order", f"{EVAL}.{KEYS}")}

    def test_one_head_that_is_given_two_labels(self, one) -> None:
        head = {"Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"}, "Head": {"name": "CTCHead"}}
        values = {f"Architecture.{part}": options for part, options in head.items()}
        config = one.with_values({**values, "Loss": {"name": "CTCLoss"}})
        assert found(config) == {("label_mismatch", f"{TRAIN}.{KEYS}")}

        def single(listed: list[Any]) -> None:
            listed[1], listed[-1] = {"CTCLabelEncode": None}, keeping("label", "length")

        assert found(changed(config, "Train", single)) == set()

    def test_a_decoder_of_other_labels(self, one) -> None:
        def nrtr(listed: list[Any]) -> None:
            listed[1], listed[-1] = {"NRTRLabelEncode": None}, keeping("label", "length")

        assert found(changed(one, "Eval", nrtr)) == {("label_mismatch", f"{EVAL}.{KEYS}")}

    @pytest.mark.parametrize("name", ["RecResizeImg", "RecAug", "SVTRRecAug", "NormalizeImage"])
    def test_a_transform_of_pixels_before_decoding(self, name, one) -> None:
        options = {"image_shape": [3, 32, 128]} if name == "RecResizeImg" else None
        listed = [{name: options}, *(t for t in transforms(one, "Train") if name not in t)]
        allowed = {"Global.allow_different_preprocessing": True}
        wrong = one.with_values({TRAIN: listed, **allowed})
        assert found(wrong) == {("image_not_decoded", f"{TRAIN}.{name}")}

    def test_images_that_nothing_decodes(self, one, scales) -> None:
        bare = [t for t in transforms(one, "Eval") if "DecodeImage" not in t]
        assert found(one.with_values({EVAL: bare})) == {("image_not_decoded", f"{EVAL}.RecResizeImg")}
        bare = [t for t in transforms(scales, "Train") if "DecodeImage" not in t]
        assert found(scales.with_values({TRAIN: bare})) == {("image_not_decoded", TRAIN)}

    def test_valid_ratio_of_a_dataset_that_does_not_resize(self, one) -> None:
        dataset = {"name": "CaptchaDataSet", "size": 8}
        dataset["transforms"] = [t for t in transforms(one, "Train") if "RecResizeImg" not in t]
        allowed = {"Global.allow_different_preprocessing": True}
        wrong = one.with_values({"Train.dataset": dataset, **allowed})
        assert found(wrong) == {("unknown_sample_key", f"{TRAIN}.{KEYS}")}
        dataset["transforms"].insert(-1, copy.deepcopy(transforms(one, "Train")[2]))
        assert found(one.with_values({"Train.dataset": dataset})) == set()

    def test_sections_that_fail_together(self, one) -> None:
        wrong = one.with_values({f"{mode}.{KEYS}": [*KEPT, "label_ace"] for mode in (TRAIN, EVAL)})
        assert found(wrong) == {("unknown_sample_key", f"{mode}.{KEYS}") for mode in (TRAIN, EVAL)}


class TestOneModel:
    def test_a_loss_of_a_branch_that_is_not_there(self, one) -> None:
        plain = one.thaw()
        plain["Architecture"]["Head"]["head_list"].pop()
        assert {path for _, path in found(Config(plain))} == {f"{LISTED}.NRTRLoss"}

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("Architecture.algorithm", "CRNN"),
            ("PostProcess.name", "NRTRLabelDecode"),
            ("PostProcess.name", "DistillationCTCLabelDecode"),
            ("Architecture.Head.head_list.NRTRHead.max_text_length", 3),
        ],
    )
    def test_a_value_of_another_network(self, path, value, one) -> None:
        assert {path for _, path in found(one.with_values({path: value}))} == {path}

    def test_a_loss_of_sub_models(self, one) -> None:
        loss = {"DistillationCTCLoss": {"weight": 1.0, "model_name_list": ["A"], "multi_head": True}}
        wrong = one.with_values({"Loss": {"name": "CombinedLoss", "loss_config_list": [loss]}})
        assert {path for _, path in found(wrong)} == {f"{LISTED}.DistillationCTCLoss"}

    def test_a_metric_of_sub_models(self, one) -> None:
        wrong = one.with_values({"Metric": {"name": "DistillationMetric", "key": "Student"}})
        assert {path for _, path in found(wrong)} == {"Metric.name"}


class TestSubModels:
    LOSS = f"{LISTED}.DistillationCTCLoss"

    @pytest.mark.parametrize(
        ("path", "value", "where"),
        [
            (f"{LOSS}.model_name_list", ["Pupil"], f"{LOSS}.model_name_list"),
            (f"{LOSS}.multi_head", False, LOSS),
            (f"{LOSS}.key", None, LOSS),
            ("Metric.key", "Teacher", "Metric.key"),
            ("PostProcess.model_name", ["Studnet"], "PostProcess.model_name"),
            ("PostProcess.name", "CTCLabelDecode", "PostProcess.name"),
            ("Metric.name", "RecMetric", "Metric.name"),
        ],
    )
    def test_what_reads_sub_models(self, path, value, where, two) -> None:
        assert {path for _, path in found(two.with_values({path: value}))} == {where}

    def test_a_loss_of_one_model(self, two) -> None:
        wrong = two.with_values({"Loss": {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}]}})
        assert {path for _, path in found(wrong)} == {f"{LISTED}.CTCLoss"}

    def test_a_key_of_a_model_that_gives_its_head_alone(self, two) -> None:
        wrong = two.with_values({f"{STUDENT}.return_all_feats": False})
        names = ("DistillationCTCLoss", "DistillationNRTRLoss", "CTCFrameKDLoss")
        assert {path for _, path in found(wrong)} == {
            "PostProcess.key",
            *(f"{LISTED}.{name}" for name in names),
        }

    def test_a_branch_that_a_sub_model_has_not(self, two) -> None:
        plain = two.thaw()
        plain["Architecture"]["Models"]["Student"]["Head"]["head_list"].pop()
        assert {path for _, path in found(Config(plain))} == {f"{LISTED}.DistillationNRTRLoss"}

    def test_valid_ratio_that_is_not_kept(self, two) -> None:
        wrong = two.with_values({f"{TRAIN}.{KEYS}": KEPT[:-1]})
        (issue,) = issues(wrong)
        assert (issue.level, issue.code, issue.path) == ("warning", "no_valid_ratio", f"{TRAIN}.{KEYS}")


def test_a_failure_of_the_dataset_itself_is_named(one) -> None:
    (issue,) = issues(one.with_values({"Train.dataset.ext_op_transform_idx": "first"}))
    assert (issue.code, issue.path) == ("dataset_failed", "Train.dataset")
    assert "slice indices" in issue.message  # what PaddleOCR's dataset raises


def test_train_and_eval_of_other_sizes(one) -> None:
    wrong = one.with_values({f"{EVAL}.RecResizeImg.image_shape": [3, 48, 128]})
    assert found(wrong) == {("preprocessing_mismatch", f"{EVAL}.RecResizeImg.image_shape")}
