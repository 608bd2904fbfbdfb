"""Centers collected by two processes, through Paddle's launcher."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import captchas, tiny  # noqa: F401
from waiting import HANG

from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.cli.main import main
from ppocr_ext.loop.session import train

TOOL = Path(__file__).parents[2] / "tools" / "export_center.py"


@pytest.mark.e2e
def test_two_processes_give_what_one_gives(tiny, tmp_path, capsys):  # noqa: F811
    config = tiny("student", **{"Global.use_gpu": False, "Global.epoch_num": 1, "Global.report": False})
    train(config)
    config = config.with_values(
        {"Global.checkpoints": str(tmp_path / "run" / "latest"), "Eval.loader.batch_size_per_card": 5}
    )
    (tmp_path / "config.yml").write_text(config.to_yaml())
    arguments = ["-c", str(tmp_path / "config.yml"), "--all-lines"]
    assert main(["export-center", *arguments, "--output", str(tmp_path / "one.npz")]) == 0
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", str(TOOL)]
    done = subprocess.run(
        [*command, *arguments, "--output", str(tmp_path / "two.npz")],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    one, two = read_centers(tmp_path / "one.npz"), read_centers(tmp_path / "two.npz")
    np.testing.assert_array_equal(one.class_ids, two.class_ids)
    np.testing.assert_array_equal(one.counts, two.counts)
    np.testing.assert_allclose(one.centers, two.centers, rtol=1e-6)
    np.testing.assert_allclose(one.variance, two.variance, rtol=1e-9, atol=1e-12)
    assert two.meta["lines"] == 24
