"""Work done in a process of its own, so that its memory is that of nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.errors import PPOCRExtError

_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)
_LAST = 15  # lines of what a process said that a message repeats


def in_fresh_process(module: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run ``module`` as a program, which ends in :func:`answer`; what it answers.

    It finds modules where this process does, so that it is of the same package and none lies in the current folder.

    Args:
        module: full name.
        options: what its work is given; can be written as JSON.

    Raises:
        PPOCRExtError: the work failed; the message is its own, or the last lines that the process said.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answer.json"
        process = subprocess.run(
            [sys.executable, "-c", _START, json.dumps(sys.path), module, json.dumps(dict(options)), str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if not out.is_file():
            raise _failure(module, process.returncode, process.stdout)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if "error" in found:
        raise PPOCRExtError(found["error"], code=found["code"])
    return found


def answer(work: Callable[..., dict[str, Any]]) -> None:
    """Call ``work`` with the options that this process was given, and hand its answer over."""
    options, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    try:
        found = work(**options)
    except PPOCRExtError as error:
        found = {"error": str(error), "code": error.code}
    out.write_text(json.dumps(found), encoding="utf-8")


def _failure(module: str, exit_code: int, output: str) -> PPOCRExtError:
    if exit_code == -signal.SIGKILL:
        return PPOCRExtError(
            f"{module} was killed, probably since memory ran out. Fix: a smaller --batch, or more memory.",
            code="process_killed",
        )
    last = "\n".join(output.strip().splitlines()[-_LAST:])
    return PPOCRExtError(
        f"{module} ended with exit code {exit_code} and without a result. Its last output:\n{last}",
        code="process_failed",
    )
