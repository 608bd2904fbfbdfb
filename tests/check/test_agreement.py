"""Parts of a config that must fit each other: transforms, labels, losses, networks, decoder, metric."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from official_facts import KEEP, RESIZE, Check, errors_at, facts, only

from ppocr_ext.config import Config
from ppocr_ext.config.edit import override
from ppocr_ext.registry import DATASETS

TRANSFORMS = "Train.dataset.transforms"
EVAL_TRANSFORMS = "Eval.dataset.transforms"
KEPT = "KeepKeys.keep_keys"
HEADS = "Architecture.Head.head_list"
STUDENT = "Architecture.Models.Student"


class Plain:
    def __init__(self, config: Any, mode: str, logger: Any, seed: Any) -> None:
        self.ds_width = False


class Resizing(Plain):
    def resized(self, data: dict[str, Any]) -> None:
        data["valid_ratio"] = 1.0


def keeping(*keys: str) -> dict[str, Any]:
    return {"KeepKeys": {"keep_keys": ["image", *keys]}}


def spoilt(config: Config, mode: str, change: Any) -> dict[str, Any]:
    """The config with its list of transforms changed in place."""
    plain = config.thaw()
    change(plain[mode]["dataset"]["transforms"])
    return plain


class TestLabels:
    def test_labels_in_another_order(self, one: Config, check: Check) -> None:
        kept = ["image", "label_gtc", "label_ctc", "length", "valid_ratio"]
        found = errors_at(check(one.with_values({f"{TRANSFORMS}.{KEPT}": kept})), f"{TRANSFORMS}.{KEPT}")
        for reader in ("CTCLoss", "NRTRLoss", "CTCLabelDecode"):
            assert any(issue.code == "label_mismatch" and reader in issue.message for issue in found)

    def test_a_label_that_no_transform_makes(self, one: Config, check: Check) -> None:
        plain = spoilt(one, "Train", lambda t: t[2]["MultiLabelEncode"].pop("gtc_encode"))
        found = [f for f in check(plain) if f.code == "unknown_sample_key"]
        assert only(found).path == f"{TRANSFORMS}.{KEPT}"
        assert "'label_gtc'" in found[0].message and "label_sar" in found[0].message

    def test_labels_of_sar_for_nrtr(self, one: Config, check: Check) -> None:
        def sar(transforms: list[Any]) -> None:
            transforms[2] = {"MultiLabelEncode": None}
            transforms[3] = keeping("label_ctc", "label_sar", "length", "valid_ratio")

        issue = only(check(spoilt(one, "Train", sar)))
        assert facts([issue]) == [("error", "label_mismatch", f"{TRANSFORMS}.{KEPT}")]
        assert all(name in issue.message for name in ("NRTRLoss", "NRTRLabelEncode", "SARLabelEncode"))

    def test_valid_ratio_that_nothing_makes(self, one: Config, check: Check) -> None:
        issue = only(check(spoilt(one, "Eval", lambda t: t.pop(2))))
        assert facts([issue]) == [("error", "unknown_sample_key", f"{EVAL_TRANSFORMS}.{KEPT}")]
        assert "'valid_ratio'" in issue.message and "RecResizeImg" in issue.message

    def test_valid_ratio_that_is_lost_again(self, one: Config, check: Check) -> None:
        issue = only(check(spoilt(one, "Eval", lambda t: t.insert(1, t.pop(2)))))
        assert facts([issue]) == [("error", "unknown_sample_key", f"{EVAL_TRANSFORMS}.{KEPT}")]
        assert "'valid_ratio'" in issue.message and "MultiLabelEncode" in issue.message

    def test_keep_keys_comes_last(self, one: Config, check: Check) -> None:
        found = check(spoilt(one, "Eval", lambda t: t.append(copy.deepcopy(RESIZE))))
        assert ("error", "transform_order", f"{EVAL_TRANSFORMS}.KeepKeys") in facts(found)

    def test_keep_keys_is_there(self, one: Config, check: Check) -> None:
        found = check(spoilt(one, "Eval", lambda t: t.pop()))
        assert facts(found) == [("error", "missing_transform", EVAL_TRANSFORMS)]

    def test_a_single_head_is_not_given_two_labels(self, one: Config, check: Check) -> None:
        head = {"Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"}, "Head": {"name": "CTCHead"}}
        values = {f"Architecture.{part}": options for part, options in head.items()}
        config = one.with_values({**values, "Loss": {"name": "CTCLoss"}})
        issue = only(check(config))
        assert facts([issue]) == [("error", "label_mismatch", f"{TRANSFORMS}.{KEPT}")]
        assert "CTCLoss" in issue.message and "[image, label_ctc, label_gtc," in issue.message

        def single(transforms: list[Any]) -> None:
            transforms[2:] = [{"CTCLabelEncode": None}, keeping("label", "length")]

        assert check(spoilt(config, "Train", single)) == []

    def test_a_decoder_of_another_alphabet(self, one: Config, check: Check) -> None:
        def nrtr(transforms: list[Any]) -> None:
            transforms[1:] = [{"NRTRLabelEncode": None}, RESIZE, keeping("label", "length")]

        issue = only(check(spoilt(one, "Eval", nrtr)))
        assert facts([issue]) == [("error", "label_mismatch", f"{EVAL_TRANSFORMS}.{KEPT}")]
        assert "CTCLabelDecode" in issue.message and "NRTRLabelEncode" in issue.message


class TestSizes:
    def test_a_sampler_of_scales_needs_a_dataset_of_scales(self, one: Config, check: Check) -> None:
        config = one.with_values(
            {"Train.dataset.name": "SimpleDataSet", f"{TRANSFORMS}.KeepKeys": KEEP["KeepKeys"]}
        )
        assert ("error", "sampler_mismatch", "Train.sampler.name") in facts(check(config))

    def test_a_dataset_of_scales_needs_a_sampler(self, one: Config, check: Check) -> None:
        plain = one.thaw()
        del plain["Train"]["sampler"]
        assert facts(check(plain)) == [("error", "sampler_mismatch", "Train.dataset.name")]

    def test_a_dataset_of_somebody_elses_may_resize(self, one: Config, check: Check) -> None:
        for name, resizes in (("Resizing", True), ("Plain", False)):
            DATASETS.register(name)(Resizing if resizes else Plain)
            try:
                found = check(one.with_values({"Train.dataset.name": name}))
            finally:
                del DATASETS._own[name]
            assert ("unknown_sample_key" in [issue.code for issue in found]) is not resizes

    def test_captchas_are_of_one_size(self, one: Config, check: Check) -> None:
        dataset = {"name": "CaptchaDataSet", "size": 8, "characters": "012"}
        dataset["transforms"] = one.thaw()["Train"]["dataset"]["transforms"]
        dataset["transforms"].insert(3, RESIZE)
        found = check(one.with_values({"Train.dataset": dataset}))
        assert facts(found) == [("error", "sampler_mismatch", "Train.sampler.name")]
        assert "CaptchaDataSet" in found[0].message

    def test_a_sampler_of_eval_is_not_used(self, one: Config, check: Check) -> None:
        found = check(one.with_values({"Eval.sampler": one.thaw()["Train"]["sampler"]}))
        assert facts(found) == [("warning", "unused_key", "Eval.sampler")]


class TestLengths:
    @pytest.mark.parametrize(
        ("head", "longest", "fits"), [(25, 25, True), (40, 25, True), (24, 25, True), (23, 25, False)]
    )
    def test_an_nrtr_branch_decodes_what_labels_may_have(
        self, head: int, longest: int, fits: bool, one: Config, check: Check
    ) -> None:
        values = {f"{HEADS}.NRTRHead.max_text_length": head, "Global.max_text_length": longest}
        found = check(one.with_values(values))
        assert (found == []) is fits
        if not fits:
            assert only(found).code == "text_length_mismatch"
            assert "22" in found[0].message and "23" in found[0].message


class TestOneModel:
    def test_a_loss_of_a_branch_that_is_not_there(self, one: Config, check: Check) -> None:
        plain = one.thaw()
        plain["Architecture"]["Head"]["head_list"].pop()
        issue = only(check(plain))
        assert facts([issue]) == [("error", "missing_branch", "Loss.loss_config_list.NRTRLoss")]
        assert "NRTRHead" in issue.message

    def test_an_algorithm_that_gets_no_labels(self, one: Config, check: Check) -> None:
        issue = only(check(one.with_values({"Architecture.algorithm": "CRNN"})))
        assert facts([issue]) == [("error", "algorithm_mismatch", "Architecture.algorithm")]
        assert "SVTR_LCNet" in issue.message

    def test_parts_for_sub_models(self, one: Config, check: Check) -> None:
        loss = {
            "name": "CombinedLoss",
            "loss_config_list": [
                {"DistillationCTCLoss": {"weight": 1.0, "model_name_list": ["A"], "multi_head": True}}
            ],
        }
        issue = only(check(one.with_values({"Loss": loss})))
        assert facts([issue]) == [
            ("error", "sub_model_mismatch", "Loss.loss_config_list.DistillationCTCLoss")
        ]
        decoder = {"PostProcess.name": "DistillationCTCLabelDecode"}
        issue = only(check(one.with_values(decoder)))
        assert issue.code == "sub_model_mismatch" and "Use CTCLabelDecode" in issue.message
        metric = {"Metric": {"name": "DistillationMetric", "key": "Student"}}
        issue = only(check(one.with_values(metric)))
        assert issue.code == "sub_model_mismatch" and "Use RecMetric" in issue.message

    def test_a_decoder_that_a_multi_head_does_not_feed(self, one: Config, check: Check) -> None:
        found = check(one.with_values({"PostProcess.name": "NRTRLabelDecode"}))
        assert ("error", "decoder_mismatch", "PostProcess.name") in facts(found)


class TestSubModels:
    LOSS = "Loss.loss_config_list.DistillationCTCLoss"

    @pytest.mark.parametrize(
        ("path", "value", "code", "fact"),
        [
            (f"{LOSS}.model_name_list", ["Pupil"], "unknown_sub_model", "'Pupil'"),
            (f"{LOSS}.multi_head", False, "multi_head_mismatch", "`multi_head: true`"),
            (f"{LOSS}.key", None, "missing_key", "`key: head_out`"),
            ("Metric.key", "Teacher", "unknown_sub_model", "(Student)"),
            ("PostProcess.model_name", ["Studnet"], "unknown_sub_model", "'Student'"),
            ("PostProcess.name", "CTCLabelDecode", "sub_model_mismatch", "DistillationCTCLabelDecode"),
            ("Metric.name", "RecMetric", "sub_model_mismatch", "DistillationMetric"),
            ("Architecture.name", "BaseModel", "sub_model_mismatch", "DistillationModel"),
            (
                "Loss",
                {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}]},
                "sub_model_mismatch",
                "MultiLoss",
            ),
        ],
    )
    def test_what_names_or_reads_sub_models(
        self, path: str, value: Any, code: str, fact: str, two: Config, check: Check
    ) -> None:
        found = [issue for issue in check(two.with_values({path: value})) if issue.code == code]
        assert any(issue.level == "error" and fact in issue.message for issue in found)

    def test_a_key_of_a_model_that_gives_its_head_alone(self, two: Config, check: Check) -> None:
        found = check(two.with_values({f"{STUDENT}.return_all_feats": False}))
        assert [issue.code for issue in found] == ["missing_output"] * 5  # four losses and the decoder
        assert all("Architecture.Models.Student" in issue.message for issue in found)

    def test_a_branch_that_a_sub_model_has_not(self, two: Config, check: Check) -> None:
        plain = two.thaw()
        plain["Architecture"]["Models"]["Student"]["Head"]["head_list"].pop()
        found = check(plain)
        assert [issue.code for issue in found] == ["missing_branch"] * 2
        assert all("Student" in issue.message and "NRTRHead" in issue.message for issue in found)

    def test_an_option_that_makes_a_sub_model_of_its_own(self, two: Config, check: Check) -> None:
        spelt = Config.of(override(two._node, ["Architecture.Models.Studnet.Backbone.dims=[8]"]))
        issue = check(spelt)[0]
        assert facts([issue]) == [("error", "unknown_sub_model", "Architecture.Models.Studnet")]
        assert "'Student'" in issue.message
        issue = check(two.with_values({"Architecture.Models.Studnet.freeze_params": True}))[0]
        assert "'Student'" in issue.message

    def test_padding_that_cannot_be_told(self, two: Config, check: Check) -> None:
        pair = {
            "weight": 1.0,
            "model_name_pairs": [["Student", "Teacher"]],
            "key": "head_out",
            "multi_head": True,
        }
        loss = {"name": "CombinedLoss", "loss_config_list": [{"CTCFrameKDLoss": pair}]}
        config = two.with_values({"Loss": loss})
        assert check(config) == []
        keys = {f"{TRANSFORMS}.KeepKeys.keep_keys": ["image", "label_ctc", "label_gtc", "length"]}
        assert facts(check(config.with_values(keys))) == [
            ("warning", "no_valid_ratio", f"{TRANSFORMS}.{KEPT}")
        ]
        assert (
            check(config.with_values({**keys, "Loss.loss_config_list.CTCFrameKDLoss.skip_padding": False}))
            == []
        )

    def test_an_evaluation_is_not_about_the_loss(self, two: Config, check: Check) -> None:
        assert check(two.with_values({f"{self.LOSS}.model_name_list": ["Pupil"]}), "eval") == []
