"""The Python names that docs/reference.md lists as public can be imported, and the guides use no others."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from write_reference import PUBLIC

DOCS = Path(__file__).resolve().parents[1] / "docs"
IMPORT = re.compile(r"^from (ppocr_ext[\w.]*) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


@pytest.mark.parametrize(("module", "names"), PUBLIC.items())
def test_a_public_name_is_there_and_documented(module: str, names: str) -> None:
    found = import_module(module)
    for name in names.split():
        assert hasattr(found, name), f"{module}.{name}"
        if callable(getattr(found, name)):
            assert getattr(found, name).__doc__, f"{module}.{name}"


def test_the_guides_use_public_names_alone() -> None:
    used = {
        (page, module, name.strip())
        for page in (*DOCS.rglob("*.md"), *DOCS.parent.glob("README*.md"))
        for module, many, one in IMPORT.findall(page.read_text(encoding="utf-8"))
        for name in (many or one).split(",")
        if name.strip()
    }
    assert used and {use for use in used if use[2] not in PUBLIC.get(use[1], "").split()} == set()
