"""Centers that move in two processes are those of one process with the lines of both."""

from pathlib import Path

import numpy as np
import pytest
from center_of_two import lines, steps
from waiting import finish, launch_two

SCRIPT = Path(__file__).with_name("center_of_two.py")


@pytest.mark.e2e
def test_two_processes_have_the_centers_of_one(tmp_path):
    finish(launch_two(tmp_path, SCRIPT, tmp_path), 0)
    first, second = (dict(np.load(tmp_path / f"{rank}.npz")) for rank in (0, 1))

    features, logits = (np.concatenate(parts) for parts in zip(lines(0), lines(1), strict=True))
    one = steps([(features, logits), (features + 1.0, logits)])
    assert first.keys() == second.keys() == one.keys()
    assert one["bank.known"].all()
    for name, value in one.items():
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(first[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
