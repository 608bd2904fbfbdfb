"""Good tiny runs, in which faults are planted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from planted import Place
from tiny_runs import captchas, tiny_config

from ppocr_ext.loop.session import train

sys.path.append(str(Path(__file__).parents[1] / "loop"))  # tests/loop/faults.py plants bad values

__all__ = ["captchas"]


@pytest.fixture(scope="session")
def finished(captchas: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return a function that trains once, for one epoch."""
    folders: list[Path] = []

    def folder() -> Path:
        if not folders:
            made = tmp_path_factory.mktemp("finished")
            outcome = train(tiny_config(captchas, made, "student", **{"Global.epoch_num": 1}))
            assert outcome.status == "finished"
            folders.append(made / "run")
        return folders[0]

    return folder


@pytest.fixture
def place(captchas: Path, tmp_path: Path, finished: Callable[[], Path]) -> Iterator[Place]:
    """A folder of its own, and what faults are planted in."""

    def trained() -> Path:
        return Path(shutil.copytree(finished(), tmp_path / "run"))

    config: Any = partial(tiny_config, captchas, tmp_path)
    yield Place(tmp_path, captchas, config, trained)
