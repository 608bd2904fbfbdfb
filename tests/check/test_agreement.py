"""Parts of a config that must fit each other: transforms, labels, losses, networks, decoder, metric."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from official_facts import KEEP, RESIZE, Check

from ppocr_ext.config import Config
from ppocr_ext.config.override import override
from ppocr_ext.registry import DATASETS

TRANSFORMS = "Train.dataset.transforms"
HEADS = "Architecture.Head.head_list"
STUDENT = "Architecture.Models.Student"


class Plain:
    def __init__(self, config: Any, mode: str, logger: Any, seed: Any) -> None:
        self.ds_width = False


class Resizing(Plain):
    def resized(self, data: dict[str, Any]) -> None:
        data["valid_ratio"] = 1.0


def only(issues: list[str]) -> str:
    assert len(issues) == 1, issues
    return issues[0]


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
        found = check(one.with_values({f"{TRANSFORMS}.KeepKeys.keep_keys": kept}))
        assert any(
            "CTCLoss reads [image, label_ctc, label_gtc or label_sar, length, valid_ratio]" in f
            for f in found
        )
        assert any("CTCLabelDecode reads the label at the second place" in f for f in found)

    def test_a_label_that_no_transform_makes(self, one: Config, check: Check) -> None:
        plain = spoilt(one, "Train", lambda t: t[2]["MultiLabelEncode"].pop("gtc_encode"))
        found = check(plain)
        assert any("no transform makes 'label_gtc'; there are" in f and "label_sar" in f for f in found)

    def test_labels_of_sar_for_nrtr(self, one: Config, check: Check) -> None:
        def sar(transforms: list[Any]) -> None:
            transforms[2] = {"MultiLabelEncode": None}
            transforms[3] = keeping("label_ctc", "label_sar", "length", "valid_ratio")

        issue = only(check(spoilt(one, "Train", sar)))
        assert (
            "NRTRLoss needs the labels of NRTRLabelEncode, but MultiLabelEncode makes those of SARLabelEncode"
            in issue
        )

    def test_valid_ratio_that_nothing_makes(self, one: Config, check: Check) -> None:
        issue = only(check(spoilt(one, "Eval", lambda t: t.pop(2))))
        assert "no transform makes 'valid_ratio'" in issue and "RecResizeImg makes it" in issue

    def test_valid_ratio_that_is_lost_again(self, one: Config, check: Check) -> None:
        issue = only(check(spoilt(one, "Eval", lambda t: t.insert(1, t.pop(2)))))
        assert "'valid_ratio' is made before MultiLabelEncode, which leaves it out" in issue

    def test_keep_keys_comes_last(self, one: Config, check: Check) -> None:
        found = check(spoilt(one, "Eval", lambda t: t.append(copy.deepcopy(RESIZE))))
        assert any("nothing can come after it. Put it last" in f for f in found)

    def test_keep_keys_is_there(self, one: Config, check: Check) -> None:
        assert "there is no KeepKeys" in only(check(spoilt(one, "Eval", lambda t: t.pop())))

    def test_a_single_head_is_not_given_two_labels(self, one: Config, check: Check) -> None:
        head = {"Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"}, "Head": {"name": "CTCHead"}}
        values = {f"Architecture.{part}": options for part, options in head.items()}
        config = one.with_values({**values, "Loss": {"name": "CTCLoss"}})
        assert "CTCLoss reads [image, label, length] by position, but [image, label_ctc, label_gtc," in only(
            check(config)
        )

        def single(transforms: list[Any]) -> None:
            transforms[2:] = [{"CTCLabelEncode": None}, keeping("label", "length")]

        assert check(spoilt(config, "Train", single)) == []

    def test_a_decoder_of_another_alphabet(self, one: Config, check: Check) -> None:
        def nrtr(transforms: list[Any]) -> None:
            transforms[1:] = [{"NRTRLabelEncode": None}, RESIZE, keeping("label", "length")]

        issue = only(check(spoilt(one, "Eval", nrtr)))
        assert (
            "CTCLabelDecode reads the label at the second place, but 'label' is made by NRTRLabelEncode"
            in issue
        )


class TestSizes:
    def test_a_sampler_of_scales_needs_a_dataset_of_scales(self, one: Config, check: Check) -> None:
        config = one.with_values(
            {"Train.dataset.name": "SimpleDataSet", f"{TRANSFORMS}.KeepKeys": KEEP["KeepKeys"]}
        )
        assert any(
            "MultiScaleSampler hands out image sizes, which SimpleDataSet does not take" in f
            for f in check(config)
        )

    def test_a_dataset_of_scales_needs_a_sampler(self, one: Config, check: Check) -> None:
        plain = one.thaw()
        del plain["Train"]["sampler"]
        assert "MultiScaleDataSet takes its image sizes from a sampler, and Train has none" in only(
            check(plain)
        )

    def test_a_dataset_of_somebody_elses_may_resize(self, one: Config, check: Check) -> None:
        for name, resizes in (("Resizing", True), ("Plain", False)):
            DATASETS.register(name)(Resizing if resizes else Plain)
            try:
                found = check(one.with_values({"Train.dataset.name": name}))
            finally:
                del DATASETS._own[name]
            assert any("no transform makes 'valid_ratio'" in issue for issue in found) is not resizes

    def test_captchas_are_of_one_size(self, one: Config, check: Check) -> None:
        dataset = {"name": "CaptchaDataSet", "size": 8, "characters": "012"}
        dataset["transforms"] = one.thaw()["Train"]["dataset"]["transforms"]
        dataset["transforms"].insert(3, RESIZE)
        assert "which CaptchaDataSet does not take" in only(
            check(one.with_values({"Train.dataset": dataset}))
        )

    def test_a_sampler_of_eval_is_not_used(self, one: Config, check: Check) -> None:
        issue = only(check(one.with_values({"Eval.sampler": one.thaw()["Train"]["sampler"]})))
        assert issue == "warning: Eval.sampler: a sampler is used in Train alone."


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
        assert fits or "the NRTR branch decodes <s> and up to 22 characters, labels have up to 23" in only(
            found
        )


class TestOneModel:
    def test_a_loss_of_a_branch_that_is_not_there(self, one: Config, check: Check) -> None:
        plain = one.thaw()
        plain["Architecture"]["Head"]["head_list"].pop()
        assert only(check(plain)).endswith(
            "NRTRLoss needs a NRTRHead, which Architecture.Head.head_list has not."
        )

    def test_an_algorithm_that_gets_no_labels(self, one: Config, check: Check) -> None:
        issue = only(check(one.with_values({"Architecture.algorithm": "CRNN"})))
        assert "hands the network no labels" in issue and "SVTR_LCNet" in issue

    def test_parts_for_sub_models(self, one: Config, check: Check) -> None:
        loss = {
            "name": "CombinedLoss",
            "loss_config_list": [
                {"DistillationCTCLoss": {"weight": 1.0, "model_name_list": ["A"], "multi_head": True}}
            ],
        }
        assert "is for sub-models, but Architecture has no Models" in only(
            check(one.with_values({"Loss": loss}))
        )
        decoder = {"PostProcess.name": "DistillationCTCLabelDecode"}
        assert "Use CTCLabelDecode." in only(check(one.with_values(decoder)))
        metric = {"Metric": {"name": "DistillationMetric", "key": "Student"}}
        assert "Use RecMetric." in only(check(one.with_values(metric)))

    def test_a_decoder_that_a_multi_head_does_not_feed(self, one: Config, check: Check) -> None:
        found = check(one.with_values({"PostProcess.name": "NRTRLabelDecode"}))
        assert any("a MultiHead gives its CTC output in evaluation" in issue for issue in found)


class TestSubModels:
    LOSS = "Loss.loss_config_list.DistillationCTCLoss"

    @pytest.mark.parametrize(
        ("path", "value", "said"),
        [
            (
                f"{LOSS}.model_name_list",
                ["Pupil"],
                "there is no sub-model 'Pupil'; Architecture.Models has Teacher, Student.",
            ),
            (
                f"{LOSS}.multi_head",
                False,
                "Student has the head MultiHead, so it must be `multi_head: true`.",
            ),
            (f"{LOSS}.key", None, "`key` is missing: Student has return_all_feats. Give `key: head_out`."),
            (
                "Metric.key",
                "Teacher",
                "Teacher is not among the sub-models that PostProcess.model_name decodes (Student)",
            ),
            (
                "PostProcess.model_name",
                ["Studnet"],
                "there is no sub-model 'Studnet'; Architecture.Models has Teacher, Student. Did you mean 'Student'?",
            ),
            (
                "PostProcess.name",
                "CTCLabelDecode",
                "which CTCLabelDecode is not for. Use DistillationCTCLabelDecode.",
            ),
            ("Metric.name", "RecMetric", "which RecMetric is not for. Use DistillationMetric."),
            (
                "Architecture.name",
                "BaseModel",
                "several sub-models need `Architecture.name: DistillationModel`.",
            ),
            (
                "Loss",
                {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}]},
                "MultiLoss is for one model",
            ),
        ],
    )
    def test_what_names_or_reads_sub_models(
        self, path: str, value: Any, said: str, two: Config, check: Check
    ) -> None:
        found = check(two.with_values({path: value}))
        assert [issue for issue in found if said in issue and issue.startswith("error: ")] != []

    def test_a_key_of_a_model_that_gives_its_head_alone(self, two: Config, check: Check) -> None:
        found = check(two.with_values({f"{STUDENT}.return_all_feats": False}))
        said = "Student gives no 'head_out': set `return_all_feats: true` in Architecture.Models.Student."
        assert len(found) == 5 and all(said in issue for issue in found)  # four losses and the decoder

    def test_a_branch_that_a_sub_model_has_not(self, two: Config, check: Check) -> None:
        plain = two.thaw()
        plain["Architecture"]["Models"]["Student"]["Head"]["head_list"].pop()
        found = check(plain)
        assert len(found) == 2 and all("the head_list of Student has no NRTRHead" in issue for issue in found)

    def test_an_option_that_makes_a_sub_model_of_its_own(self, two: Config, check: Check) -> None:
        spelt = Config.of(override(two._node, ["Architecture.Models.Studnet.Backbone.dims=[8]"]))
        said = "Architecture.Models.Studnet: the files have no such sub-model. Did you mean 'Student'?"
        assert said in only(check(spelt)[:1])
        issue = only(check(two.with_values({"Architecture.Models.Studnet.freeze_params": True}))[:1])
        assert "Did you mean 'Student'?" in issue

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
        assert "warning: " in only(check(config.with_values(keys)))
        assert (
            check(config.with_values({**keys, "Loss.loss_config_list.CTCFrameKDLoss.skip_padding": False}))
            == []
        )

    def test_an_evaluation_is_not_about_the_loss(self, two: Config, check: Check) -> None:
        assert check(two.with_values({f"{self.LOSS}.model_name_list": ["Pupil"]}), "eval") == []
