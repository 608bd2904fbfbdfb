"""Centers that move in two processes are those of one process with the lines of both."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from center_of_two import lines, steps
from waiting import HANG

SCRIPT = Path(__file__).with_name("center_of_two.py")


@pytest.mark.e2e
def test_two_processes_have_the_centers_of_one(tmp_path):
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", "log"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(SCRIPT), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (dict(np.load(tmp_path / f"{rank}.npz")) for rank in (0, 1))

    features, logits = (np.concatenate(parts) for parts in zip(lines(0), lines(1), strict=True))
    one = steps([(features, logits), (features + 1.0, logits)])
    assert first.keys() == second.keys() == one.keys()
    assert one["bank.known"].all()
    for name, value in one.items():
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(first[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
