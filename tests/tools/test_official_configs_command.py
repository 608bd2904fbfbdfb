"""The table of official configs: which ones run, what goes on, and what a refusal leaves; the runs are stood in for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from error_codes import raises_code
from experiments import official_runs
from experiments.official_files import config_files, stored_facts, write_configs
from experiments.official_runs import Settings, run_configs
from experiments.runs import RunFailedError

from ppocr_ext.config import load
from ppocr_ext.errors import DataError

TINY, REFUSED = "PP-OCRv6/PP-OCRv6_tiny_rec.yml", "PP-OCRv6/PP-OCRv6_small_rec.yml"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands so far; they write what they write into a run folder. One config is refused."""
    called: list[str] = []

    def stand_in(name: str, arguments: list[str], log: Path) -> None:
        config = load([arguments[arguments.index("-c") + 1]], arguments[arguments.index("-o") + 1 :])
        called.append(f"{name} {config.at('Architecture.Backbone.model_size')}")
        log.parent.mkdir(parents=True, exist_ok=True)
        if config.at("Architecture.Backbone.model_size") == "small":
            log.write_text(f"warning: old\nerror: {arguments[1]}:7: Global.x: wrong.\n  Fix: y | z\n")
            raise RunFailedError("it failed", code="run_failed")
        folder = Path(config.at("Global.save_model_dir"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latest.pdparams").write_text("weights")
        record: dict[str, Any] = {
            "dictionary": {"classes": 6906},
            "parameters": {"all": 1234},
            "global_step": 3,
        }
        (folder / "run.json").write_text(json.dumps(record))
        frames = {mode: {"most_frames": {"of": 40}} for mode in ("Train", "Eval")}
        (folder / "preflight.json").write_text(json.dumps(frames))
        lines = [{"kind": "train", "loss": loss} for loss in (9.0, 8.0, 7.0)]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"kind": "eval"}])))
        log.write_text("evaluated: 4\nskipped: 0\n")

    monkeypatch.setattr(official_runs, "command", stand_in)
    return called


def test_each_config_is_trained_and_evaluated_once(tmp_path: Path, commands: list[str]) -> None:
    names = ["v6_tiny", "v6_small"]
    table = run_configs(tmp_path, Settings(), names)
    assert commands == ["train small", "train tiny", "eval tiny"]
    small, tiny = table.splitlines()[2:]
    assert f"{TINY} | 6,906 | 1,234 | 40, 40 | 3 | 9.0, 7.0 | 4 |" in tiny
    assert REFUSED in small and small.endswith(r"| line 7: Global.x: wrong. Fix: y \| z |")
    assert (tmp_path / "results.md").read_text() == f"{table}\n"
    assert not list(tmp_path.rglob("*.pdparams"))
    commands.clear()
    assert run_configs(tmp_path, Settings(), ["v6_tiny"]).splitlines()[2] == small  # the other row stays
    assert commands == ["train tiny", "eval tiny"]


def test_what_stands_in_the_table_is_not_run_again(tmp_path: Path, commands: list[str]) -> None:
    checkout, written = tmp_path / "rec", write_configs(tmp_path / "written")
    for name in (TINY, REFUSED):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        written[name].rename(checkout / name)
    settings = Settings(configs=checkout)
    assert run_configs(tmp_path, settings) and len(commands) == 3
    assert run_configs(tmp_path, settings) and len(commands) == 3
    assert run_configs(tmp_path, Settings(batch=4, configs=checkout)) and len(commands) == 6


def test_only_files_that_the_facts_know_are_taken(tmp_path: Path) -> None:
    (tmp_path / "PP-OCRv6").mkdir()
    (tmp_path / "PP-OCRv6" / "other.yml").write_text("{}")
    with raises_code(DataError, "no_configs", tmp_path):
        config_files(tmp_path)
    (tmp_path / TINY).write_text("{}")
    assert config_files(tmp_path) == {TINY: tmp_path / TINY}


def test_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    with raises_code(DataError, "no_configs", "v7"):
        run_configs(tmp_path, Settings(), ["v7"])
    assert len(stored_facts()) == 42
