"""The Python of docs/deploy.md, run from top to bottom as a reader would."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[str]:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    return BLOCK.findall(text.partition("<!-- client lines -->")[0])


@pytest.fixture
def project(run, images, tmp_path, monkeypatch):
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


def test_the_examples_run_and_give_what_the_page_says(project, capsys):
    there: dict[str, Any] = {}
    notebook = examples()
    assert len(notebook) >= 6
    for block in notebook:
        exec(block, there)
    printed = capsys.readouterr().out
    assert printed.startswith("network squash 10\nscans/000000.png ")
    assert there["of_array"].text == there["of_bytes"].text == there["reading"].text
    assert (there["bad"].image, there["bad"].text) == ("no such file.png", "")
    assert len(there["paths"]) == 10 and 0 < len(there["confident"]) <= 10
    assert there["same"].read(there["paths"]) == there["latest"].read(there["paths"])
