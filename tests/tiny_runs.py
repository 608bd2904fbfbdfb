"""A tiny distillation on a handful of CAPTCHAs: everything a run has, in seconds. Fixtures for several folders."""

import json
import signal
from functools import cache

import pytest
from experiments.fuzzing_project import TINY

from ppocr_ext.config import Config, load
from ppocr_ext.io.resources import config_path
from ppocr_ext.loop.events import Hook
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

MULTI_SCALE = {
    "name": "MultiScaleSampler",
    "scales": [[128, 32], [128, 48]],
    "first_bs": 4,
    "fix_bs": True,
    "divided_factor": [8, 16],
    "is_training": True,
}
DRAWING = [
    {"RecConAug": {"prob": 0.8, "ext_data_num": 1, "image_shape": [32, 320, 3]}},
    {"RecAug": {"tia_prob": 0.8}},
]
# a network without BatchNorm; tests/loop, where the plugin is, must be in sys.path
ONE_BRANCH = {
    "Global.plugins": ["processes_parts"],
    "Architecture.Backbone": {"name": "Columns", "width": 16},
    "Architecture.Head": {
        "name": "MultiHead",
        "head_list": [{"CTCHead": {"Neck": {"name": "reshape"}, "Head": {}}}],
    },
    "Loss": {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": {}}]},
}


class StopAfter(Hook):
    """Ask the run to stop after some steps, as Ctrl-C would."""

    def __init__(self, steps):
        self.steps = steps

    def on_step(self, step):
        if step.position.global_step == self.steps:
            signal.raise_signal(signal.SIGINT)


def metrics(folder, kind=None):
    """The lines of a run's metrics.jsonl, or those of a kind (``train`` or ``eval``)."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if kind in (None, line["kind"])]


@pytest.fixture(scope="session")
def captchas(tmp_path_factory):
    """24 images to train on, 10 to judge."""
    folder = tmp_path_factory.mktemp("captchas")
    make_folder(folder, DatasetFolder(CaptchaSource(CaptchaOptions(), seed=3), train=24, val=10))
    return folder


@cache  # a config never changes, and reading one takes a tenth of what a tiny run takes
def shipped(kind: str) -> Config:
    """Read a config of the quickstart."""
    return load([config_path(f"quickstart/{kind}.yml")])


def tiny_config(captchas, folder, kind="distill", **values):
    """Config of a tiny distillation (``distill``) or of one model (``student``), to be saved in ``folder/run``."""
    config = shipped(kind)
    changes = {
        "Global.save_model_dir": str(folder / "run"),
        "Global.character_dict_path": str(captchas / "dict.txt"),
        "Global.epoch_num": 2,
        "Global.report": False,
        "Global.print_batch_step": 1,
        "Global.eval_batch_step": [0, 3],
        "Optimizer.lr.warmup_epoch": 0,
        **_read_from(captchas, config),
    }
    if kind == "distill":
        changes["Architecture.Models.Teacher.pretrained"] = None
        changes["Global.allow_untrained_teacher"] = True
        for name in ("Teacher", "Student"):
            changes |= {f"Architecture.Models.{name}.{part}": value for part, value in TINY.items()}
    else:
        changes |= {f"Architecture.{part}": value for part, value in TINY.items()}
    return config.with_values(changes).with_values(values)


def single_head(config):
    """A ``student`` with one CTC head instead of two, of which the second linear layer gives the logits."""
    transforms = config.thaw()["Eval"]["dataset"]["transforms"]
    transforms[1] = {"CTCLabelEncode": None}
    transforms[-1] = {"KeepKeys": {"keep_keys": ["image", "label", "length"]}}
    return config.with_values(
        {
            "Architecture.algorithm": "CRNN",
            "Architecture.Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"},
            "Architecture.Head": {"name": "CTCHead", "mid_channels": 12},
            "Loss": {"name": "CTCLoss"},
            "Train.dataset.transforms": transforms,
            "Eval.dataset.transforms": transforms,
        }
    )


@pytest.fixture
def tiny(captchas, tmp_path):
    """``tiny("distill", **values)``: `tiny_config` on the images of the session, below the test's own folder."""

    def build(kind="distill", **values):
        return tiny_config(captchas, tmp_path, kind, **values)

    return build


def tiny_vit(captchas, folder, **values):
    """Config of the ViT recogniser at a reduced size, to be saved in ``folder/run``."""
    config = load([config_path("captcha/vit_nrtr.yml")])
    changes = {
        "Global.save_model_dir": str(folder / "run"),
        "Global.character_dict_path": str(captchas / "dict.txt"),
        "Global.report": False,
        "Architecture.Backbone.embed_dim": 32,
        "Architecture.Backbone.depth": 1,
        "Architecture.Head.d_model": 32,
        "Architecture.Head.dim_feedforward": 64,
        **_read_from(captchas, config),
    }
    return config.with_values(changes).with_values(values)


def _read_from(captchas, config):
    """Return the values with which a config reads drawn images of a folder, eight at a time."""
    return {
        "Train.dataset": {
            "name": "SimpleDataSet",
            "data_dir": str(captchas),
            "label_file_list": [str(captchas / "train_list.txt")],
            "transforms": config.thaw()["Train"]["dataset"]["transforms"],
        },
        "Train.loader.batch_size_per_card": 8,
        "Train.loader.num_workers": 0,
        "Train.loader.shuffle": True,
        "Eval.dataset.data_dir": str(captchas),
        "Eval.dataset.label_file_list": [str(captchas / "val_list.txt")],
    }
