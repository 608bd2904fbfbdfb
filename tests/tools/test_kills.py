"""Kill a training five times; `python tools/experiments/kills.py` does it fifty times."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "experiments" / "kills.py"


@pytest.mark.e2e
def test_a_training_that_is_killed_again_and_again_loses_nothing(tmp_path):
    command = [sys.executable, str(SCRIPT), "--kills", "5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "5 of 5 kills survived" in done.stdout
    assert "0 temporary files at the end" in done.stdout
