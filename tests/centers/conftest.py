"""A PaddleOCR checkout to compare with, which is not the host of these tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def peer() -> Path:
    """The checkout that PADDLEOCR_PEER names, else PADDLEOCR_HOME; without one the test is skipped."""
    named = os.environ.get("PADDLEOCR_PEER") or os.environ.get("PADDLEOCR_HOME")
    if not named or not (Path(named) / "ppocr" / "losses" / "center_loss.py").is_file():
        pytest.skip("PADDLEOCR_PEER names no checkout of PaddleOCR with its training code")
    return Path(named).resolve()
