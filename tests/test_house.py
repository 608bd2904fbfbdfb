"""What keeps the code easy to enter: no circles, short files, errors with codes, few tests of wording."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import house
import pytest

from ppocr_ext import errors

MODULES = house.modules()
# A change that needs more raises them in its own commit, and says what for.
MOST = {
    "working statements": 24_981,
    "all statements": 31_810,
    "tokens": 359_500,
    "files": 272,
    "lines of tests": 46_400,
    "lines of tools": 6_590,
    "words of English prose": 25_250,
    "words of tables": 8_650,
    "pages": 15,
}
ERRORS = {
    name
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, errors.PPOCRExtError)
}


def test_the_house_stays_within_its_totals() -> None:
    totals = house.totals()
    assert totals.keys() == MOST.keys()
    above = {name: total for name, total in totals.items() if total > MOST[name]}
    if sys.version_info >= (3, 12):  # there, an f-string is several tokens
        above.pop("tokens", None)
    assert above == {}


@pytest.mark.parametrize("has_git", [True, False])
def test_what_a_user_writes_into_the_clone_is_not_counted(has_git: bool, tmp_path: Path) -> None:
    for name in ("docs/page.md", "quickstart/inference/README.md", *["model/README.md"] * has_git):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("three more words\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("/quickstart/\n", encoding="utf-8")
    for command in (["init", "--quiet"], ["add", "docs"]) if has_git else ():
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert house.english_words(tmp_path) == (3, 0, 1)


def test_no_modules_import_each_other() -> None:
    assert house.circles(MODULES) == []


def test_no_file_is_long() -> None:
    files = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in house.PACKAGE.rglob("*.py")}
    assert {str(file): lines for file, lines in files.items() if lines > 500} == {}


def test_few_tests_assert_wording_alone() -> None:
    wording, _ = house.prose_tests()
    assert len(wording) <= 30, "\n".join(wording)


def test_every_error_has_a_code() -> None:
    raised = [
        (f"{module}, line {node.lineno}", node.exc)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    ]
    ours = [(place, call) for place, call in raised if house.called(call) in ERRORS]
    assert len(ours) > 300
    assert [place for place, call in ours if not {"code", None} & {each.arg for each in call.keywords}] == []


def test_one_thing_is_learnt_from_few_files() -> None:
    """The table "Where to look" of docs/architecture.md has at most five files for each topic."""
    page = (house.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (\[`[^|]+\)) \|$", page, re.MULTILINE)
    assert len(rows) >= 9 and max(row.count("](") for row in rows) <= 5
