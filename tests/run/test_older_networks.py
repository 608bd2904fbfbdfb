"""Configs of STAR-Net, CRNN and NRTR, with the keys and values that PaddleOCR's files have; only paths are changed."""

import math
from pathlib import Path
from typing import Any

import pytest
from lmdb_files import write_lmdb
from tiny_runs import metrics

from ppocr_ext.check import check_all
from ppocr_ext.cli.config import dry_check
from ppocr_ext.config import Config
from ppocr_ext.export.exporter import export_trained
from ppocr_ext.host import open_host
from ppocr_ext.loop.session import train

TPS = {"name": "TPS", "num_fiducial": 20, "loc_lr": 0.1}
STAR_NET = {"model_type": "rec", "algorithm": "STARNet"}
ADAM = {"name": "Adam", "beta1": 0.9, "beta2": 0.999, "lr": {"learning_rate": 0.0005}}
CTC: dict[str, Any] = {
    "Loss": {"name": "CTCLoss"},
    "PostProcess": {"name": "CTCLabelDecode"},
    "Optimizer": {**ADAM, "regularizer": {"name": "L2", "factor": 0}},
}
RESIZE = {"CTCLabelEncode": None, "RecResizeImg": {"image_shape": [3, 32, 100]}}
CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rec_mv3_tps_bilstm_ctc.yml": (
        {
            **CTC,
            "Architecture": {
                **STAR_NET,
                "Transform": {**TPS, "model_name": "small"},
                "Backbone": {"name": "MobileNetV3", "scale": 0.5, "model_name": "large"},
                "Neck": {"name": "SequenceEncoder", "encoder_type": "rnn", "hidden_size": 96},
                "Head": {"name": "CTCHead", "fc_decay": 0.0004},
            },
        },
        RESIZE,
    ),
    "rec_r34_vd_tps_bilstm_ctc.yml": (
        {
            **CTC,
            "Architecture": {
                **STAR_NET,
                "Transform": {**TPS, "model_name": "large"},
                "Backbone": {"name": "ResNet", "layers": 34},
                "Neck": {"name": "SequenceEncoder", "encoder_type": "rnn", "hidden_size": 256},
                "Head": {"name": "CTCHead", "fc_decay": 0},
            },
        },
        RESIZE,
    ),
    "rec_mtb_nrtr.yml": (
        {
            "Architecture": {
                "model_type": "rec",
                "algorithm": "NRTR",
                "in_channels": 1,
                "Transform": None,
                "Backbone": {"name": "MTB", "cnn_num": 2},
                "Head": {"name": "Transformer", "d_model": 512, "num_encoder_layers": 6, "beam_size": -1},
            },
            "Loss": {"name": "CELoss", "smoothing": True},
            "PostProcess": {"name": "NRTRLabelDecode"},
            "Optimizer": {
                **ADAM,
                "beta2": 0.99,
                "clip_norm": 5.0,
                "lr": {"name": "Cosine", "learning_rate": 0.0005, "warmup_epoch": 2},
                "regularizer": {"name": "L2", "factor": 0.0},
            },
        },
        {"NRTRLabelEncode": None, "GrayRecResizeImg": {"image_shape": [100, 32], "resize_type": "PIL"}},
    ),
}


@pytest.fixture
def stock(captchas: Path, tmp_path: Path) -> Any:
    """Return a function from the name of a network to its config, with six drawn lines to train on and two for Eval."""

    def build(name: str) -> Config:
        parts, own = CONFIGS[name]
        transforms = [{"DecodeImage": {"img_mode": "BGR", "channel_first": False}}]
        transforms += [{key: options} for key, options in own.items()]
        transforms += [{"KeepKeys": {"keep_keys": ["image", "label", "length"]}}]
        sections = {}
        for mode, listed, count in (("Train", "train_list.txt", 6), ("Eval", "val_list.txt", 2)):
            rows = [line.split("\t") for line in (captchas / listed).read_text().splitlines()[:count]]
            images = {number: (captchas / image).read_bytes() for number, (image, _) in enumerate(rows, 1)}
            write_lmdb(tmp_path / mode, [label for _, label in rows], images=images)
            dataset = {"name": "LMDBDataSet", "data_dir": str(tmp_path / mode), "transforms": transforms}
            loader = {"shuffle": False, "batch_size_per_card": 2, "drop_last": False, "num_workers": 0}
            sections[mode] = {"dataset": dataset, "loader": loader}
        of_run = {
            **dict.fromkeys(("use_gpu", "use_visualdl", "infer_mode", "use_space_char", "report"), False),
            "epoch_num": 3,
            "cal_metric_during_train": True,
            "print_batch_step": 1,
            "eval_batch_step": [0, 2000],
            "save_model_dir": str(tmp_path / "run"),
            "character_dict_path": str(captchas / "dict.txt"),
            "max_text_length": 25,
        }
        return Config(
            {"Global": of_run, **parts, "Metric": {"name": "RecMetric", "main_indicator": "acc"}, **sections}
        )

    return build


@pytest.mark.e2e
@pytest.mark.parametrize("name", CONFIGS)
def test_it_passes_the_check_trains_and_exports_at_any_width(name, stock, tmp_path):
    config = stock(name)
    issues, unused = check_all(config, open_host(), "train")
    assert [issue for issue in issues if issue.level == "error"] == []
    assert dry_check(config, open_host(), "train", unused, lambda line: None)[0] == []
    assert train(config).status == "finished"
    steps, evaluations = (metrics(tmp_path / "run", kind) for kind in ("train", "eval"))
    assert len(steps) == 9 and len(evaluations) == 1
    losses = [line["loss"] for line in steps]
    assert all(map(math.isfinite, losses)) and sum(losses[6:]) < sum(losses[:3])
    if name != "rec_mtb_nrtr.yml":  # an NRTR decoder is not exported
        weights = {"Global.checkpoints": str(tmp_path / "run" / "latest")}
        exported = export_trained(config.with_values(weights), tmp_path / "exported")
        assert exported.description.width is None and len(exported.description.comparisons) > 1


@pytest.mark.parametrize(
    ("name", "size", "code"),
    [
        ("rec_r34_vd_tps_bilstm_ctc.yml", [3, 16, 100], "image_size"),
        ("rec_r34_vd_tps_bilstm_ctc.yml", [3, 64, 100], "shape_mismatch"),
        ("rec_mtb_nrtr.yml", [100, 48], "shape_mismatch"),
    ],
)
def test_a_height_that_the_network_cannot_take_is_an_issue(name, size, code, stock):
    config = stock(name)
    transform = next(key for key in CONFIGS[name][1] if key.endswith("ResizeImg"))
    sized = {f"{mode}.dataset.transforms.2.{transform}.image_shape": size for mode in ("Train", "Eval")}
    found, _ = dry_check(config.with_values(sized), open_host(), "train", set(), lambda line: None)
    assert {issue.code for issue in found if issue.level == "error"} == {code}


@pytest.mark.parametrize(
    ("part", "name"), [("Head", "AttentionHead"), ("Head", "ParseQHead"), ("Backbone", "ResNet34_vd")]
)
def test_what_is_lacking_is_named_with_what_to_do(part, name, stock):
    config = stock("rec_r34_vd_tps_bilstm_ctc.yml").with_values({f"Architecture.{part}": {"name": name}})
    issues, _ = check_all(config, open_host(), "train")
    (found,) = [issue for issue in issues if issue.path == f"Architecture.{part}.name"]
    assert found.code == "unknown_component"
    assert ("--host DIR" if part == "Head" else "ResNet, layers: 34") in found.message
