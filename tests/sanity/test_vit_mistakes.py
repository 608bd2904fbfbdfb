"""Four mistakes after which a decoder "only predicts <EOS>": each is named, and a right config is not blamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import tiny_vit

from ppocr_ext.sanity.structure import examine_structure as structure_of
from ppocr_ext.sanity.subject import open_subject

# The overlay of each mistake, and the finding that names it.
MISTAKES: dict[str, dict[str, Any]] = {
    "activation": {"Global.plugins": ["vit_mistakes"], "Architecture.Head.name": "GeluTransformer"},
    "positions": {"Global.plugins": ["vit_mistakes"], "Architecture.Head.name": "PlacelessTransformer"},
    "shift": {"Global.plugins": ["vit_mistakes"], "Loss": {"name": "UnshiftedLoss"}},
    "learning_rate": {"Optimizer.lr.learning_rate": 0.2},
}


def faults(captchas: Path, folder: Path, **overlay: Any) -> dict[str, str]:
    """The faults of the config's head, the most likely cause first."""
    [head] = open_subject(tiny_vit(captchas, folder, **overlay), 8).heads()
    return {each.code: each.message for each in structure_of(head) if each.verdict == "fault"}


@pytest.mark.parametrize("code", MISTAKES)
def test_the_mistake_is_named(captchas: Path, tmp_path: Path, code: str) -> None:
    found = faults(captchas, tmp_path, **MISTAKES[code])
    assert list(found) == [code]
    assert "Fix: " in found[code]


def test_a_right_config_has_no_fault(captchas: Path, tmp_path: Path) -> None:
    assert faults(captchas, tmp_path) == {}
