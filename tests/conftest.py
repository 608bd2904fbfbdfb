"""Shared by all tests: `from parity import …` works from every test folder."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tools"))  # last: its scripts hide nobody's modules

# As a run does on a processor of AMD, before any product: else what a test computes in this process, after others have
# computed, differs in its last digits from the same in a process of its own.
if "AuthenticAMD" in (info.read_text(errors="replace") if (info := Path("/proc/cpuinfo")).is_file() else ""):
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")

# The processes of pytest-xdist get it from readline in the first one: what is printed would be wrapped at it.
os.environ.pop("COLUMNS", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads its options
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite in a process for each core and one more, at most four, since some tests wait for others.

    `pytest FILE` and `pytest -n 0` take one.
    """
    option = config.option
    undecided = getattr(option, "numprocesses", 0) is None and not hasattr(config, "workerinput")
    shared = "clients" in wanted(config)  # they build and train in one folder
    if undecided and not shared and not option.file_or_dir and not option.usepdb:
        option.numprocesses, option.dist = min(4, 1 + len(os.sched_getaffinity(0))), "worksteal"


NEED_A_NETWORK = ("clients", "fresh")


def wanted(config: pytest.Config) -> set[str]:
    """Return the marks of tests that need a network and that `-m` names."""
    return {mark for mark in NEED_A_NETWORK if mark in config.option.markexpr.replace(f"not {mark}", "")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that need a network out, unless `-m` names them."""
    unwanted = [mark for mark in NEED_A_NETWORK if mark not in wanted(config)]
    left_out = [item for item in items if any(map(item.get_closest_marker, unwanted))]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True, scope="module")
def few_objects_to_collect() -> None:
    """Leave what exists before a module's tests out of each collection of garbage.

    The package collects once for each font that it reads, and a long session has millions of objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def gradients_stay_on() -> Iterator[None]:
    """Fail a test that leaves Paddle's gradients switched off: nothing would be trained in the tests after it."""
    yield
    if "paddle" in sys.modules and not (paddle := sys.modules["paddle"]).is_grad_enabled():
        paddle.set_grad_enabled(True).__enter__()
        pytest.fail("gradients are left switched off")


@pytest.fixture(autouse=True, scope="session")
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled networks and downloads out of the user's cache folder, in this process and its children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PPOCR_EXT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def no_released_models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find no released model on this machine but those that a test puts there."""
    from ppocr_ext.inference import released

    monkeypatch.setattr(released, "released_packages", lambda: ())
    monkeypatch.setenv(released.CLIENT_CACHE, str(tmp_path_factory.mktemp("paddlex")))
