"""What ``doctor`` says of an installation, whole and broken."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ppocr_ext import __version__
from ppocr_ext.cli import doctor
from ppocr_ext.cli.doctor import CheckResult
from ppocr_ext.cli.main import main


def pretend_installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)


def pretend_missing(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in missing else find_spec(name, *rest)
    )


def pretend_failing(monkeypatch: pytest.MonkeyPatch, module: str, reason: Exception) -> None:
    import_module = importlib.import_module

    def fail(name: str, package: str | None = None) -> Any:
        if name == module:
            raise reason
        return import_module(name, package)

    monkeypatch.setattr(importlib, "import_module", fail)


def test_no_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_installed(monkeypatch, {})
    pretend_missing(monkeypatch, "paddle")
    assert doctor.check_paddle() == [
        CheckResult("FAIL", "Paddle is not installed", "pip install 'ppocr-ext[cpu]'")
    ]


def test_both_builds_of_paddle(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_installed(monkeypatch, {"paddlepaddle": "3.3.1", "paddlepaddle-gpu": "2.6.2"})
    (result,) = doctor.check_paddle()
    assert result.level == "FAIL"
    assert "paddlepaddle 3.3.1 and paddlepaddle-gpu 2.6.2 are both installed" in result.text
    assert result.fix.startswith("pip uninstall -y paddlepaddle paddlepaddle-gpu && pip install")


def test_ctrl_c_while_paddle_is_imported_is_no_fault_of_paddle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = ImportError("initialization failed")
    reason.__cause__ = KeyboardInterrupt()
    pretend_failing(monkeypatch, "paddle", reason)
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


SETUPTOOLS = ModuleNotFoundError("No module named 'setuptools'", name="setuptools")
NO_LIBGOMP = "libgomp.so.1: cannot open shared object file: No such file or directory"
HEADLESS = "pip install --force-reinstall --no-deps opencv-python-headless"


@pytest.mark.parametrize(
    ("module", "reason", "text", "fix"),
    [
        ("paddle", SETUPTOOLS, "'setuptools'", "pip install setuptools"),
        (
            "paddle",
            ImportError("libgomp.so.1: no\nand more"),
            "ImportError: libgomp.so.1: no",
            "pip uninstall",
        ),
        ("paddle", ImportError(NO_LIBGOMP), NO_LIBGOMP, "apt-get install -y libgl1 libglib2.0-0 libgomp1"),
        ("cv2", ImportError("libGL.so.1: cannot open"), "libGL.so.1: cannot open", HEADLESS),
    ],
)
def test_a_package_that_does_not_load_shows_the_first_line(
    monkeypatch: pytest.MonkeyPatch, module: str, reason: Exception, text: str, fix: str
) -> None:
    pretend_failing(monkeypatch, module, reason)
    check = {"paddle": doctor.check_paddle, "cv2": doctor.check_arrays}[module]
    (result,) = [result for result in check() if result.level == "FAIL"]
    assert result.text.endswith(text) and result.fix.startswith(fix)


def test_opencv_packages_that_differ_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_installed(monkeypatch, {"opencv-python": "5.0.0.93", "opencv-contrib-python": "4.10.0.84"})
    (result,) = [result for result in doctor.check_arrays() if result.level == "note"]
    assert "opencv-python 5.0.0.93, opencv-contrib-python 4.10.0.84" in result.text
    assert result.fix == "pip install -U opencv-python opencv-contrib-python"
    pretend_installed(monkeypatch, {"opencv-python": "5.0.0.93", "opencv-contrib-python": "5.0.0.93"})
    assert {result.level for result in doctor.check_arrays()} == {"ok"}


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctor.check_folder() == []
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (result,) = doctor.check_folder()
    assert result.level == "note" and str(tmp_path) in result.text
    assert "Global.save_model_dir" in result.fix


@pytest.mark.parametrize(
    ("version", "level"), [((3, 9), "FAIL"), ((3, 10), "ok"), ((3, 13), "ok"), ((3, 14), "FAIL")]
)
def test_python(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], level: str) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert [result.level for result in doctor.check_python()] == [level]


def test_a_host_that_is_not_there_is_exit_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--host", str(tmp_path / "nowhere")]) == 1
    shown = capsys.readouterr().out
    assert "FAIL  --host names" in shown and "nowhere, which is not a folder" in shown
    assert "pip install 'paddleocr>=2.10,<3'" in shown
    assert "Training cannot run: 1 to fix, see FAIL below." in shown.splitlines()[0]


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["doctor", "--json", "--host", str(tmp_path / "nowhere")]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ppocr_ext"], said["can_train"]) == (__version__, False)
    assert {each["level"] for each in said["checks"]["installed"]} <= {"ok", "note"}
    (host,) = said["checks"]["host"]
    assert host["level"] == "FAIL" and "nowhere" in host["text"]


def test_an_installation_that_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    short = capsys.readouterr().out
    assert short.splitlines()[0].endswith(": Training can run.") and "RepSVTR" not in short
    assert main(["doctor", "--components"]) == 0
    shown = capsys.readouterr().out
    assert "FAIL" not in shown
    assert f"PaddleOCR {importlib.metadata.version('paddleocr')}, wheel at" in shown
    assert "ppocr.modeling           ours, the host has none" in shown
    assert re.search(r"(?s)backbone\n +ours +.*RepSVTR.*SVTRv2", shown)  # beside what other tests registered
    assert re.search(r"dataset\n +ours +.*CaptchaDataSet", shown)
    assert "the host's  KieDataset, LMDBDataSet" in shown
    assert "ok    tiny SVTRv2: forward and backward in" in shown


def test_a_failing_step_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def step() -> tuple[float, float]:
        raise RuntimeError("(PreconditionNotMet) no kernel\nlong trace")

    monkeypatch.setattr(doctor, "training_step", step)
    (result,) = doctor.check_training_step()
    assert result == CheckResult(
        "FAIL", "RuntimeError: (PreconditionNotMet) no kernel", "ppocr-ext doctor --debug"
    )
    assert capsys.readouterr().err == ""
    doctor.check_training_step(debug=True)
    assert "in step" in capsys.readouterr().err
    monkeypatch.setattr(doctor, "training_step", lambda: (0.1, float("nan")))
    (result,) = doctor.check_training_step()
    assert result.level == "FAIL" and "nan" in result.text
