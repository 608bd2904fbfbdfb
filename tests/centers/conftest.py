"""Tiny runs, and a PaddleOCR checkout to compare with, which is not the host of these tests."""

import os
from pathlib import Path

import pytest
from tiny_runs import captchas, tiny

__all__ = ["captchas", "tiny"]


@pytest.fixture(scope="session")
def peer():
    """The checkout that PADDLEOCR_PEER names, else PADDLEOCR_HOME; without one the test is skipped."""
    named = os.environ.get("PADDLEOCR_PEER") or os.environ.get("PADDLEOCR_HOME")
    if not named or not (Path(named) / "ppocr" / "losses" / "center_loss.py").is_file():
        pytest.skip("PADDLEOCR_PEER names no checkout of PaddleOCR with its training code")
    return Path(named).resolve()
