"""Scripts that only a clone has: each runs in a process of its own, and PaddleOCR's own `tools` is still found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
EXPERIMENTS = [
    file
    for file in sorted((TOOLS / "experiments").glob("*.py"))
    if "__main__" in file.read_text(encoding="utf-8")
]
SCRIPTS = [TOOLS / "benchmark.py", *EXPERIMENTS]
RUN_THEN_OPEN_THE_HOST = """
import os, runpy, sys
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    sys.path.insert(0, os.path.dirname(script))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        assert not ended.code
from ppocr_ext.host import open_host
open_host()
import tools.program
print(tools.program.__file__)
"""


def test_the_scripts_hide_nothing_of_the_host(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN_THEN_OPEN_THE_HOST, *map(str, SCRIPTS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(SCRIPTS) > 3
    assert done.stdout.splitlines()[-1].endswith("paddleocr/tools/program.py")


def test_a_benchmark_runs_from_any_folder(tmp_path: Path) -> None:
    options = ["step", "--size", "tiny", "--batch", "1", "--rounds", "1"]
    command = [sys.executable, TOOLS / "benchmark.py", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"tiny: batch 1, 32x128, 11 classes, \d+ threads", done.stdout)
    figures = r" \| \d+\.\d{3} \| \d+\.\d{3} \| "
    assert re.search(rf"^\| bare sum{figures}1\.00 \(1\.00–1\.00\) \|$", done.stdout, re.MULTILINE)
    assert re.search(rf"^\| ppocr_ext{figures}\d+\.\d\d \(", done.stdout, re.MULTILINE)
