"""Parts of a config that do not fit each other; those that a batch shows are in tests/run/test_dry_step.py."""

from __future__ import annotations

import pytest
from official_facts import KEEP, Check, facts, only

from ppocr_ext.config import Config
from ppocr_ext.config.config_view import override
from ppocr_ext.modeling.backbones import SVTRNet

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

    def test_a_sampler_of_eval_is_not_used(self, one: Config, check: Check) -> None:
        found = check(one.with_values({"Eval.sampler": one.thaw()["Train"]["sampler"]}))
        assert facts(found) == [("warning", "unused_key", "Eval.sampler")]


class TestSizesOfImages:
    """A dataset without sizes of its own needs a transform that resizes."""

    @pytest.mark.parametrize("dataset", ["SimpleDataSet", "LMDBDataSet"])
    def test_no_transform_resizes(self, dataset: str, one: Config, check: Check) -> None:
        listed = [each for each in one.thaw()["Eval"]["dataset"]["transforms"] if "RecResizeImg" not in each]
        found = check(one.with_values({"Eval.dataset.name": dataset, "Eval.dataset.transforms": listed}))
        assert ("error", "missing_resize", "Eval.dataset.transforms") in facts(found)
        assert any("[3, 32, 320]" in issue.message for issue in found)  # a size of Train's

    def test_a_transform_that_may_resize(self, one: Config, check: Check) -> None:
        listed = [*one.thaw()["Eval"]["dataset"]["transforms"]]
        listed[2] = {"ResizeTableImage": {"max_len": 48}}
        assert "missing_resize" not in [
            issue.code for issue in check(one.with_values({"Eval.dataset.transforms": listed}))
        ]


class TestTokens:
    """An SVTRNet without its last stage returns tokens, which only a head with `use_pool` reads."""

    @pytest.mark.parametrize(
        ("last_stage", "use_pool", "out_channels", "wrong"),
        [
            (False, True, 256, None),
            (False, True, None, "Backbone.out_channels"),  # its default is 192
            (True, None, 192, None),
            (None, False, None, None),
            (False, None, 256, "Head.use_pool"),
            (True, True, 192, "Head.use_pool"),
            (False, True, 192, "Backbone.out_channels"),
        ],
    )
    def test_backbone_and_head_agree(
        self, last_stage: bool | None, use_pool: bool | None, out_channels: int | None, wrong: str | None,
        one: Config, check: Check,
    ) -> None:  # fmt: skip
        backbone = {"name": "SVTRNet", "img_size": [48, 320], "embed_dim": [64, 128, 256]}
        chosen = {"last_stage": last_stage, "out_channels": out_channels}
        backbone |= {key: value for key, value in chosen.items() if value is not None}
        values: dict[str, object] = {"Architecture.Backbone": backbone}
        values |= {} if use_pool is None else {"Architecture.Head.use_pool": use_pool}
        found = check(one.with_values(values))
        assert facts(found) == ([("error", "token_mismatch", f"Architecture.{wrong}")] if wrong else [])


@pytest.mark.parametrize(("depth", "is_short"), [([3, 6, 3], False), ([2, 4, 2], True)])
def test_an_svtrnet_ignores_mixers_after_its_last_block(
    depth: list[int], is_short: bool, one: Config, check: Check
) -> None:
    backbone = {"name": "SVTRNet", "img_size": [48, 320], "depth": depth}
    found = check(one.with_values({"Architecture.Backbone": backbone}))
    assert facts(found) == [("warning", "length_mismatch", "Architecture.Backbone.mixer")] * is_short
    blocks = SVTRNet([32, 64], depth=depth, local_mixer=[[7, 5]] * 3)
    assert sum(len(getattr(blocks, f"blocks{stage}")) for stage in (1, 2, 3)) == sum(depth)


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
            path = f"{HEADS}.NRTRHead.max_text_length"
            assert facts(found) == [("warning", "text_length_mismatch", path)]  # PaddleOCR trains it
            assert "22" in found[0].message and "23" in found[0].message


class TestOneModel:
    def test_an_algorithm_that_gets_no_labels(self, one: Config, check: Check) -> None:
        issue = only(check(one.with_values({"Architecture.algorithm": "CRNN"})))
        assert facts([issue]) == [("error", "algorithm_mismatch", "Architecture.algorithm")]
        assert "SVTR_LCNet" in issue.message

    def test_a_decoder_of_another_head_than_ctc(self, one: Config, check: Check) -> None:
        found = check(one.with_values({"PostProcess.name": "NRTRLabelDecode"}))
        assert ("error", "decoder_mismatch", "PostProcess.name") in facts(found)

    @pytest.mark.parametrize(
        ("head", "decoder", "fits"),
        [
            ("CTCHead", "SARLabelDecode", False),
            ("CTCHead", "ViTSTRLabelDecode", True),
            ("SARHead", "SARLabelDecode", True),
        ],
    )
    def test_the_decoder_of_a_single_head(
        self, head: str, decoder: str, fits: bool, one: Config, check: Check
    ) -> None:
        found = check(one.with_values({"Architecture.Head": {"name": head}, "PostProcess.name": decoder}))
        assert [issue.path for issue in found if issue.code == "decoder_mismatch"] == ["PostProcess.name"] * (
            not fits
        )


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
