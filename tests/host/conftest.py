"""The tiny runs of ``tests/tiny_runs.py``, and the host that this test session has."""

import pytest
from tiny_runs import captchas, tiny

from ppocr_ext.host import open_host

__all__ = ["captchas", "tiny"]


@pytest.fixture(scope="session")
def any_host():
    """The host that PADDLEOCR_HOME names, else the installed one."""
    return open_host()
