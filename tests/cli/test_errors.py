"""Bad inputs: each is provoked, its message and exit code stand in docs/errors.md as they are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from error_bench import Bench, Said
from error_cases import GROUPS, Case, damaged_inside
from waiting import HANG
from write_error_pages import CASES, PAGE, make_trained_template, render
from write_error_pages import provoke as run_case

_SAID: dict[Case, Said] = {}  # of the cases that have been run in this session


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files that each case starts with, and a finished run in ``trained``."""
    folder = tmp_path_factory.mktemp("template")
    make_trained_template(folder)
    yield folder


def provoke(case: Case, template: Path, folder: Path) -> Said:
    """Run ``case`` once a session."""
    if case not in _SAID:
        _SAID[case] = run_case(case, template, folder)
    return _SAID[case]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_bad_input_is_a_sentence(case: Case, template: Path, tmp_path: Path) -> None:
    said = provoke(case, template, tmp_path / "case")
    assert said.code == case.code, said.text
    assert "Traceback" not in said.text
    message = said.found(case.shows)
    assert "internal error" not in message or case.unforeseen
    for part in case.names:
        assert part in message


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="the page has the message where paddle2onnx has a wheel"
)
def test_the_page_is_current(template: Path, tmp_path: Path) -> None:
    messages = {
        case: provoke(case, template, tmp_path / str(number)).found(case.shows)
        for number, case in enumerate(CASES)
    }
    assert PAGE.read_text(encoding="utf-8") == render(GROUPS, messages), (
        f"{PAGE} differs from what the program says: run `python tests/cli/write_error_pages.py`"
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
        timeout=HANG,
    )
    assert found.returncode == 2
    assert "data/train.txt:5" in found.stderr and "[too_many_unusable]" in found.stderr
    assert "Traceback" not in found.stdout + found.stderr
