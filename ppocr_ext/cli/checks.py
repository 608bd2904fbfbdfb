"""What can be wrong with an installation, one check a function; ``doctor`` prints what they find."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from ppocr_ext.errors import HostError
from ppocr_ext.host.quiet import quiet_imports
from ppocr_ext.messages import INSTALL_PADDLE

OK, NOTE, FAIL = "ok", "note", "FAIL"
PYTHONS = ((3, 10), (3, 12))
_PADDLES = ("paddlepaddle", "paddlepaddle-gpu")
_OPENCVS = (
    "opencv-python",
    "opencv-contrib-python",
    "opencv-python-headless",
    "opencv-contrib-python-headless",
)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        level: ``OK``; ``NOTE``, something that only some commands miss; ``FAIL``, training cannot run.
        text: what was found.
        fix: the command that fixes it; empty where nothing is to be fixed.
    """

    level: str
    text: str
    fix: str = ""


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Installed versions of those distributions in ``names`` that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def first_line(reason: BaseException) -> str:
    """Type and first line of an exception."""
    lines = str(reason).splitlines() or ["no reason given"]
    return f"{type(reason).__name__}: {lines[0]}"


def check_python() -> list[Finding]:
    """Python's version."""
    text = f"Python {platform.python_version()} ({sys.executable})"
    if PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        return [Finding(OK, text)]
    return [Finding(FAIL, f"{text}: 3.10 to 3.12 are supported", "python3.11 -m venv .venv")]


def check_paddle() -> list[Finding]:
    """Paddle is installed, once, and can be imported."""
    installed = versions(_PADDLES)
    if len(installed) > 1:
        both = " and ".join(f"{name} {version}" for name, version in installed.items())
        fix = f"pip uninstall -y {' '.join(_PADDLES)} && {INSTALL_PADDLE}"
        return [Finding(FAIL, f"{both} are both installed; they overwrite each other", fix)]
    if importlib.util.find_spec("paddle") is None:
        return [Finding(FAIL, "Paddle is not installed", INSTALL_PADDLE)]
    try:
        with quiet_imports():
            paddle = importlib.import_module("paddle")
    except ModuleNotFoundError as reason:
        return [Finding(FAIL, f"Paddle cannot be imported: {reason}", f"pip install {reason.name}")]
    except Exception as reason:  # whatever a broken build raises is what this check is to report
        fix = f"pip uninstall -y {' '.join(_PADDLES)} && {INSTALL_PADDLE}"
        return [Finding(FAIL, f"Paddle cannot be imported: {first_line(reason)}", fix)]
    build = "CUDA" if paddle.is_compiled_with_cuda() else "CPU"
    return [Finding(OK, f"Paddle {paddle.__version__} ({build} build)")]


def check_arrays() -> list[Finding]:
    """numpy and OpenCV can be imported, and the OpenCV packages agree."""
    findings = []
    for module, name, fix in (
        ("numpy", "numpy", "pip install --force-reinstall numpy"),
        # The build with windows needs libraries of the desktop that servers and containers lack.
        ("cv2", "OpenCV", "pip install --force-reinstall --no-deps opencv-python-headless"),
    ):
        try:
            loaded = importlib.import_module(module)
        except Exception as reason:  # as above
            findings.append(Finding(FAIL, f"{name} cannot be imported: {first_line(reason)}", fix))
        else:
            findings.append(Finding(OK, f"{name} {loaded.__version__}"))
    opencvs = versions(_OPENCVS)
    if len(set(opencvs.values())) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in opencvs.items())
        text = f"{listed} write the same folder and differ; the one installed last is used"
        findings.append(Finding(NOTE, text, f"pip install -U {' '.join(opencvs)}"))
    return findings


def check_quickstart() -> list[Finding]:
    """What only ``make-dataset`` and ``quickstart`` need."""
    findings = []
    for module, purpose in (
        ("captcha", "draws CAPTCHAs"),
        ("matplotlib", "has fonts and draws the map of centers"),
    ):
        if importlib.util.find_spec(module) is None:
            text = f"{module} is not installed: it {purpose}"
            findings.append(Finding(NOTE, text, "pip install 'ppocr-ext[quickstart]'"))
        else:
            findings.append(Finding(OK, f"{module} {importlib.metadata.version(module)}"))
    return findings


def check_folder() -> list[Finding]:
    """Runs are written below the current folder unless a configuration says otherwise."""
    here = Path.cwd()
    if os.access(here, os.W_OK):
        return []
    return [
        Finding(
            NOTE,
            f"nothing can be written to the current folder {here}; runs go there by default",
            "ppocr-ext train … -o Global.save_model_dir=/a/folder/that/can/be/written",
        )
    ]


def check_host(path: str | None, debug: bool = False) -> list[Finding]:
    """PaddleOCR can be found, completed and imported; opens it. ``debug`` prints a failure's traceback."""
    from ppocr_ext.host import open_host

    try:
        host = open_host(path)
    except HostError as reason:
        if debug:
            traceback.print_exc()
        # The message of a HostError holds the command; it is not repeated.
        return [Finding(FAIL, str(reason))]
    version = host.version or "of unknown version"
    return [Finding(OK, f"PaddleOCR {version}, {host.form} at {host.root} ({host.found_by})")]
