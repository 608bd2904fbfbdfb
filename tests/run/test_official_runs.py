"""Each official recognition config, as its stored facts describe it, with few classes and narrow images."""

import json
import math
from typing import Any

import pytest
import yaml
from official_configs import changed_values, config_of, stored_facts
from tiny_runs import metrics

from ppocr_ext.check import check_all
from ppocr_ext.cli.config import dry_check
from ppocr_ext.config import Config
from ppocr_ext.host import open_host
from ppocr_ext.issues import Issue
from ppocr_ext.loop import adapter
from ppocr_ext.loop.session import train
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

FACTS = stored_facts()
WIDTH, BATCH = 80, 2
REFUSED = "PP-OCRv4/PP-OCRv4_mobile_rec_distillation.yml"  # tests/check/test_official_configs.py
# What a step on two images and a CPU does not depend on.
ELSEWHERE = ("dictionary", "epochs", "optimizer", "batch_size_per_card", "amp", "ctc_frames")


def kinds(*keys: str) -> dict[str, list[str]]:
    """The configs that agree in all of ``keys``, by the first of them."""
    found: dict[str, list[str]] = {}
    for name, facts in FACTS.items():
        sampler = {**(facts["train_sampler"] or {}), "first_bs": BATCH}
        same = {key: {**facts, "train_sampler": sampler}[key] for key in keys}
        found.setdefault(json.dumps(same, sort_keys=True), []).append(name)
    return {names[0]: names for names in found.values()}


NETWORKS = [name for name in kinds("architecture") if name != REFUSED]
STEPS = kinds(*(key for key in FACTS[REFUSED] if key not in ELSEWHERE))
DRY = [name for name in STEPS if name not in (*NETWORKS, REFUSED)]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    source = CaptchaSource(CaptchaOptions(), seed=1)  # digits: each official dictionary has them
    make_folder(folder, DatasetFolder(source, train=2 * BATCH, val=4))
    return folder


@pytest.fixture
def config(images, tmp_path):
    """Return a function that gives the config of a name, changed as with ``-o``."""

    def changed(name: str) -> Config:
        config = Config(narrow(config_of(FACTS[name])))
        if config.at("Loss.loss_config_list.CenterLoss", None) is not None:
            config = config.with_values({"Loss.loss_config_list.CenterLoss.num_classes": 12})
        own = {
            "Global.character_dict_path": str(images / "dict.txt"),
            "Global.save_model_dir": str(tmp_path / "run"),
            "Global.report": False,
        }
        return config.with_values({**changed_values(config, images, BATCH), **own})

    return changed


def narrow(value: Any) -> Any:
    """Return the config with images of the width of the tests."""
    if isinstance(value, list):
        return [narrow(each) for each in value]
    if not isinstance(value, dict):
        return value
    sized = {
        "image_shape": lambda size: [WIDTH if edge == 320 else edge for edge in size],
        "scales": lambda sizes: [[WIDTH, height] for _, height in sizes],
        "img_size": lambda size: [size[0], WIDTH],
        "out_char_num": lambda count: WIDTH // 8,
    }
    return {key: sized[key](each) if key in sized and each else narrow(each) for key, each in value.items()}


def test_every_config_is_run_or_like_one_that_is():
    run = {other for name in (*NETWORKS, *DRY) for other in STEPS[name]}
    assert run == FACTS.keys() - {REFUSED} and len(FACTS) == 42


@pytest.mark.e2e
@pytest.mark.parametrize("name", NETWORKS)
def test_an_official_network_trains_and_is_evaluated(name, config, tmp_path, monkeypatch):
    monkeypatch.setattr(adapter, "write_checkpoint", lambda *parts: None)  # a GB in all
    train(config(name))
    steps, evaluations = (metrics(tmp_path / "run", kind) for kind in ("train", "eval"))
    # a MultiScaleSampler gives a batch of each of its three heights
    assert [line["step"] for line in steps] == [1, 2, 3][: 3 if FACTS[name]["train_sampler"] else 2]
    assert all(math.isfinite(value) and value > 0 for line in steps for value in line["losses"].values())
    assert len({line["loss"] for line in steps}) == len(steps)
    assert [line["step"] for line in evaluations] == [steps[-1]["step"]]


@pytest.mark.parametrize("name", DRY)
def test_an_official_config_passes_the_dry_step(name, config):
    assert errors(config(name)) == []


def test_the_refused_one_passes_with_the_lines_of_its_messages(config):
    refused, path = config(REFUSED), "Train.dataset.transforms"
    lines: dict[str, Any] = {}
    for issue in errors(refused):
        line = yaml.safe_load(issue.message.split("`")[-2].removeprefix("- "))
        (key, value), listed = next(iter(line.items())), refused.thaw()["Train"]["dataset"]["transforms"]
        is_transform = issue.path == path
        lines[issue.path] = [*listed[:-1], {key: value}, listed[-1]] if is_transform else value
    assert len(lines) == 3
    assert errors(refused.with_values(lines)) == []


def errors(config: Config) -> list[Issue]:
    """The errors of `config --check`; with none in the config itself, those of the dry step."""
    said: list[str] = []
    issues, unused = check_all(config, open_host(), "train")
    found = [issue for issue in issues if issue.level == "error"]
    if not found:
        found, _ = dry_check(config, open_host(), "train", unused, said.append)
    assert said == []  # real samples were taken
    return found
