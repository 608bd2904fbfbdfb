"""The guides say what is so: links, examples, commands, mirrors, the site, and the list of components."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import benchmark
import pytest
import yaml

from ppocr_ext.cli.main import COMMANDS, build_parser, import_command
from ppocr_ext.config.node import Place
from ppocr_ext.config.yaml_io import read_value

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob(".github/*.md"), *DOCS.rglob("*.md")])
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


def navigation(entry: object) -> Iterator[str]:
    """The pages that a `nav` of MkDocs names."""
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(each)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    english, chinese = (
        list(navigation(yaml.safe_load((DOCS / "site" / name).read_text(encoding="utf-8"))["nav"]))
        for name in ("mkdocs.yml", "zh.yml")
    )
    pages = {name_of(page) for page in PAGES}
    in_chinese = {page for page in pages if page.startswith(("docs/zh/", "README.zh"))}
    assert pages - in_chinese - set(english) == set()
    assert in_chinese - set(chinese) == set()
    # The language switch finds each page, in Chinese or else in English, at the same address.
    assert [Path(page).name.replace(".zh", "") for page in chinese] == [Path(page).name for page in english]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lists_look_on_the_site_as_on_github(page: Path) -> None:
    text = prose(page)
    after_a_paragraph = re.findall(r"^(?![-*] |\d+\. |[ #])[^\n]+\n(?:[-*]|\d+\.) .*", text, re.MULTILINE)
    not_four_deeper = re.findall(r"^ {1,3}(?:[-*] |\d+\. |```).*", text, re.MULTILINE)
    assert after_a_paragraph + not_four_deeper == []


def test_yaml_examples_are_read() -> None:
    examples = [
        (f"{name_of(page)}: yaml block {number}", text)
        for page in PAGES
        for number, text in enumerate(blocks(page, "yaml"), start=1)
    ]
    assert len(examples) > 20
    for place, text in examples:
        assert read_value(text, Place(place, place)).is_mapping, place


def commands(shell_blocks: Iterable[str]) -> Iterator[list[str]]:
    """Words of every command line of ours in blocks of shell commands."""
    for block in shell_blocks:
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


def wrong_commands(shell_blocks: Iterable[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the parsers have against the command lines of ours in blocks of shell commands."""
    monkeypatch.setattr(argparse.ArgumentParser, "error", refuse)
    wrong = []
    for words in commands(shell_blocks):
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
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_ones_that_the_parsers_know(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_commands(blocks(page, "bash"), monkeypatch) == []


def test_configs_that_commands_name_are_shipped() -> None:
    pattern = r"\bconfigs/[\w/.-]+\.yml"
    named = {
        (name_of(page), name)
        for page in ENGLISH
        for name in re.findall(pattern, page.read_text(encoding="utf-8"))
    }
    assert named and [(page, name) for page, name in named if not (ROOT / name).is_file()] == []


MIRRORED = [(each, DOCS / "zh" / each.name) for each in ENGLISH if each.name not in GENERATED]
MIRRORED += [(ROOT / "README.md", ROOT / "README.zh.md")]
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
IN_WORDS = {str(number) for number in range(13)}  # a sentence may write them as words


def code_blocks(page: Path) -> list[tuple[str, str]]:
    """Return language and text of each fenced block without comments and docstrings; of drawings only numbers."""
    found = []
    for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        text = re.sub(r"^ *\"\"\".*?\"\"\"$", "", text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"\s*(?:#|<!--).*", "", text)
        found.append((language, " ".join(text.split() if language in TRANSLATED else NUMBER.findall(text))))
    return found


TRANSLATED = {"bash", "yaml", "python", "json"}


def spans(text: str) -> set[str]:
    """Return the code within sentences, on one line each."""
    return {" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)}


def numbers(text: str) -> set[str]:
    """Return the numbers within sentences, those that may be words left out."""
    bare = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return {number.replace(",", "") for number in NUMBER.findall(bare)} - IN_WORDS


def rows(text: str) -> list[tuple[int, set[str], set[str]]]:
    """Return of each row of a table how many cells it has, its code and its numbers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [(line.count("|"), spans(line), numbers(line)) for line in lines]


@pytest.mark.parametrize(("english", "chinese"), MIRRORED, ids=[name_of(each) for each, _ in MIRRORED])
def test_both_languages_give_the_same_commands_code_and_numbers(english: Path, chinese: Path) -> None:
    assert chinese.is_file(), f"{name_of(chinese)} is missing"
    assert code_blocks(chinese) == code_blocks(english)
    ours, theirs = prose(english), prose(chinese)
    assert spans(theirs) == spans(ours)
    assert numbers(theirs) == numbers(ours)
    assert rows(theirs) == rows(ours)
