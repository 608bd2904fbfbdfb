"""The images of tiny runs, and the small project that the fuzzing damages, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import captchas

__all__ = ["captchas", "project"]

ROOT = Path(__file__).resolve().parents[2]
_MAKE = """\
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from experiments.fuzzing_project import make_project
make_project(Path(sys.argv[1]))
"""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, its incident, data and tables, which no test changes."""
    folder = tmp_path_factory.mktemp("project") / "made"
    command = [sys.executable, "-c", _MAKE, str(folder), str(ROOT), str(ROOT / "tools")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder
