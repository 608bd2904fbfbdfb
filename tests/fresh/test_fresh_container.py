"""The steps of docs/docker/cpu.dockerfile, run without a container: files are copied, packages installed, commands run.

`apt-get` is not run. Instead, the libraries of the system that the installed packages load are compared with those that
the file installs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook_cells import ROOT

pytestmark = pytest.mark.fresh
FILE = ROOT / "docs" / "docker" / "cpu.dockerfile"
LOADED = {"libgl1": "libGL.so.1", "libglib2.0-0": "libgthread-2.0.so.0", "libgomp1": "libgomp.so.1"}
MODULES = ("cv2/cv2.abi3.so", "paddle/base/libpaddle.so", "paddle/libs/*.so*")


def instructions() -> Iterator[tuple[str, str]]:
    """Yield each instruction with its arguments."""
    text = FILE.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, arguments = line.partition(" ")
            yield name, arguments


def test_the_steps_of_the_container_install_what_trains(clone: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
    variables = {**os.environ, "PATH": f"{root / 'venv' / 'bin'}:{os.environ['PATH']}", "HOME": str(root)}
    apt, ran = "", []
    for name, arguments in instructions():
        if name == "COPY":
            *files, target = arguments.split()
            to = root / target.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                if (clone / file).is_dir():
                    shutil.copytree(clone / file, to)
                else:
                    to.mkdir(exist_ok=True)
                    shutil.copy(clone / file, to)
        elif name == "RUN" and arguments.startswith("apt-get"):
            apt = arguments
        elif name == "RUN":
            ran.append(arguments)
            command = arguments.replace("/src", f"{root}/src")
            subprocess.run(["bash", "-euo", "pipefail", "-c", command], env=variables, cwd=root, check=True)
        else:
            assert name in ("FROM", "WORKDIR", "ENTRYPOINT"), name
    assert [each.split()[0] for each in ran] == ["pip", "ppocr-ext"]
    assert {word for word in apt.split() if word.startswith("lib")} == set(LOADED)
    needed = libraries(next((root / "venv").glob("lib/python3*/site-packages")))
    assert {package for package, library in LOADED.items() if library not in needed} == set()


def libraries(packages: Path) -> set[str]:
    """Return the libraries that OpenCV and Paddle load, found on this machine or not."""
    files = [file for pattern in MODULES for file in packages.glob(pattern)]
    assert len(files) > 2
    done = subprocess.run(["ldd", *files], capture_output=True, text=True)
    return {line.split()[0] for line in done.stdout.splitlines() if "=>" in line}
