"""Bad inputs: each is provoked, its message and exit code stand in docs/errors.md as they are.

``pytest tests/cli/test_errors.py --write-docs`` writes the pages anew; without it a difference fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from error_bench import Bench, Said, make_template
from error_cases import GROUPS, Case, damaged_inside
from error_pages import render

DOCS = Path(__file__).resolve().parents[2] / "docs"
CASES = [case for group in GROUPS for case in group.cases]
_SAID: dict[str, Said] = {}  # of the cases that have been run in this session


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files that each case starts with, and a finished run in ``trained``."""
    folder = tmp_path_factory.mktemp("template")
    make_template(folder)
    with pytest.MonkeyPatch.context() as patch:
        said = Bench(folder, patch).run(["train", "-c", "config.yml", "-o", "Global.save_model_dir=trained"])
    assert said.code == 0, said.text
    yield folder


def provoke(case: Case, template: Path, folder: Path) -> Said:
    """Run ``case`` once a session."""
    if case.name not in _SAID:
        shutil.copytree(template, folder)
        with pytest.MonkeyPatch.context() as patch:
            bench = Bench(folder, patch)
            _SAID[case.name] = bench.run(case.arrange(bench))
    return _SAID[case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_input_is_a_sentence(case: Case, template: Path, tmp_path: Path) -> None:
    said = provoke(case, template, tmp_path / "case")
    assert said.code == case.code, said.text
    assert "Traceback" not in said.text
    message = said.found(case.shows)
    assert "internal error" not in message or case.unforeseen
    for part in case.names:
        assert part in message


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_says_what_the_program_says(
    language: str, template: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    messages = {case.name: provoke(case, template, tmp_path / case.name).found(case.shows) for case in CASES}
    page = DOCS / ("zh" if language == "zh" else "") / "errors.md"
    text = render(GROUPS, messages, language)
    if request.config.getoption("--write-docs"):
        page.write_text(text, encoding="utf-8")
    assert page.is_file() and page.read_text(encoding="utf-8") == text, (
        f"{page} differs from what the program says: pytest tests/cli/test_errors.py --write-docs"
    )


@pytest.mark.e2e
def test_an_error_in_a_worker_process_is_the_same_sentence(template: Path, tmp_path: Path) -> None:
    """In a process of its own: a fork beside the threads of other runs may lock."""
    folder = tmp_path / "case"
    shutil.copytree(template, folder)
    with pytest.MonkeyPatch.context() as patch:
        damaged_inside(Bench(folder, patch))
    command = ["train", "-c", "config.yml", "--strict", "-o", "Train.loader.num_workers=1"]
    found = subprocess.run(
        [sys.executable, "-m", "ppocr_ext.cli.main", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 2
    assert "error: Train: data/train.txt:5: the image cannot be decoded." in found.stderr
    assert "Traceback" not in found.stdout + found.stderr


def test_names_of_cases_are_different() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
