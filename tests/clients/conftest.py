"""What the tests of the clients share: their folder, the two students, and the table of results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from client_environments import build, isolation
from client_models import ROOT, Student, student
from client_results import Results


@pytest.fixture(scope="session")
def folder() -> Path:
    found = Path(os.environ.get("PPOCR_EXT_CLIENTS") or ROOT / "output" / "clients").resolve()
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture(scope="session")
def environment(folder: Path) -> Callable[[str], Path]:
    """Build an environment and return its `bin`."""
    return cache(lambda name: build(name, folder))


@pytest.fixture(scope="session")
def student_of(folder: Path) -> Callable[[str], Student]:
    """Return the student of a width policy."""
    return cache(lambda kind: student(kind, folder))


@pytest.fixture(scope="session")
def results(folder: Path) -> Iterator[Results]:
    """Collect rows, and write them to results.md and to the terminal."""
    found = Results()
    yield found
    text = f"{found.table()}\nEach client ran {isolation()}.\n"
    (folder / "results.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")
