"""Shared by all tests: `from parity import …` works from every test folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ppocr_ext import registry

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _nothing_judged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one config's check has said of a key is no reason to be silent about it in the next test."""
    monkeypatch.setattr(registry, "_JUDGED", set())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-docs",
        action="store_true",
        help="write docs/errors.md and its mirror anew (tests/cli/test_errors.py)",
    )
