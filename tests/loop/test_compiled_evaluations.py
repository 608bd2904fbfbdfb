"""Evaluations during training by compiled networks: the training is the same in every bit, the accuracy is equal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_exact_resume import content

from ppocr_ext.config import Config
from ppocr_ext.engine.request_graph import GraphWriter
from ppocr_ext.loop.session import train

Tiny = Callable[..., Config]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that graphs were written to."""
    folders: list[Path] = []
    original = GraphWriter.write

    def write(self: GraphWriter, folder: Path) -> None:
        folders.append(folder)
        original(self, folder)

    monkeypatch.setattr(GraphWriter, "write", write)
    return folders


@pytest.mark.e2e
@pytest.mark.parametrize(("kind", "values"), [("distill", {"Global.ema": 0.5}), ("student", {})])
def test_a_training_is_the_same_with_compiled_evaluations(
    tiny: Tiny, tmp_path: Path, written: list[Path], kind: str, values: dict[str, Any]
) -> None:
    for engine in ("network", "paddle"):
        assert written == []
        options = {
            "save_model_dir": str(tmp_path / engine),
            "eval_engine": engine,
            "dry_step": False,
            "report": True,
        }
        train(tiny(kind, **{f"Global.{key}": value for key, value in options.items()}, **values))
    assert len(written) == 2 and not any(folder.exists() for folder in written)
    plain, compiled = tmp_path / "network", tmp_path / "paddle"
    expected, found = content(plain), content(compiled)
    for part in expected:
        np.testing.assert_equal(found[part], expected[part], err_msg=part)
    read = [json.loads((folder / "samples.json").read_text())["samples"] for folder in (plain, compiled)]
    for one, other in zip(*read, strict=True):
        np.testing.assert_allclose(other.pop("confidence"), one.pop("confidence"), atol=2e-4)
        assert other == one
