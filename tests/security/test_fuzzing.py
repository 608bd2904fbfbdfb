"""Damaged files of every kind that the commands read; `python tools/experiments/fuzzing.py` tries more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from waiting import HANG

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "experiments" / "fuzzing.py"


def test_every_damaged_file_ends_in_a_result_or_an_error_by_name(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--inputs", "3", "1", "--seed", "1"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "| predict lmdb/data.mdb | 2 |" in ran.stdout and ", 0 faults" in ran.stdout
