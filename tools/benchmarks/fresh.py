"""Work in a new process: its memory is its own, and the caller reports how it ended."""

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
_LAST = 15  # lines of a process's output in an error message


def in_fresh_process(work: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function in a new process; return its answer.

    The process finds modules where this one does.

    Args:
        work: ``module:function``.
        options: arguments of the function; like its answer, they can be written as JSON.

    Raises:
        PPOCRExtError: the work failed; the message is its own, or the last lines that the process printed.
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
            end = "\n".join(process.stdout.strip().splitlines()[-_LAST:])
            code = "process_killed" if process.returncode == -signal.SIGKILL else "process_failed"
            text = f"{work} {how_it_ended(process.returncode)}. Its last output:\n{end}"
            raise PPOCRExtError(text, code=code)
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    if "error" in result:
        raise PPOCRExtError(result["error"], code=result["code"])
    return result


def call(work: str, options: Mapping[str, Any]) -> Any:
    """Call ``module:function`` in this process."""
    module, _, function = work.partition(":")
    return getattr(importlib.import_module(module), function)(**options)


def table_of(work: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function that measures; return its ``table``, and whether its results agree (``agrees``)."""
    costs = call(work, options)
    return {"table": costs.to_markdown(), "agrees": costs.agrees}


def answer(work: str, options: str, out: str) -> None:
    """Do the work of this process, and write its answer to the file ``out``."""
    try:
        result = call(work, json.loads(options))
    except PPOCRExtError as error:
        result = {"error": str(error), "code": error.code}
    Path(out).write_text(json.dumps(result), encoding="utf-8")


def how_it_ended(exit_code: int | None) -> str:
    """Say how a process ended that did not finish its work."""
    if exit_code == -signal.SIGKILL:
        return "was killed, probably because memory ran out. Fix: a smaller --batch, or more memory"
    if exit_code is not None and exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code} and without a result"
