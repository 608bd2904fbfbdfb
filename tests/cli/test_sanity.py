"""`ppocr-ext sanity` as a user calls it: exit codes, table, page and picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sanity_runs import learner, short_texts  # noqa: F401
from tiny_runs import single_head

from ppocr_ext.cli.main import main
from ppocr_ext.config import Config

pytestmark = pytest.mark.e2e
Sanity = Callable[..., int]
PLUGIN = """
from paddle import nn
from ppocr_ext.registry import HEADS

@HEADS.register("{name}")
class OwnHead(nn.Layer):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(in_channels, out_channels)

    def forward(self, features, targets=None):
        logits = self.fc(self.drop(features))
        return logits if self.training else nn.functional.softmax(logits, axis=-1)
"""


@pytest.fixture
def sanity(short_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sanity:  # noqa: F811
    """Run the command on the quickstart's student in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, config: Config | None = None) -> int:
        chosen = learner(short_texts) if config is None else config
        (tmp_path / "tiny.yml").write_text(chosen.to_yaml(), encoding="utf-8")
        return main(["sanity", "-c", "tiny.yml", "--samples", "4", *words])

    return run


def rows(said: str) -> list[list[str]]:
    """The rows of the table: head, way, steps, …, verdict."""
    found = re.findall(r"^\S+ +(?:together|apart) .*$", said, re.MULTILINE)
    return [re.split(r" {2,}", row) for row in found]


def test_a_config_that_learns(sanity: Sanity, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    assert sanity() == 0
    table = rows(capsys.readouterr().out)
    assert [row[:2] for row in table] == [
        ["ctc", "together"],
        ["gtc", "together"],
        ["ctc", "apart"],
        ["gtc", "apart"],
    ]
    assert {row[-1] for row in table} == {"learned"} and {row[5] for row in table} == {"4 of 4"}
    assert {file.name for file in set(tmp_path.iterdir()) - before} == {"tiny.yml", "sanity"}
    assert {file.name for file in (tmp_path / "sanity").iterdir()} == {"sanity.html", "sanity.svg"}
    drawn = ElementTree.parse(tmp_path / "sanity/sanity.svg").getroot()
    spans = ["".join(each.itertext()) for each in drawn.iter("{http://www.w3.org/2000/svg}tspan")]
    labels = [span.removeprefix("label: ") for span in spans if span.startswith("label: ")]
    assert len(set(labels)) == 4 and f"ctc: {labels[0]}" in spans and f"gtc: {labels[0]}" in spans
    assert sum(1 for _ in drawn.iter("{http://www.w3.org/2000/svg}image")) == 4


@pytest.mark.parametrize(("rate", "process"), [("5.0e-6", 0), ("3.0", 1)])
def test_a_rate_far_outside(
    sanity: Sanity,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rate: str,
    process: int,
) -> None:
    monkeypatch.setattr("paddle.distributed.get_rank", lambda *_: process)  # of several, the first one writes
    assert sanity("--steps", "10", "--out", "other", "-o", f"Optimizer.lr.learning_rate={rate}") == 1
    said = capsys.readouterr().out
    assert "learned" not in {row[-1] for row in rows(said)}
    assert said.count("(Optimizer.lr.learning_rate)") == 2  # once for each head
    written = set() if process else {"sanity.html", "sanity.svg"}
    assert {file.name for file in Path("other").iterdir()} == written and not Path("sanity").exists()


def test_a_head_of_a_plugin(
    sanity: Sanity,
    short_texts: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sanity_plugin.py").write_text(PLUGIN.format(name="SanityHead"), encoding="utf-8")
    head = {"name": "SanityHead", "out_channels": 11}
    config = single_head(learner(short_texts))
    config = config.with_values({"Global.plugins": ["sanity_plugin"], "Architecture.Head": head})
    assert sanity("--structure", config=config) == 0
    said = capsys.readouterr().out
    assert [row[0] for row in rows(said)] == ["OwnHead"] and "activation, learning_rate" in said


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--samples", "1"], "bad_value"),
        (["-c", "missing.yml"], "unreadable_file"),
        (["--out", "tiny.yml"], "unwritable_file"),
    ],
)
def test_what_cannot_run(
    sanity: Sanity, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    assert sanity(*words) == 2
    assert f"[{code}]" in capsys.readouterr().err
    assert not Path("sanity").exists()
