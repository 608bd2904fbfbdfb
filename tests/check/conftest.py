"""Configs in which nothing is wrong, to be spoilt one key at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from official_facts import Check, official, with_data

from ppocr_ext.check import check_config
from ppocr_ext.config import Config
from ppocr_ext.host import Host, open_host
from ppocr_ext.issues import Issue


@pytest.fixture(scope="session")
def host() -> Host:
    return open_host()


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Warnings of ours, whatever another test has made of the loggers."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("ppocr_ext")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logging.root.manager, "disable", 0)
    before = logger.level
    logger.setLevel(logging.WARNING)  # which also forgets what the logger knew to be enabled
    yield said
    logger.setLevel(before)


@pytest.fixture
def check(host: Host) -> Check:
    """Return a function that gives the issues of a config, or of plain dicts."""

    def issues_of(config: Config | dict[str, Any], role: str = "train") -> list[Issue]:
        return check_config(config if isinstance(config, Config) else Config(config), host, role)

    return issues_of


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dictionary, lists, and weights of a teacher (all but the dictionary without content)."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "dict.txt").write_text("0\n1\n2\n")
    for name in ("train.txt", "val.txt", "teacher.pdparams"):
        (folder / name).write_text("")
    return folder


@pytest.fixture
def one(data: Path) -> Config:
    """An SVTRv2 on its own."""
    return Config(with_data(official("SVTRv2/ch_SVTRv2_rec"), data))


@pytest.fixture
def two(data: Path) -> Config:
    """A RepSVTR that is taught by an SVTRv2."""
    config = with_data(official("SVTRv2/ch_SVTRv2_rec_distillation"), data)
    config["Architecture"]["Models"]["Teacher"]["pretrained"] = str(data / "teacher")
    return Config(config)
