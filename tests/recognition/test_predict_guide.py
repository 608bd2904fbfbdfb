"""The Python of docs/predict.md and of README, run from top to bottom as a reader would."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["docs/predict.md", "docs/zh/predict.md"]


def examples(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.fixture
def project(run: Path, images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the page speaks of: `output/run` and `scans`."""
    shutil.copytree(run, tmp_path / "output" / "run")
    for ending in ("pdparams", "pdopt", "states"):
        best = tmp_path / "output" / "run" / f"best_accuracy.{ending}"
        shutil.copy(best, best.with_name(f"latest.{ending}"))
    (tmp_path / "scans").mkdir()
    for image in images:
        shutil.copy(image, tmp_path / "scans" / image.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_examples_run_and_give_what_the_page_says(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *notebook = examples("docs/predict.md")
    there: dict[str, Any] = {}
    exec(first, there)
    assert [reading.image for reading in there["readings"]] == ["scans/000000.png", "scans/000001.png"]
    assert all(reading.text and reading.error is None for reading in there["readings"])
    there = {}  # the rest is a notebook of its own
    for block in notebook:
        exec(block, there)
    printed = capsys.readouterr().out
    assert printed.startswith("network squash 10\nscans/000000.png ")
    assert there["of_array"].text == there["of_bytes"].text == there["reading"].text
    assert (there["bad"].image, there["bad"].text) == ("no such file.png", "")
    assert len(there["paths"]) == 10 and 0 < len(there["confident"]) <= 10
    assert there["same"].read(there["paths"]) == there["latest"].read(there["paths"])


def test_both_languages_have_the_same_examples() -> None:
    english, chinese = ([re.sub(r"\s*#.*", "", block) for block in examples(page)] for page in PAGES)
    assert english == chinese and len(english) >= 7
