"""Centers of lines in an LMDB, which stays one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import captchas, tiny_config  # noqa: F401

from ppocr_ext.centers.collect import CollectOptions, collect, config_of_model, table_of
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run


@pytest.fixture(scope="module")
def trained(captchas: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:  # noqa: F811
    folder = tmp_path_factory.mktemp("lmdb")
    config = tiny_config(captchas, folder, "student", **{"Global.epoch_num": 1, "Global.report": False})
    train(config)
    lists = ["--label-files", str(captchas / "train_list.txt"), "--data-dir", str(captchas)]
    assert main(["make-lmdb", *lists, "--out", str(folder / "lines")]) == 0
    return config.with_values({"Global.checkpoints": str(folder / "run" / "latest")})


def centers_of(config: Config) -> tuple[CenterTable, Any]:
    single, _ = config_of_model(config, None, "train")
    run = Run.build(single, "eval")
    return table_of(collect(run, CollectOptions(frames="aligned")), run, {}), run.eval_loader.dataset


@pytest.mark.parametrize("listed", [True, False])
def test_an_lmdb_gives_the_centers_of_the_files_it_was_made_of(trained: Config, listed: bool) -> None:
    expected, _ = centers_of(trained)
    lmdb = {
        "name": "LMDBDataSet",
        "data_dir": str(Path(trained.at("Global.save_model_dir")).parent / "lines"),
    }
    kept = {"label_file_list": trained.thaw()["Train"]["dataset"]["label_file_list"]} if listed else {}
    transforms = trained.thaw()["Train"]["dataset"]["transforms"]
    config = trained.with_values({"Train.dataset": {**lmdb, **kept, "transforms": transforms}})
    found, dataset = centers_of(config)
    assert type(dataset).__name__ == "LMDBDataSet"
    assert found.meta["lines"] == 24
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.centers, expected.centers, atol=1e-6)
