"""What a built package holds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ppocr_ext import __version__
from ppocr_ext.cli import doctor
from ppocr_ext.errors import ConfigError
from ppocr_ext.io import resources
from ppocr_ext.messages import INSTALL_LIBRARIES

REPOSITORY = Path(__file__).resolve().parents[1]


def setup_py(*arguments: str) -> str:
    command = [sys.executable, "setup.py", "-q", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed from a wheel."""
    folder = tmp_path_factory.mktemp("built")
    setup_py("build_py", "--build-lib", str(folder))
    return folder


def test_name_and_version() -> None:
    assert setup_py("--name", "--version").split() == ["ppocr-ext", __version__]


def test_setup_doctor_and_guides_name_the_same_versions_of_python() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", text)
    (first, *_, last) = (tuple(map(int, version.split("."))) for version in versions)
    assert (first, last) == doctor._PYTHONS
    assert f'requires-python = ">={versions[0]},<3.{last[1] + 1}"' in text
    for page in ("README.md", "docs/install.md", "docs/paddleocr.md"):
        assert f"Python {versions[0]} to {versions[-1]}" in (REPOSITORY / page).read_text(encoding="utf-8")


def test_a_package_page_has_no_links_into_the_repository() -> None:
    text = setup_py("--long-description")
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    assert "](https://" in text and "class counts follow the dictionary" in text


def test_only_the_package_is_built(built: Path) -> None:
    assert [path.name for path in built.iterdir()] == ["ppocr_ext"]
    assert (built / "ppocr_ext" / "py.typed").is_file()


def test_every_module_and_configuration_is_built(built: Path) -> None:
    def files(root: Path, pattern: str) -> set[str]:
        return {str(path.relative_to(root)) for path in root.rglob(pattern)}

    configs = files(REPOSITORY / "configs", "*")
    assert files(built / "ppocr_ext" / "configs", "*") == configs
    for pattern in ("*.py", "*.json", "*.txt", "py.typed"):
        assert files(built / "ppocr_ext", pattern) >= files(REPOSITORY / "ppocr_ext", pattern)


def test_an_installed_package_finds_its_configurations(built: Path, tmp_path: Path) -> None:
    added = built / "ppocr_ext" / "configs" / "quickstart" / "added_by_a_test.yml"
    added.parent.mkdir(parents=True, exist_ok=True)
    added.write_text("Global: {}\n")
    code = (
        "from ppocr_ext.io.resources import config_path; print(config_path('quickstart/added_by_a_test.yml'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(built)}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    added.unlink()
    assert result.stdout.strip() == str(added), result.stderr


def test_a_source_tree_finds_its_configurations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "configs" / "quickstart").mkdir(parents=True)
    shipped = tmp_path / "configs" / "quickstart" / "teacher.yml"
    shipped.write_text("Global: {}\n")
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "ppocr_ext")
    assert resources.config_path("quickstart/teacher.yml") == shipped
    assert resources.config_path("quickstart") == shipped.parent
    for name in ("quickstart/student.yml", "../configs_of_others", "/etc/passwd"):
        with pytest.raises(ConfigError, match=r"quickstart/teacher\.yml"):
            resources.config_path(name)


def test_every_package_that_is_imported_is_required() -> None:
    # Import name -> distribution, for those that the package names.
    required = {
        "captcha": "captcha",
        "cv2": "opencv-python",
        "fontTools": "fonttools",
        "lmdb": "lmdb",
        "matplotlib": "matplotlib",
        "numpy": "numpy",
        "onnx": "onnx",
        "onnxruntime": "onnxruntime",
        "openvino": "openvino",
        "optuna": "optuna",
        "paddle": "paddlepaddle",
        "paddle2onnx": "paddle2onnx",
        "PIL": "pillow",
        "rapidfuzz": "rapidfuzz",
        "ray": "ray[tune]",
        "tqdm": "tqdm",
        "yaml": "pyyaml",
    }
    text = "".join((REPOSITORY / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "setup.py"))
    assert [name for name in required.values() if f'"{name}' not in text] == []
    of_the_host = {"ppocr", "tools"}
    known = {*required, *of_the_host, *sys.stdlib_module_names, "ppocr_ext"}
    unknown = {
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file in (REPOSITORY / "ppocr_ext").rglob("*.py")
        for name in imported(file)
        if name not in known
    }
    assert unknown == set()


def imported(file: Path) -> set[str]:
    """Top-level names of the absolute imports in ``file``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_the_page_on_installing_lists_every_extra() -> None:
    tree = ast.parse((REPOSITORY / "setup.py").read_text(encoding="utf-8"))
    assigned = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    extras = {key.value for name in ("EXTRAS", "WRITERS") for key in assigned[name].keys if key is not None}
    page = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| extra \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in table.splitlines()))) == extras


def test_the_files_for_containers_differ_only_in_paddle() -> None:
    cpu, gpu = (
        (REPOSITORY / "docs" / "docker" / f"{name}.dockerfile").read_text(encoding="utf-8")
        for name in ("cpu", "gpu")
    )
    copies = re.findall(r"^COPY (.*) \S+$", cpu, re.MULTILINE)
    assert copies == re.findall(r"^COPY (.*) \S+$", gpu, re.MULTILINE)
    assert [name for line in copies for name in line.split() if not (REPOSITORY / name).exists()] == []
    libraries = [
        set(re.findall(r"\blib\S+", re.search(r"apt-get install[^&]*", text)[0])) for text in (cpu, gpu)
    ]
    assert libraries[0] == libraries[1] and INSTALL_LIBRARIES.endswith(" ".join(sorted(libraries[0])))
