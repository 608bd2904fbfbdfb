"""The Python names that docs/reference.md lists as public can be imported, and the guides use no others."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROW = re.compile(r"^\| `(ppocr_ext[\w.]*)` \| (.+?) \|$", re.MULTILINE)
IMPORT = re.compile(r"^from (ppocr_ext[\w.]*) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)


def listed() -> dict[str, set[str]]:
    """Module → names, of the table in docs/reference.md."""
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    return {module: set(re.findall(r"`(\w+)`", names)) for module, names in ROW.findall(text)}


@pytest.mark.parametrize(("module", "names"), listed().items())
def test_a_public_name_is_there_and_documented(module: str, names: set[str]) -> None:
    found = import_module(module)
    for name in sorted(names):
        assert hasattr(found, name), f"{module}.{name}"
        if callable(getattr(found, name)):
            assert getattr(found, name).__doc__, f"{module}.{name}"


def test_the_guides_use_public_names_alone() -> None:
    public = listed()
    assert sum(map(len, public.values())) >= 20
    used = {
        (page, module, name.strip())
        for page in (*DOCS.rglob("*.md"), *DOCS.parent.glob("README*.md"))
        for module, many, one in IMPORT.findall(page.read_text(encoding="utf-8"))
        for name in (many or one).split(",")
        if name.strip()
    }
    assert used and {use for use in used if use[2] not in public.get(use[1], ())} == set()
