"""Another engine than Paddle is taken if it is installed, equal and faster; that is measured once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from test_compiled import HEIGHT, LOGITS, batch, teacher

from ppocr_ext.engine import choice, compiled, graph_maker
from ppocr_ext.engine.compiled import CompiledNetwork, compile_network
from ppocr_ext.engine.runners import BFLOAT16, FLOAT32, ONNX, PADDLE
from ppocr_ext.errors import ModelError
from ppocr_ext.io.file_names import CACHE_VARIABLE
from ppocr_ext.modeling import BaseModel

OTHER = "openvino"  # planted: Paddle computes in its place
FASTER, SLOWER = {PADDLE: 1.0, OTHER: 0.94}, {PADDLE: 1.0, OTHER: 0.96}


@pytest.fixture(scope="module")
def network() -> BaseModel:
    return teacher()


@pytest.fixture(scope="module")
def cache(network: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that has Paddle's graph."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        compile_network(network, LOGITS).prepare((3, HEIGHT, 64))
    return folder


@pytest.fixture
def timed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The engines of each measurement; every run is long enough for one."""
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(choice, "WORTH", 0.0)
    return []


@pytest.fixture
def plant(timed: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install another engine, with the seconds of each engine, and what is added to its outputs."""

    original = graph_maker.open_runner

    def planted(seconds: Mapping[str, float], wrong: float = 0.0, version: str = "1") -> None:
        def open_runner(engine: str, folder: Path, **options: Any) -> Any:
            if engine == OTHER and (folder / ONNX).read_bytes():
                raise ValueError("damaged")
            runner = original(PADDLE, folder, **options)
            added = wrong if engine == OTHER else 0.0
            return lambda inputs: [output + added for output in runner(inputs)]

        def measure(graphs: Mapping[str, Any], *_: Any, rounds: int) -> dict[str, float]:
            timed.append(list(graphs))
            return {engine: seconds[engine] for engine in graphs}

        for module in (choice, graph_maker):
            monkeypatch.setattr(module, "other_engines", lambda dtype: {OTHER: version})
        monkeypatch.setattr(graph_maker, "convert_graph", lambda folder, target, place: target.touch())
        monkeypatch.setattr(graph_maker, "open_runner", open_runner)
        monkeypatch.setattr(choice, "_seconds", measure)

    return planted


def engine_of(network: BaseModel, dtype: str = FLOAT32, **options: Any) -> CompiledNetwork:
    found = compile_network(network, LOGITS, dtype=dtype, **{"engine": "auto", "images": 1000, **options})
    found.prepare((3, HEIGHT, 64))
    return found


@pytest.mark.parametrize(
    ("seconds", "wrong", "expected"),
    [(FASTER, 0.0, OTHER), (SLOWER, 0.0, PADDLE), (FASTER, 1.0, PADDLE)],
    ids=["faster", "hardly faster", "unlike"],
)
def test_the_faster_engine_is_taken_if_it_is_equal(
    network: BaseModel, plant: Callable[..., None], seconds: dict[str, float], wrong: float, expected: str
) -> None:
    plant(seconds, wrong)
    found = engine_of(network)
    images, labels = batch(3, 64)
    with paddle.no_grad():
        right = network(images, labels, LOGITS)[1].numpy()
    np.testing.assert_allclose(found(images, labels, LOGITS)[1].numpy(), right, atol=1e-4)
    assert found.label == expected


def test_a_choice_is_kept_for_its_threads_type_and_packages(
    network: BaseModel,
    plant: Callable[..., None],
    timed: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "has_bfloat16", lambda: True)
    monkeypatch.setattr(graph_maker, "BFLOAT16_TOLERANCE", 1.0)
    plant(FASTER)
    assert engine_of(network).label == OTHER and timed.pop() == [PADDLE, OTHER]
    plant(SLOWER)
    timed.clear()
    assert engine_of(network).label == OTHER and timed == []
    for options in ({"threads": 3}, {"dtype": BFLOAT16}):
        assert engine_of(network, **options).engine == PADDLE and timed.pop() == [PADDLE, OTHER]
    plant(SLOWER, version="2")
    timed.clear()
    assert engine_of(network).label == PADDLE and timed.pop() == [PADDLE, OTHER]
    timed.clear()
    assert engine_of(network).label == PADDLE and timed == []


def test_engines_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(choice, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    class Graph:
        def __init__(self, name: str, seconds: float) -> None:
            self.name, self.seconds = name, seconds

        def run(self, *_: Any) -> None:
            passes.append(self.name)
            clock[0] += self.seconds

    graphs: Any = {"slow": Graph("slow", 0.03), "fast": Graph("fast", 0.0)}
    found = choice._seconds(graphs, np.zeros(1), None, rounds=2)
    assert found == pytest.approx({"slow": 0.03, "fast": 0.0})
    assert passes == ["slow", "fast"] * 3


def test_an_engine_that_fails_when_it_is_timed_is_left_out(
    network: BaseModel, plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(FASTER)
    measure = choice._seconds

    def fail(graphs: Mapping[str, Any], *args: Any, **options: Any) -> dict[str, float]:
        if OTHER in graphs:
            raise RuntimeError("planted")
        return measure(graphs, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(choice, "_seconds", fail)
        assert engine_of(network).label == PADDLE
    assert engine_of(network).label == OTHER  # it was not for good


def test_a_choice_is_kept_where_there_are_no_links(
    network: BaseModel, plant: Callable[..., None], timed: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise OSError("no links")

    monkeypatch.setattr(choice.os, "link", refuse)
    plant(FASTER)
    assert engine_of(network).label == OTHER
    timed.clear()
    assert engine_of(network).label == OTHER and timed == []


def test_a_kept_choice_that_fails_leaves_the_work_to_paddle(
    network: BaseModel,
    plant: Callable[..., None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(FASTER)
    engine_of(network)

    def fail(*args: Any) -> None:
        raise ModelError("planted", code="not_converted")

    for file in tmp_path.rglob(ONNX):
        file.unlink()
    monkeypatch.setattr(graph_maker, "convert_graph", fail)
    assert engine_of(network).label == PADDLE
    assert "planted" in caplog.text


def _never(*args: Any) -> None:
    raise AssertionError("Paddle's graph is made again")


def test_a_damaged_file_of_an_engine_is_made_again(
    network: BaseModel, plant: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(FASTER)
    engine_of(network)
    (file,) = tmp_path.rglob(ONNX)
    file.write_bytes(b"damaged")
    monkeypatch.setattr(graph_maker, "write_request_graph", _never)
    assert engine_of(network).label == OTHER
    assert file.read_bytes() == b""


def test_an_engine_that_cannot_be_imported_leaves_what_is_kept(
    network: BaseModel, plant: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(FASTER)
    engine_of(network)
    kept = sorted(tmp_path.rglob("*"))
    opened = graph_maker.open_runner

    def open_runner(engine: str, folder: Path, **options: Any) -> Any:
        if engine == OTHER:
            raise ImportError("planted")
        return opened(engine, folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(graph_maker, "open_runner", open_runner)
        patch.setattr(graph_maker, "write_request_graph", _never)
        assert engine_of(network).label == PADDLE
    assert sorted(tmp_path.rglob("*")) == kept
    assert engine_of(network).label == OTHER


def test_where_no_file_can_be_added_to_a_graph_it_is_converted_elsewhere(
    network: BaseModel, plant: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(FASTER)

    def convert(folder: Path, target: Path, place: Path) -> None:
        if target.is_relative_to(tmp_path / "engines"):
            raise PermissionError(13, "planted")
        target.touch()

    opened, (graph,) = graph_maker.open_runner, (tmp_path / "engines").iterdir()

    def open_runner(engine: str, folder: Path, **options: Any) -> Any:
        assert engine == PADDLE or ((folder / ONNX).exists() and folder != graph)
        return opened(PADDLE, graph, **options)

    monkeypatch.setattr(graph_maker, "convert_graph", convert)
    monkeypatch.setattr(graph_maker, "open_runner", open_runner)
    assert engine_of(network).label == OTHER
    assert not list(tmp_path.rglob(ONNX))


@pytest.mark.parametrize("text", ["{", "[]", '{"engine": "another"}'])
def test_a_damaged_choice_is_replaced(
    text: str, network: BaseModel, plant: Callable[..., None], timed: list[list[str]], tmp_path: Path
) -> None:
    plant(FASTER)
    engine_of(network)
    (file,) = tmp_path.rglob("choice-*")
    file.write_text(text)
    for engines in ([[PADDLE], [PADDLE, OTHER]], []):
        timed.clear()
        assert engine_of(network).label == OTHER and timed == engines


def test_nothing_is_tried_in_a_short_run(
    network: BaseModel, plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(FASTER)
    monkeypatch.setattr(choice, "WORTH", 300.0)  # a second for 30 images is planted
    assert engine_of(network, images=600).label == PADDLE
    assert engine_of(network, images=10_000_000).label == OTHER
    assert engine_of(network, images=600).label == OTHER  # what is known costs nothing


@pytest.mark.parametrize(
    ("asked", "installed", "expected"),
    [
        ("auto", True, f"{OTHER} {BFLOAT16}"),
        ("auto", False, f"{PADDLE} {FLOAT32}"),
        (PADDLE, True, f"{PADDLE} {FLOAT32}"),
    ],
)
def test_another_engines_bfloat16_is_taken_where_paddles_is_unlike(
    asked: str,
    installed: bool,
    expected: str,
    network: BaseModel,
    plant: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(SLOWER)
    opened = graph_maker.open_runner

    def open_runner(engine: str, folder: Path, *, dtype: str, **options: Any) -> Any:
        runner = opened(engine, folder, dtype=FLOAT32, **options)
        added = 9.0 if (engine, dtype) == (PADDLE, BFLOAT16) else 0.0
        return lambda inputs: [output + added for output in runner(inputs)]

    monkeypatch.setattr(graph_maker, "open_runner", open_runner)
    monkeypatch.setattr(compiled, "has_bfloat16", lambda: True)
    monkeypatch.setattr(compiled, "other_engines", lambda dtype: {OTHER: "1"} if installed else {})
    for _ in range(2):  # at the second start, by what was kept
        assert engine_of(network, engine=asked, dtype=BFLOAT16).label == expected
