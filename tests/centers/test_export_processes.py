"""Centers collected by two processes, through Paddle's launcher."""

from pathlib import Path

import numpy as np
import pytest
from waiting import finish, launch_two

from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.cli.main import main
from ppocr_ext.loop.session import train

TOOL = Path(__file__).parents[2] / "tools" / "export_center.py"


@pytest.mark.e2e
def test_two_processes_give_what_one_gives(tiny, tmp_path, capsys):
    config = tiny("student", **{"Global.use_gpu": False, "Global.epoch_num": 1, "Global.report": False})
    train(config)
    config = config.with_values(
        {"Global.checkpoints": str(tmp_path / "run" / "latest"), "Eval.loader.batch_size_per_card": 5}
    )
    (tmp_path / "config.yml").write_text(config.to_yaml())
    arguments = ["-c", str(tmp_path / "config.yml"), "--all-lines"]
    assert main(["export-center", *arguments, "--output", str(tmp_path / "one.npz")]) == 0
    finish(launch_two(tmp_path, TOOL, *arguments, "--output", tmp_path / "two.npz"), 0)
    one, two = read_centers(tmp_path / "one.npz"), read_centers(tmp_path / "two.npz")
    np.testing.assert_array_equal(one.class_ids, two.class_ids)
    np.testing.assert_array_equal(one.counts, two.counts)
    np.testing.assert_allclose(one.centers, two.centers, rtol=1e-6)
    np.testing.assert_allclose(one.variance, two.variance, rtol=1e-9, atol=1e-12)
    assert two.meta["lines"] == 24
