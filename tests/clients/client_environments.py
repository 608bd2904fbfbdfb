"""Environments of the clients: one folder each, built from the package registry, run without network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ONNX_RUNTIME = "onnxruntime==1.31.1"
REQUIREMENTS = {
    "paddleocr37": ("paddleocr==3.7.0", "paddlex==3.7.2", "paddlepaddle==3.3.1"),
    "paddleocr37_onnx": ("paddleocr==3.7.0", "paddlex==3.7.2", ONNX_RUNTIME),
    "rapidocr": ("rapidocr==3.10.0", ONNX_RUNTIME),
    "onnxruntime": (ONNX_RUNTIME, "numpy", "opencv-python-headless"),
    "paddleocr210_paddle33": ("paddleocr==2.10.0", "paddlepaddle==3.3.1", ONNX_RUNTIME),
    "paddleocr210_paddle26": ("paddleocr==2.10.0", "paddlepaddle==2.6.2", ONNX_RUNTIME),
}
WITHOUT_PADDLE = ("paddleocr37_onnx", "rapidocr", "onnxruntime")
_CLOSED = "http://127.0.0.1:9"  # nothing listens there


def build(name: str, folder: Path) -> Path:
    """Return the `bin` of an environment; build it if its requirements are not those that it was built from."""
    environment = folder / name
    installed, wanted = environment / "requirements.txt", "\n".join(REQUIREMENTS[name]) + "\n"
    if not installed.is_file() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin" / "pip", "install", "-q", *REQUIREMENTS[name]], check=True)
        installed.write_text(wanted)
    return environment / "bin"


@cache
def without_network() -> tuple[str, ...]:
    """Return the words before a command that take its network away; none where the system does not allow it."""
    words = ("unshare", "-rn")
    try:
        done = subprocess.run([*words, "true"], capture_output=True)
    except FileNotFoundError:
        return ()
    return words if done.returncode == 0 else ()


def isolation() -> str:
    """Say how the network is kept away."""
    return (
        "in a network namespace without network" if without_network() else "with a proxy that does not exist"
    )


def run_offline(command: Sequence[str | Path], folder: Path, home: Path) -> str:
    """Run a client's command and return what it prints; no cache of the user is seen.

    Args:
        command: the program and its arguments.
        folder: where to run it.
        home: an empty folder in place of the user's own.
    """
    variables = {
        "HOME": str(home),
        "PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
    }
    if not without_network():
        variables |= {f"{scheme}_proxy": _CLOSED for scheme in ("http", "https", "all")}
    words = [*without_network(), *map(str, command)]
    done = subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, encoding="utf-8", timeout=3000
    )
    assert done.returncode == 0, (
        f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout + done.stderr
