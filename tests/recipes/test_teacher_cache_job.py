"""A cache is built, continued and shared; a training with it has the losses of the live teacher."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
import yaml
from error_codes import raises_code
from tiny_runs import metrics, tiny_config

from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import has_bfloat16
from ppocr_ext.loop.session import train
from ppocr_ext.modeling.heads.multi_head import CTCHead
from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache
from ppocr_ext.run import compiled_models
from ppocr_ext.run.run import Run
from ppocr_ext.teacher_cache.store import Store, open_shard, require_same_cache

pytestmark = pytest.mark.e2e
PAIR = {"weight": 1.0, "model_name_pairs": [["Student", "Teacher"]], "key": "head_out"}
CTC = {"weight": 1.0, "model_name_list": ["Student"], "key": "head_out", "multi_head": True}
LOSSES = [
    {"DistillationCTCLoss": CTC},
    {"CTCFrameKDLoss": {**PAIR, "multi_head": True, "temperature": 2.0}},
    {"DistillationDKDLoss": {**PAIR, "multi_head": True, "dis_head": "gtc"}},  # padding counts here
]
Make = Callable[..., Config]


@pytest.fixture(scope="module")
def distill(captchas):
    """``distill(folder, **values)``: a distillation with RecAug; the weights of its teacher follow from the seed."""
    section = tiny_config(captchas, captchas).thaw()["Train"]
    section["dataset"]["transforms"].insert(1, {"RecAug": {"tia_prob": 0.8}})

    def config(folder: Path, **values: Any) -> Config:
        common = {"Train": section, "Loss.loss_config_list": LOSSES, "Global.dry_step": False}
        return tiny_config(captchas, folder, **(common | values))

    return config


@pytest.fixture(scope="module")
def cache(distill, tmp_path_factory):
    """Two views of 24 samples."""
    folder = tmp_path_factory.mktemp("built") / "cache"
    build(distill(folder.parent), folder)
    return folder


def build(config: Config, folder: Path, **options: Any) -> CacheBuilder:
    chosen = CacheOptions(folder, views=2, **options)
    builder = CacheBuilder(config, chosen)
    build_cache(config, builder, chosen)
    return builder


def shards(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.shard")}


def test_a_training_has_the_losses_of_the_live_teacher(cache, distill, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    shutil.copy(cache / "cache.json", tmp_path / "empty")
    found = {}
    for folder in (cache, tmp_path / "empty"):
        where = tmp_path / f"{folder.name}_run"
        train(distill(where, **{"Train.teacher_cache": str(folder)}))
        found[folder.name] = metrics(where / "run", "train")
    assert len(found["cache"]) == len(found["empty"]) == 6
    for cached, live in zip(found["cache"], found["empty"], strict=True):
        assert (cached["teacher_cached"], live["teacher_cached"]) == (1.0, 0.0)
        assert cached["losses"] == pytest.approx(live["losses"], abs=1e-3)
    assert "6 of 6 batches" in capsys.readouterr().out
    # resumed without it
    latest = {"Global.checkpoints": str(tmp_path / "cache_run" / "run" / "latest"), "Global.epoch_num": 3}
    for values, warned in ({"Train.teacher_cache": str(cache)}, False), ({}, True):
        capsys.readouterr()
        Run.build(distill(tmp_path, **latest, **values), "train")
        assert ("no views" in capsys.readouterr().out) == warned


def test_another_teacher_is_refused(cache, distill, tmp_path):
    values = {"Train.teacher_cache": str(cache), "Global.seed": 77}  # which draws its weights
    with raises_code(DataError, "other_teacher", cache):
        Run.build(distill(tmp_path, **values), "train")


def test_a_loss_that_reads_features_is_taught_live(cache, distill, tmp_path, caplog):
    features = {"DistillationDistanceLoss": {**PAIR, "key": "backbone_out", "mode": "l2"}}
    values = {"Train.teacher_cache": str(cache), "Loss.loss_config_list": [LOSSES[0], LOSSES[1], features]}
    run = Run.build(distill(tmp_path, **values), "train")
    assert run.teacher_cache is None
    assert "DistillationDistanceLoss" in caplog.text and "backbone" in caplog.text
    with raises_code(DataError, "unserved_loss", "DistillationDistanceLoss"):
        CacheBuilder(distill(tmp_path, **values), CacheOptions(tmp_path / "cache"))


def test_a_cache_is_continued_in_its_type_only(cache, distill, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_models, "LEAST_WORK", 1)
    half = distill(tmp_path, **{"Global.teacher_dtype": "bfloat16"})
    if not has_bfloat16():  # float32 computes, so it is the same cache
        assert CacheBuilder(half, CacheOptions(cache, views=2)).facts.dtype == "float32"
        return
    with raises_code(DataError, "other_cache", "Global.teacher_dtype", "found float32, expected bfloat16"):
        CacheBuilder(half, CacheOptions(cache, views=2))
    options = CacheOptions(tmp_path / "cache", views=1)
    builder = CacheBuilder(half, options)
    assert builder.facts.dtype == "bfloat16"
    monkeypatch.setattr(CompiledNetwork, "_graph", lambda *_: 1 / 0)  # bfloat16 fails in the middle
    with raises_code(DataError, "other_dtype", "found float32, expected bfloat16"):
        build_cache(half, builder, options)
    assert not shards(options.folder)


def test_a_disk_without_the_space_is_refused(distill, tmp_path, monkeypatch):
    builder = CacheBuilder(distill(tmp_path), CacheOptions(tmp_path / "cache"))
    free = builder.estimate()[0] * builder.plan.entry_bytes - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with raises_code(DataError, "too_little_space", tmp_path / "cache"):
        build_cache(distill(tmp_path), builder, CacheOptions(tmp_path / "cache"))
    assert not list((tmp_path / "cache").glob("*.shard"))


def test_another_host_may_begin_the_same_cache_at_any_moment(distill, tmp_path, monkeypatch):
    """After each step of one host in the folder, another one looks into it."""
    options = CacheOptions(tmp_path / "cache", views=1)
    builder, seen = CacheBuilder(distill(tmp_path), options), []

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            done = step(*args, **more)
            seen.append({file.suffix for file in options.folder.glob("*")})
            require_same_cache(options.folder, builder.facts)
            return done

        return call

    for owner, names in ((Path, ("mkdir", "touch", "unlink", "replace")), (os, ("fsync",))):
        for name in names:
            monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
    build_cache(distill(tmp_path), builder, options)
    order = [seen.index(files) for files in (set(), {".tmp"}, {".json"}, {".json", ".shard"})]
    assert order == sorted(order)


def test_only_what_is_missing_is_built_again(cache, distill, tmp_path, caplog):
    before, folder = shards(cache), Path(shutil.copytree(cache, tmp_path / "cache"))
    kept, lost = sorted(folder.glob("*.shard"))
    lost.write_bytes(lost.read_bytes()[:-1])
    age = kept.stat().st_mtime_ns
    options = CacheOptions(folder, views=2)
    builder = CacheBuilder(distill(tmp_path), options)
    assert builder.pending == [(1, 0)] and builder.estimate()[0] == 24
    build_cache(distill(tmp_path), builder, options)
    assert sum(lost.name in record.getMessage() for record in caplog.records) == 1
    assert shards(folder) == before and kept.stat().st_mtime_ns == age
    with raises_code(DataError, "other_cache", "views"):
        CacheBuilder(distill(tmp_path), CacheOptions(folder, views=3))
    kept.parent.joinpath("cache.json").unlink()
    with raises_code(DataError, "other_cache", "cache.json"):
        CacheBuilder(distill(tmp_path), options)


def test_a_list_that_has_grown_is_stored_to_its_end(distill, captchas, tmp_path):
    file, folder = tmp_path / "list.txt", tmp_path / "cache"
    lines = (captchas / "train_list.txt").read_text().splitlines(keepends=True)
    config = distill(tmp_path, **{"Train.dataset.label_file_list": [str(file)]})
    for count in (16, 24):
        file.write_text("".join(lines[:count]))
        assert len(build(config, folder).pending) == 2
        assert Store(folder).entries == 2 * count
    assert CacheBuilder(config, CacheOptions(folder, views=2)).pending == []
    assert len(shards(folder)) == 2


def test_a_teacher_whose_code_has_changed_is_compared_with_its_cache(cache, distill, tmp_path, monkeypatch):
    real = CTCHead.forward
    changed = lambda *args, **options: paddle.utils.map_structure(lambda t: t * 50, real(*args, **options))  # noqa: E731
    monkeypatch.setattr(CTCHead, "forward", changed)
    with raises_code(DataError, "other_teacher", cache, "%", "ppocr-ext cache-teacher", "--views 2"):
        train(distill(tmp_path, **{"Train.teacher_cache": str(cache)}))
    monkeypatch.setattr(sys.modules["ppocr_ext"], "__file__", __file__)  # as of another version
    with raises_code(DataError, "other_cache", "code"):
        CacheBuilder(distill(tmp_path), CacheOptions(cache, views=2))


def test_two_processes_write_what_one_writes(cache, distill, tmp_path):
    build(distill(tmp_path), tmp_path / "cache", processes=2)
    files = sorted(cache.glob("*.shard"))
    assert [file.name for file in files] == sorted(shards(tmp_path / "cache"))
    facts = Store(cache).facts
    for file in files:
        one, two = (open_shard(folder / file.name, facts) for folder in (cache, tmp_path / "cache"))
        assert np.array_equal(one.table["key"], two.table["key"])
        for row in range(len(one.table)):
            for name, kept in one.entry(row).items():
                # with other numbers of threads, sums are added in another order
                assert np.allclose(kept.values, two.entry(row)[name].values, atol=1e-2)


def test_another_process_ends_the_build_with_its_own_error(distill, tmp_path):
    options = CacheOptions(tmp_path / "cache", views=2, processes=2)
    builder = CacheBuilder(distill(tmp_path), options)
    gone = distill(tmp_path, **{"Global.character_dict_path": str(tmp_path / "gone.txt")})
    with raises_code(ConfigError, "missing_file", "gone.txt"):
        build_cache(gone, builder, options)
    assert len(shards(options.folder)) == 1


def test_the_command_refuses_estimates_builds_and_says_how_to_use_it(distill, tmp_path, capsys):
    file, folder = tmp_path / "c.yml", tmp_path / "cache"
    file.write_text(yaml.safe_dump(distill(tmp_path).thaw()))
    command = ["cache-teacher", "-c", str(file), "--output", str(folder), "--views", "1", "--processes", "1"]
    refused = {"--top-k=3": "unserved_loss", "--model=Student": "no_frozen_model", "--views=0": "bad_value"}
    for option, code in refused.items():
        assert main([*command, option]) == 2
        assert f"[{code}]" in capsys.readouterr().err and not folder.exists()
    assert main([*command, "--estimate"]) == 0
    assert "24 entries" in capsys.readouterr().out and not folder.exists()
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"Train.teacher_cache={folder}" in printed
    assert Store(folder).entries == 24 and not (tmp_path / "run").exists()
