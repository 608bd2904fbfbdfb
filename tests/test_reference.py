"""docs/reference.md is what the code says."""

from __future__ import annotations

from write_reference import PAGE, page


def test_the_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tests/write_reference.py`"
