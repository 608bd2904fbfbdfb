"""The Python names that docs/reference.md lists as public can be imported, and the guides use no others."""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROW = re.compile(r"^\| `(ppocr_ext[\w.]*)` \| (.+?) \|$", re.MULTILINE)
IMPORT = re.compile(r"^from (ppocr_ext[\w.]*) import (?:\(([^)]*)\)|(.+))$", re.MULTILINE)
# What the guides of 0.1.0 imported: it works for one version more.
OF_0_1_0 = {
    "ppocr_ext.charset": ("Charset",),
    "ppocr_ext.config": ("load", "with_class_counts"),
    "ppocr_ext.data.lines": (
        "LineSource",
        "LineSplit",
        "LineStyle",
        "RandomTexts",
        "RichIn",
        "find_fonts",
        "split_fonts",
    ),
    "ppocr_ext.data.lmdb_preflight": ("check_lmdb",),
    "ppocr_ext.data.preflight": ("check",),
    "ppocr_ext.losses": ("Loss", "build_loss"),
    "ppocr_ext.metrics": ("build_metric",),
    "ppocr_ext.modeling": ("build_backbone", "build_head", "build_model", "build_neck"),
    "ppocr_ext.modeling.features": ("FeatureTap",),
    "ppocr_ext.optim": ("build_lr_scheduler", "build_optimizer"),
    "ppocr_ext.registry": ("BACKBONES", "LOSSES"),
    "ppocr_ext.training.events": ("Hook",),
    "ppocr_ext.training.session": ("train",),
}


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


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in OF_0_1_0.items() for name in names]
)
def test_what_the_guides_of_0_1_0_imported_still_works(module: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert callable(getattr(import_module(module), name)) or name in ("BACKBONES", "LOSSES")
