"""Tests in new environments, which are built from the package registry. `.ci/fresh` runs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from notebook_cells import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the package is built from: a build leaves files in its folder."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("configs", "ppocr_ext"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
