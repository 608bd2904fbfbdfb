"""Parts of a config that do not fit each other; those that a batch shows are in tests/run/test_dry_step.py."""

from __future__ import annotations

import pytest
from official_facts import KEEP, RESIZE, Check, facts, only

from ppocr_ext.config import Config
from ppocr_ext.config.edit import override

TRANSFORMS = "Train.dataset.transforms"
KEPT = "KeepKeys.keep_keys"
HEADS = "Architecture.Head.head_list"


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
    def test_an_algorithm_that_gets_no_labels(self, one: Config, check: Check) -> None:
        issue = only(check(one.with_values({"Architecture.algorithm": "CRNN"})))
        assert facts([issue]) == [("error", "algorithm_mismatch", "Architecture.algorithm")]
        assert "SVTR_LCNet" in issue.message

    def test_a_decoder_of_another_head_than_ctc(self, one: Config, check: Check) -> None:
        found = check(one.with_values({"PostProcess.name": "NRTRLabelDecode"}))
        assert ("error", "decoder_mismatch", "PostProcess.name") in facts(found)


class TestSubModels:
    def test_several_need_a_distillation_model(self, two: Config, check: Check) -> None:
        found = check(two.with_values({"Architecture.name": "BaseModel"}))
        assert ("error", "sub_model_mismatch", "Architecture.Models") in facts(found)

    def test_an_option_with_a_misspelt_sub_model(self, two: Config, check: Check) -> None:
        spelt = Config.of(override(two._node, ["Architecture.Models.Studnet.Backbone.dims=[8]"]))
        issue = check(spelt)[0]
        assert facts([issue]) == [("error", "unknown_sub_model", "Architecture.Models.Studnet")]
        assert "'Student'" in issue.message
        issue = check(two.with_values({"Architecture.Models.Studnet.freeze_params": True}))[0]
        assert "'Student'" in issue.message

    def test_padding_without_valid_ratio(self, two: Config, check: Check) -> None:
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
