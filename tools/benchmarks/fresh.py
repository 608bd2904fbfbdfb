"""Work done in a process of its own, so that its memory is that of nothing else and its death is told."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.errors import PPOCRExtError

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from benchmarks.fresh import answer; answer(*sys.argv[2:])"
)
_LAST = 15  # lines of what a process said that a message repeats


def in_fresh_process(work: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function in a new process; return its answer.

    The process finds modules where this one does: they are of the same package, and not in the current folder.

    Args:
        work: ``module:function``; without a function, ``measure`` of the module.
        options: arguments of the function; can be written as JSON, as its answer.

    Raises:
        PPOCRExtError: the work failed; the message is its own, or the last lines that the process said.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answer.json"
        process = subprocess.run(
            [sys.executable, "-c", _START, json.dumps(sys.path), work, json.dumps(dict(options)), str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if not out.is_file():
            raise _failure(work, process.returncode, process.stdout)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if "error" in found:
        raise PPOCRExtError(found["error"], code=found["code"])
    return found


def called(work: str, options: Mapping[str, Any]) -> Any:
    """Call a function of a module, as :func:`in_fresh_process` names it, in this process."""
    module, _, function = work.partition(":")
    return getattr(importlib.import_module(module), function or "measure")(**options)


def table_of(work: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function that measures; return its ``table``, and whether its results ``agree``."""
    costs = called(work, options)
    return {"table": costs.to_markdown(), "agrees": costs.agrees}


def answer(work: str, options: str, out: str) -> None:
    """Do the work of this process, and write what it answers to the file ``out``."""
    try:
        found = called(work, json.loads(options))
    except PPOCRExtError as error:
        found = {"error": str(error), "code": error.code}
    Path(out).write_text(json.dumps(found), encoding="utf-8")


def how_it_ended(exit_code: int | None) -> str:
    """Say how a process ended that did not finish its work."""
    if exit_code == -signal.SIGKILL:
        return "was killed, probably because memory ran out. Fix: a smaller --batch, or more memory"
    if exit_code is not None and exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code} and without a result"


def _failure(work: str, exit_code: int, output: str) -> PPOCRExtError:
    last = "\n".join(output.strip().splitlines()[-_LAST:])
    code = "process_killed" if exit_code == -signal.SIGKILL else "process_failed"
    return PPOCRExtError(f"{work} {how_it_ended(exit_code)}. Its last output:\n{last}", code=code)
