"""The notebook, without running it: no outputs, no hidden failures, commands and keys that exist."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import subprocess
from pathlib import Path

import notebook_cells
import pytest
from error_codes import raises_code

from ppocr_ext.check import check_all
from ppocr_ext.cli.main import build_parser, import_command
from ppocr_ext.cli.options import read_config
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.host import open_host

CODE = notebook_cells.sources("code")
IN_TEXT = re.findall(r"^ppocr-ext .*$", "\n".join(notebook_cells.sources("markdown")), re.MULTILINE)
COMMANDS = [*(line for line in notebook_cells.commands() if line.startswith("ppocr-ext ")), *IN_TEXT]


def parsed(command: str) -> argparse.Namespace:
    _, name, *words = shlex.split(command)
    return build_parser(name, import_command(name)).parse_args(words)


def test_the_committed_notebook_has_no_outputs() -> None:
    book = notebook_cells.read()
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 10
    assert [cell["id"] for cell in cells if cell["outputs"] or cell["execution_count"] is not None] == []


def test_no_cell_hides_a_failure() -> None:
    """A `!command` and `%pip` do not stop a notebook; `%%writefile` does."""
    text = "\n".join(CODE)
    assert (
        re.findall(r"^(?:!.*|%(?!%writefile).*)$|except|suppress|\|\||2>|%%capture|check=False", text, re.M)
        == []
    )


def test_a_command_that_fails_stops_the_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(next(source for source in CODE if "def run(" in source), names)
    names["run"]("echo first; echo second >&2")  # type: ignore[operator]
    assert capsys.readouterr().out.splitlines()[1:] == ["first", "second"]
    for command in ("false; true", "false | cat", "no-such-command"):
        with pytest.raises(subprocess.CalledProcessError):
            names["run"](command)  # type: ignore[operator]


def test_its_settings_are_replaced_by_name() -> None:
    (settings,) = (source for source in CODE if source.startswith("SOURCE = "))
    assert len(ast.parse(settings).body) == 3
    assert "SOURCE = 'x'\nMINUTES = 1" in notebook_cells.with_settings(settings, SOURCE="x", MINUTES=1)


def test_its_commands_are_ones_that_the_parsers_know() -> None:
    assert len(COMMANDS) == 11
    for command in COMMANDS:
        parsed(command)
    with raises_code(PPOCRExtError, "bad_arguments"):
        parsed("ppocr-ext export output/student --into model")


def test_the_keys_that_it_sets_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (written,) = (source for source in CODE if source.startswith("%%writefile settings.yml\n"))
    Path("settings.yml").write_text(written.partition("\n")[2], encoding="utf-8")
    trainings = [command for command in COMMANDS if command.startswith("ppocr-ext train --overwrite -c")]
    assert len(trainings) == 2
    for command in trainings:
        for added, expected in (("", False), (" Global.no_such_key=1", True)):
            issues, _ = check_all(read_config(parsed(command + added)), open_host(None), "train", ())
            codes = {issue.code for issue in issues}
            assert bool(codes & {"unknown_key", "unused_key", "unused_option"}) == expected, issues
