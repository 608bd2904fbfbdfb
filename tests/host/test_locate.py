"""Which PaddleOCR is found, in which order, and what is said where there is none."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import pytest
from error_codes import raises_code
from fake_checkout import write_checkout

from ppocr_ext.errors import HostError
from ppocr_ext.host import locate_host


@pytest.fixture
def bare_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An import path with one empty folder and no PaddleOCR at all; the folder."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(sys, "meta_path", [importlib.machinery.PathFinder])
    for name in ("ppocr", "paddleocr"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delenv("PADDLEOCR_HOME", raising=False)
    return folder


def write_wheel(site_packages: Path, version: str, with_training: bool = True) -> Path:
    root = site_packages / "paddleocr"
    root.mkdir()
    (root / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    metadata = site_packages / f"paddleocr-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: paddleocr\nVersion: {version}\n")
    if with_training:
        write_checkout(root, dict.fromkeys(_model_files()))
    importlib.invalidate_caches()
    return root


def _model_files() -> list[str]:
    from fake_checkout import FILES

    return [name for name in FILES if name.split("/")[1] in ("modeling", "losses", "optimizer", "metrics")]


def test_the_environment_wins_over_an_importable_checkout(
    bare_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(bare_path, "2.10.0")
    checkout, home = write_checkout(tmp_path / "importable"), write_checkout(tmp_path / "home")
    sys.path.insert(0, str(checkout))
    assert locate_host().root == checkout
    assert locate_host().form == "checkout"
    monkeypatch.setenv("PADDLEOCR_HOME", str(home))
    assert locate_host().root == home


def test_the_wheel_is_found_without_being_imported(bare_path: Path) -> None:
    root = write_wheel(bare_path, "2.10.0")
    found = locate_host()
    assert (found.root, found.form, found.version) == (root, "wheel", "2.10.0")
    assert "paddleocr" not in sys.modules


def test_an_importable_ppocr_without_models_is_no_host(bare_path: Path, tmp_path: Path) -> None:
    wheel = write_wheel(bare_path, "2.10.0")
    sys.path.append(str(wheel))  # as `import paddleocr` of 2.x does
    assert locate_host().root == wheel
    assert locate_host().form == "wheel"


def test_the_wheel_3_alone_is_refused_with_what_to_install(bare_path: Path) -> None:
    write_wheel(bare_path, "3.7.0", with_training=False)
    with raises_code(HostError, "unsupported_host", "3.7.0", "pip install 'paddleocr>=2.10,<3'"):
        locate_host()


def test_nothing_installed(bare_path: Path) -> None:
    with raises_code(HostError, "missing_package", "pip install 'paddleocr", "PADDLEOCR_HOME"):
        locate_host()


@pytest.mark.parametrize("missing", ["tools/program.py", "everything"])
def test_a_folder_that_is_not_paddleocr(tmp_path: Path, missing: str) -> None:
    root = tmp_path / "folder"
    if missing == "everything":
        root.mkdir()
    else:
        write_checkout(root, {missing: None})
    with raises_code(HostError, "not_paddleocr", "--host", root):
        locate_host(root)


def test_a_home_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLEOCR_HOME", str(tmp_path / "nowhere"))
    with raises_code(HostError, "missing_folder", "PADDLEOCR_HOME", tmp_path / "nowhere"):
        locate_host()


def test_python_m_takes_no_checkout_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = write_checkout(tmp_path / "checkout")
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [str(checkout), *sys.path])  # as `python -m` starts
    monkeypatch.delitem(sys.modules, "ppocr", raising=False)
    monkeypatch.setattr(sys, "argv", ["ppocr_ext", "--version"])
    monkeypatch.delenv("PADDLEOCR_HOME", raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_module("ppocr_ext", run_name="__main__")
    assert end.value.code == 0
    assert locate_host().root != checkout
