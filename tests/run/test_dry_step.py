"""The dry step: wiring faults are named with their config path, good configs pass, and no trace is left."""

from __future__ import annotations

import copy
import random
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn

from ppocr_ext.check import check_all
from ppocr_ext.checkpoint.files import read_plain_pickle, read_state
from ppocr_ext.cli.config import dry_check
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config, resolve_charset, switch_features_on, with_class_counts
from ppocr_ext.host import open_host
from ppocr_ext.issues import Issue
from ppocr_ext.loop.session import train
from ppocr_ext.modeling.heads.ctc_head import CTCHead
from ppocr_ext.registry import DATASETS, LOSSES
from ppocr_ext.run.dry_step import dry_step, same_as_before
from ppocr_ext.run.host_config import complete
from ppocr_ext.run.run import build_network

TRAIN, EVAL = "Train.dataset.transforms", "Eval.dataset.transforms"
KEYS = "KeepKeys.keep_keys"
LISTED = "Loss.loss_config_list"
HEADS = "Architecture.Head.head_list.NRTRHead"
STUDENT = "Architecture.Models.Student"
KEPT = ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]

Found = set[tuple[str, str]]


def found(config: Config, role: str = "train") -> Found:
    """Code and path of the errors that `config --check` reports."""
    return {(issue.code, issue.path) for issue in issues(config, role) if issue.level == "error"}


def issues(config: Config, role: str = "train", said: list[str] | None = None) -> list[Issue]:
    static, unused = check_all(config, open_host(), role)
    if any(issue.level == "error" for issue in static):
        return static
    return static + dry_check(config, open_host(), role, unused, (said if said is not None else []).append)[0]


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

    def test_a_label_of_a_head_that_is_not_kept(self, one) -> None:
        wrong = one.with_values({f"{TRAIN}.{KEYS}": [key for key in KEPT if key != "label_gtc"]})
        assert found(wrong) == {("labels_not_kept", f"{TRAIN}.{KEYS}")}

    def test_labels_of_sar_for_nrtr(self, one) -> None:
        def sar(listed: list[Any]) -> None:
            listed[1] = {"MultiLabelEncode": None}
            listed[-1] = keeping("label_ctc", "label_sar", "length", "valid_ratio")

        assert ("label_mismatch", f"{TRAIN}.{KEYS}") in found(changed(one, "Train", sar))

    def test_valid_ratio_that_nothing_makes(self, one) -> None:
        resize = {"PRENResizeImg": {"image_shape": [32, 128]}}
        wrong = changed(one, "Eval", lambda t: t.__setitem__(2, resize))
        wrong = wrong.with_values({"Global.allow_different_preprocessing": True})
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

    def test_frames_that_differ_between_teacher_and_student(self, two) -> None:
        """SVTRv2 has W / 8 frames, PPLCNetV3 has 40 in training whatever the width."""
        pairs = {"model_name_pairs": [["Student", "Teacher"]], "key": "head_out", "multi_head": True}
        loss = {
            "DistillationDMLLoss": {
                **pairs,
                "weight": 1.0,
                "act": "softmax",
                "use_log": True,
                "dis_head": "ctc",
            }
        }
        backbone = {"name": "PPLCNetV3", "scale": 0.25, "conv_kxk_num": 1}
        listed = [*two.thaw()["Loss"]["loss_config_list"], loss]
        config = two.with_values({f"{STUDENT}.Backbone": backbone, LISTED: listed})
        (issue,) = issues(config)
        assert (issue.code, issue.path) == ("shape_mismatch", f"{LISTED}.DistillationDMLLoss")
        assert all(fact in issue.message for fact in ("40", "16", "train_frames: width"))
        assert found(config.with_values({f"{STUDENT}.Backbone.train_frames": "width"})) == set()

    def test_each_section_pools_as_it_will_be_used(self, two) -> None:
        """PPLCNetV4 trains images 32 high, a frozen teacher too, but cannot evaluate them."""
        backbone = {"name": "PPLCNetV4", "model_size": "tiny"}
        models = ("Teacher", "Student")
        config = two.with_values({f"Architecture.Models.{name}.Backbone": backbone for name in models})
        (issue,) = issues(config)
        assert (issue.code, issue.path) == ("image_size", f"{STUDENT}.Backbone")
        assert "[3, 48, 128]" in issue.message and issue.message.count("Fix") == 1
        higher = {f"{EVAL}.RecResizeImg.image_shape": [3, 48, 128]}
        assert found(config.with_values({**higher, "Global.allow_different_preprocessing": True})) == set()

    def test_valid_ratio_that_is_not_kept(self, two) -> None:
        wrong = two.with_values({f"{TRAIN}.{KEYS}": KEPT[:-1]})
        (issue,) = issues(wrong)
        assert (issue.level, issue.code, issue.path) == ("warning", "no_valid_ratio", f"{TRAIN}.{KEYS}")


def test_patterns_of_parameters_that_match_none(one, two) -> None:
    wrong = {"Global.freeze": ["backbone.*", "backbon.*"], "Optimizer.lr_mult": {"hed.*": 0.1, "head.*": 0.1}}
    assert found(one.with_values(wrong)) == {
        ("no_match", "Global.freeze.1"),
        ("no_match", "Optimizer.lr_mult.hed.*"),
    }
    (issue,) = issues(two.with_values({"Global.freeze": ["backbone.*"]}))
    assert "Student.backbone.*" in issue.message and "Teacher" not in issue.message  # it is frozen
    assert found(one.with_values(wrong), "eval") == set()


def test_a_failure_of_the_dataset_itself_is_named(one) -> None:
    (issue,) = issues(one.with_values({"Train.dataset.ext_op_transform_idx": "first"}))
    assert (issue.code, issue.path) == ("dataset_failed", "Train.dataset")
    assert "slice indices" in issue.message  # what PaddleOCR's dataset raises


def test_train_and_eval_of_other_sizes(one) -> None:
    wrong = one.with_values({f"{EVAL}.RecResizeImg.image_shape": [3, 48, 128]})
    assert found(wrong) == {("preprocessing_mismatch", f"{EVAL}.RecResizeImg.image_shape")}


class TestNetworks:
    def test_a_head_of_another_width(self, one) -> None:
        def nrtr(listed: list[Any]) -> None:
            listed[1], listed[-1] = {"NRTRLabelEncode": None}, keeping("label", "length")

        head = {
            "name": "Transformer",
            "d_model": 36,
            "nhead": 4,
            "num_encoder_layers": -1,
            "num_decoder_layers": 1,
        }
        values = {"Architecture.Head": head, "Architecture.algorithm": "NRTR", "Loss": {"name": "NRTRLoss"}}
        config = changed(changed(one, "Train", nrtr), "Eval", nrtr).with_values(
            {**values, "PostProcess.name": "NRTRLabelDecode"}
        )
        both = issues(config)
        assert {(issue.code, issue.path) for issue in both} == {("shape_mismatch", "Architecture.Head")}
        assert len(both) == 2 and all("16" in issue.message and "36" in issue.message for issue in both)

    def test_a_softmax_before_the_losses(self, two, monkeypatch) -> None:
        before = CTCHead.forward

        def twice(self, *args: Any, **kwargs: Any) -> Any:
            return paddle.nn.functional.softmax(before(self, *args, **kwargs))

        monkeypatch.setattr(CTCHead, "forward", twice)
        heads = {("not_logits", f"Architecture.Models.{name}.Head") for name in ("Teacher", "Student")}
        assert found(two) == heads


class PluginDataset:
    """A dataset of a user's own, which gives batches as PaddleOCR's losses read them."""

    def __init__(self, config: Any, mode: str, logger: Any, seed: Any = None) -> None:
        self.label = [1, 2, 3]

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> list[Any]:
        ctc, nrtr = np.zeros(8, np.int64), np.zeros(8, np.int64)
        ctc[:3], nrtr[:5] = self.label, [2, 5, 6, 7, 3]
        return [np.zeros((3, 32, 128), np.float32), ctc, nrtr, np.array(3), np.float64(1)]


class PluginLoss(nn.Layer):
    """A loss of a user's own, which does not say what it reads."""

    def forward(self, predictions: Any, batch: Any) -> dict[str, Any]:
        return {"loss": predictions["Student"]["head_out"]["ctc"].mean() * batch[3].astype("float32").mean()}


class TestNoFalseAlarm:
    def test_components_of_plugins(self, two) -> None:
        DATASETS.register("PluginDataset")(PluginDataset)
        LOSSES.register("PluginLoss")(PluginLoss)
        try:
            assert found(two.with_values({"Train.dataset.name": "PluginDataset"})) == set()
            assert found(two.with_values({"Loss": {"name": "PluginLoss"}})) == set()
            listed = [*two.thaw()["Loss"]["loss_config_list"], {"PluginLoss": {"weight": 1.0}}]
            assert found(two.with_values({LISTED: listed})) == set()
        finally:
            del DATASETS._own["PluginDataset"], LOSSES._own["PluginLoss"]

    def test_lmdbs(self, one, captchas, tmp_path) -> None:
        lmdb = pytest.importorskip("lmdb")
        train, val = tmp_path / "train", tmp_path / "val"
        with lmdb.open(str(train), map_size=1 << 24) as environment, environment.begin(write=True) as put:
            for number, line in enumerate((captchas / "val_list.txt").read_text().splitlines(), start=1):
                image, label = line.split("\t")
                put.put(b"label-%09d" % number, label.encode() if number > 1 else b"x")
                put.put(b"image-%09d" % number, (captchas / image).read_bytes())
            put.put(b"num-samples", str(number).encode())
        shutil.copytree(train, val)
        dataset = {"name": "LMDBDataSet", "data_dir": str(train), "transforms": transforms(one, "Train")}
        both = {"Train.dataset": dataset, "Eval.dataset": {**dataset, "data_dir": str(val)}}
        said: list[str] = []
        assert issues(one.with_values(both), said=said) == []
        assert said == []
        wrong = one.with_values({"Train.dataset": dataset, f"{TRAIN}.{KEYS}": [*KEPT, "label_ace"]})
        assert found(wrong) == {("unknown_sample_key", f"{TRAIN}.{KEYS}")}

    def test_the_name_of_an_exported_model(self, two) -> None:
        assert found(two.with_values({"Global.model_name": "PP-OCRv5_mobile_rec"})) == set()

    def test_batches_of_one_image_that_differ_in_size(self, scales) -> None:
        assert found(scales.with_values({"Train.sampler.first_bs": 1})) == set()

    def test_widths_by_the_ratio_of_images(self, scales, captchas, tmp_path) -> None:
        lines = (captchas / "train_list.txt").read_text().splitlines()
        (tmp_path / "list.txt").write_text("".join(f"{line}\t160\t60\n" for line in lines))
        values = {
            "Train.dataset.ds_width": True,
            "Train.dataset.label_file_list": [str(tmp_path / "list.txt")],
        }
        assert found(scales.with_values(values)) == set()

    @pytest.mark.parametrize(
        "values",
        [
            {"Global.return_feats": True},
            {"Global.use_amp": True, "Global.amp_level": "O1"},
            {"Global.to_static": True},
            {"Global.cal_metric_during_train": True},
            {"Train.loader.num_workers": 2},
            {f"{LISTED}": [{"CTCLoss": {}}, {"NRTRLoss": {}}, {"CenterLoss": {"update": "ema"}}]},
        ],
        ids=lambda values: next(iter(values)),
    )
    def test_features_of_a_run(self, values, one) -> None:
        assert found(switch_features_on(one.with_values(values))) == set()

    def test_images_that_are_joined(self, one) -> None:
        joined = {
            "RecConAug": {"prob": 1.0, "ext_data_num": 1, "image_shape": [32, 128, 3], "max_text_length": 25}
        }
        config = changed(
            one.with_values({"Train.dataset.ext_op_transform_idx": 1}), "Train", lambda t: t.insert(1, joined)
        )
        assert (
            found(config.with_values({"Global.max_text_length": 25, f"{HEADS}.max_text_length": 25})) == set()
        )

    def test_batches_of_one_image(self, one) -> None:
        sizes = {f"{mode}.loader.batch_size_per_card": 1 for mode in ("Train", "Eval")}
        assert found(one.with_values(sizes)) == set()


def test_samples_are_drawn_if_none_can_be_read(one, tmp_path) -> None:
    (tmp_path / "empty.txt").write_text("")
    said: list[str] = []
    config = one.with_values({"Train.dataset.label_file_list": [str(tmp_path / "empty.txt")]})
    assert issues(config, said=said) == []
    assert len(said) == 1 and "Train" in said[0] and "Eval" not in said[0]
    wrong = config.with_values({f"{TRAIN}.{KEYS}": [*KEPT, "label_ace"]})
    assert found(wrong) == {("unknown_sample_key", f"{TRAIN}.{KEYS}")}


def test_it_can_be_switched_off(one) -> None:
    wrong = one.with_values({f"{TRAIN}.{KEYS}": [*KEPT, "label_ace"], "Global.dry_step": False})
    assert found(wrong) == set()


def weights_after_an_epoch(config: Config, folder: Path, on: bool) -> dict[str, np.ndarray]:
    values = {"Global.dry_step": on, "Global.epoch_num": 1, "Global.save_model_dir": str(folder / str(on))}
    train(config.with_values(values))
    states = read_plain_pickle(folder / str(on) / "latest.states")
    return {**read_state(folder / str(on) / "latest.pdparams"), **states["loss"]}


@pytest.mark.parametrize("kind", ["student", "distill"])
def test_it_leaves_no_trace(kind, tiny, tmp_path) -> None:
    """With augmentation, dropout and centers that move, the weights after an epoch are bit-identical."""
    config = changed(tiny(kind), "Train", lambda listed: listed.insert(1, {"RecAug": None}))
    if kind == "student":
        listed = [{"CTCLoss": {}}, {"NRTRLoss": {}}, {"CenterLoss": {"update": "ema", "warmup_steps": 2}}]
        config = config.with_values({LISTED: listed})
    off, on = (weights_after_an_epoch(config, tmp_path, each) for each in (False, True))
    assert off.keys() == on.keys() and len(on) > 20
    assert [name for name in on if not np.array_equal(on[name], off[name])] == []


def test_it_puts_the_networks_back(two) -> None:
    charset = resolve_charset(two, open_host().find_file)
    config = with_class_counts(complete(two, charset), charset)
    model = build_network(config)
    before = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    modes = [layer.training for layer in model.sublayers()]
    generators = (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        paddle.get_rng_state()[0].current_seed(),
    )
    assert dry_step(config, charset, open_host(), model, ("Train", "Eval"), 1, print) == []
    assert all(np.array_equal(tensor.numpy(), before[name]) for name, tensor in model.state_dict().items())
    assert modes == [layer.training for layer in model.sublayers()]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert generators[:2] == (random.getstate(), np.random.get_state()[1].tolist())


def test_a_resumed_run_leaves_it_out_if_nothing_changed(one, tmp_path) -> None:
    train(one.with_values({"Global.epoch_num": 1}))
    charset = resolve_charset(one, open_host().find_file)
    latest = Path(str(one.at("Global.save_model_dir"))) / "latest"

    def same(**values: Any) -> bool:
        config = one.with_values({"Global.epoch_num": 2, **values})
        return same_as_before(with_class_counts(complete(config, charset), charset), charset, latest)

    assert same()
    assert not same(**{"Loss.weight_2": 0.25})
    assert not same(**{"Train.loader.batch_size_per_card": 4})
    assert not same_as_before(one, charset, tmp_path / "elsewhere" / "latest")


def test_the_config_command_runs_it(one, tmp_path, capsys) -> None:
    file = tmp_path / "my.yml"
    wrong = one.with_values({f"{TRAIN}.{KEYS}": [*KEPT, "label_ace"]})
    file.write_text(wrong.to_yaml())
    command = ["config", "-c", str(file), "--check"]
    assert main(command) == 2
    assert "[unknown_sample_key]" in capsys.readouterr().out
    assert main([*command, "--data", "none"]) == 0
    capsys.readouterr()
    file.write_text(wrong.with_values({"Global.plugins": ["not_imported"]}).to_yaml())
    assert main(command) == 0
    assert "--import-plugins" in capsys.readouterr().out


def test_a_neck_that_is_too_narrow_for_the_classes_is_a_warning(one, tmp_path, capsys) -> None:
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("\n".join(string.digits + string.ascii_letters) + "\n", encoding="utf-8")
    config = one.with_values({"Global.character_dict_path": str(dictionary)})
    assert [(each.code, each.level) for each in issues(config)] == [("narrow_neck", "warning")]
    wide = config.with_values({"Architecture.Head.head_list.0.CTCHead.Neck": {"name": "reshape"}})
    assert not issues(wide)
    (tmp_path / "my.yml").write_text(config.to_yaml(), encoding="utf-8")
    assert main(["config", "--check", "-c", str(tmp_path / "my.yml")]) == 0
    assert "warning: " in capsys.readouterr().out
