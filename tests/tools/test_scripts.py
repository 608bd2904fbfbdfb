"""Scripts of a clone: each runs from any folder, those of commands too, and PaddleOCR's own `tools` is still found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
COMMANDS = [file for file in sorted(TOOLS.glob("*.py")) if file.stem not in ("benchmark", "run_command")]
EXPERIMENTS = [
    file
    for file in sorted((TOOLS / "experiments").glob("*.py"))
    if "__main__" in file.read_text(encoding="utf-8")
]
SCRIPTS = [*COMMANDS, TOOLS / "benchmark.py", *EXPERIMENTS]
OTHER_NAMES = {"export_model": "export", "verify_export": "verify"}  # PaddleOCR calls them so
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
    used = re.findall(r"^usage: (.*?)(?= \[|$)", done.stdout, re.MULTILINE)
    assert len(used) == len(SCRIPTS) > 20
    names = [OTHER_NAMES.get(file.stem, file.stem.replace("_", "-")) for file in COMMANDS]
    assert used[: len(COMMANDS)] == [f"ppocr-ext {name}" for name in names]
    assert done.stdout.splitlines()[-1].endswith("paddleocr/tools/program.py")
