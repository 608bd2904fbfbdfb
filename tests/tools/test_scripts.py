"""Scripts that only a clone has: each runs in a process of its own, and PaddleOCR's own `tools` is still found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
THEN_OPEN_THE_HOST = """
import runpy, sys
sys.argv = [{script!r}, "--help"]
sys.path.insert(0, {folder!r})
try:
    runpy.run_path({script!r}, run_name="__main__")
except SystemExit as ended:
    assert not ended.code
from ppocr_ext.host import open_host
open_host()
import tools.program
print(tools.program.__file__)
"""


@pytest.mark.parametrize(
    "name",
    [
        "benchmark.py",
        *(f"experiments/{name}.py" for name in ("lookalikes", "official_configs", "pp_ocr_distillation")),
    ],
)
def test_a_script_hides_nothing_of_the_host(name: str, tmp_path: Path) -> None:
    script = TOOLS / name
    code = THEN_OPEN_THE_HOST.format(script=str(script), folder=str(script.parent))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("paddleocr/tools/program.py")


def test_a_benchmark_runs_from_any_folder(tmp_path: Path) -> None:
    command = [
        sys.executable,
        TOOLS / "benchmark.py",
        "step",
        "--size",
        "tiny",
        "--batch",
        "1",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| bare sum |" in done.stdout
