"""The guides say what is so: links, examples, commands, mirrors, and the list of components."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import benchmark
import pytest

from ppocr_ext.cli.main import COMMANDS, build_parser, import_command
from ppocr_ext.config.node import Place
from ppocr_ext.config.yaml_io import read_value

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("README*.md"), *DOCS.rglob("*.md")])
ENGLISH = sorted(DOCS.glob("*.md"))
GENERATED = ("errors.md", "reference.md")  # English alone

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
COMMAND = re.compile(r"(?:ppocr-ext|tools/(?P<script>\w+)\.py) +(?P<rest>.*)")
ASSIGNMENT = re.compile(r"\+?[\w.]+=")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_yaml_examples_are_read() -> None:
    examples = [
        (f"{name_of(page)}: yaml block {number}", text)
        for page in PAGES
        for number, text in enumerate(blocks(page, "yaml"), start=1)
    ]
    assert len(examples) > 50
    for place, text in examples:
        assert read_value(text, Place(place, place)).is_mapping, place


def commands(page: Path) -> Iterator[list[str]]:
    """Words of every command line of ours in the page's shell blocks."""
    for block in blocks(page, "bash"):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            for part in re.split(r"&&|\||;", line):
                words = shlex.split(part, comments=True)
                found = COMMAND.search(shlex.join(words)) if words else None
                if found is None or words[0] in ("pip", "cd"):
                    continue
                name = [found["script"]] if found["script"] else []
                yield [*name, *(word for word in shlex.split(found["rest"]) if word != "…")]


def command_name(word: str) -> str:
    """The command that a word names, or a script in `tools/`: those of `export` and `verify` have longer names."""
    return {"export_model": "export", "verify_export": "verify"}.get(word, word.replace("_", "-"))


class RefusalError(Exception):
    """What argparse has to say against a command line."""


def refuse(self: argparse.ArgumentParser, message: str) -> None:
    raise RefusalError(f"{self.prog}: {message}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_ones_that_the_parsers_know(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argparse.ArgumentParser, "error", refuse)
    wrong = []
    for words in commands(page):
        name = command_name(words[0])
        if name == "benchmark":  # a script of a clone
            parser = benchmark.build_parser()
        elif name not in COMMANDS:
            wrong.append(f"no command {name!r}: {shlex.join(words)}")
            continue
        else:
            parser = build_parser(name, import_command(name))
        try:
            args = parser.parse_args(words[1:])
        except RefusalError as reason:
            wrong.append(f"{reason}: {shlex.join(words)}")
            continue
        wrong += [f"no assignment: {o}" for o in getattr(args, "opt", ()) if not ASSIGNMENT.match(o)]
    assert wrong == []


def test_commands_are_found_in_the_guides() -> None:
    named = {words[0].replace("_", "-") for page in PAGES for words in commands(page)}
    assert named >= {"train", "eval", "make-dataset", "quickstart", "doctor"}


def test_configs_that_commands_name_are_shipped() -> None:
    pattern = r"\bconfigs/[\w/.-]+\.yml"
    named = {
        (name_of(page), name)
        for page in ENGLISH
        for name in re.findall(pattern, page.read_text(encoding="utf-8"))
    }
    assert named and [(page, name) for page, name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", [each for each in ENGLISH if each.name not in GENERATED], ids=name_of)
def test_every_guide_has_its_chinese_mirror(page: Path) -> None:
    mirror = DOCS / "zh" / page.name
    if page.name == "results.md" and not mirror.exists():
        pytest.skip("results.md has not been translated yet")
    assert mirror.is_file(), f"docs/zh/{page.name} is missing"

    def levels(text: str) -> list[int]:
        return [len(match.group(0).split()[0]) for match in HEADING.finditer(text)]

    assert levels(prose(mirror)) == levels(prose(page))


def test_the_readme_has_its_chinese_mirror() -> None:
    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"
    assert blocks(english, "bash")[0] == blocks(chinese, "bash")[0]
    assert len(HEADING.findall(prose(english))) == len(HEADING.findall(prose(chinese)))
