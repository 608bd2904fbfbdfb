"""Find PaddleOCR on this machine, without importing it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ppocr_ext.errors import HostError
from ppocr_ext.io.resources import package_folder

ENVIRONMENT = "PADDLEOCR_HOME"
WHEEL = "paddleocr"
INSTALL_WHEEL = "pip install 'paddleocr>=2.10,<3'"
_OTHERWISE = f"Or name a PaddleOCR checkout with `--host DIR` or {ENVIRONMENT}."


@dataclass(frozen=True)
class Location:
    """Where the host is.

    Attributes:
        root: the folder that holds ``ppocr/`` and ``tools/``.
        form: ``"checkout"`` if the host has its own ``ppocr.modeling``, ``"wheel"`` if not.
        found_by: how it was found, in words.
        version: version of the wheel, or ``git describe`` of a checkout; None without a git history.
    """

    root: Path
    form: str
    found_by: str
    version: str | None


def locate_host(path: str | Path | None = None) -> Location:
    """Find the host: the first of ``path``, PADDLEOCR_HOME, an importable ``ppocr`` with models, and the wheel.

    Raises:
        HostError: there is no host, the named folder is not PaddleOCR, or only the wheel 3.x is installed.
    """
    if path is not None:
        return _named(Path(path), "--host")
    if home := os.environ.get(ENVIRONMENT):
        return _named(Path(home), ENVIRONMENT)
    ppocr = package_folder("ppocr")
    if ppocr is not None and (ppocr / "modeling").is_dir() and _is_host(ppocr.parent):
        return _location(ppocr.parent, "an importable ppocr")
    return _location(_wheel(), "the installed paddleocr package")


def _named(path: Path, found_by: str) -> Location:
    root = path.expanduser().resolve()
    if not root.is_dir():
        raise HostError(
            f"{found_by} names {path}, which is not a folder. Name the folder that holds PaddleOCR's "
            f"`ppocr` and `tools`, or leave it out to use the installed package ({INSTALL_WHEEL}).",
            code="missing_folder",
        )
    if not _is_host(root):
        raise HostError(
            f"{found_by} names {path}, which has no ppocr/ with tools/program.py beside it. Name the top "
            f"folder of a PaddleOCR checkout, or leave it out to use the installed package ({INSTALL_WHEEL}).",
            code="not_paddleocr",
        )
    return _location(root, found_by)


def _is_host(root: Path) -> bool:
    return (root / "ppocr").is_dir() and (root / "tools" / "program.py").is_file()


def _wheel() -> Path:
    if (root := package_folder(WHEEL)) is None:
        raise HostError(
            f"PaddleOCR is not installed. Install it: {INSTALL_WHEEL}. {_OTHERWISE}", code="missing_package"
        )
    if not _is_host(root):
        raise HostError(
            f"The installed paddleocr {_wheel_version()} has no training code: from 3.0 on the package ships "
            f"neither `ppocr` nor `tools`. Install one that does: {INSTALL_WHEEL}. {_OTHERWISE}",
            code="unsupported_host",
        )
    return root


def _location(root: Path, found_by: str) -> Location:
    form = "checkout" if (root / "ppocr" / "modeling").is_dir() else "wheel"
    version = _wheel_version() if root == package_folder(WHEEL) else _git_version(root)
    return Location(root=root, form=form, found_by=found_by, version=version)


def _wheel_version() -> str | None:
    try:
        return importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_version(root: Path) -> str | None:
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--tags", "--dirty"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (FileNotFoundError, subprocess.TimeoutExpired):  # no git here: the version stays unknown
        return None
    return described.stdout.strip() or None
