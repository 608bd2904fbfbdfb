"""The images of tiny runs, and the small project that the fuzzing damages, made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from experiments.fuzzing_project import make_project
from tiny_runs import captchas

__all__ = ["captchas", "project"]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run, its incident, data and tables, which no test changes."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("project") / "made"
    try:
        make_project(folder)
    finally:
        os.chdir(before)
    return folder
