"""`auto` is OpenVINO where it is installed, else Paddle; what an engine cannot compute, the network computes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from test_compiled import HEIGHT, LOGITS, batch, teacher

from ppocr_ext.config.global_keys import NETWORK, OPENVINO, PADDLE
from ppocr_ext.errors import ModelError
from ppocr_ext.inference import compiled, runners
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import ONNX
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.modeling import BaseModel

Plant = Callable[..., None]


@pytest.fixture(scope="module")
def network() -> BaseModel:
    return teacher()


@pytest.fixture(scope="module")
def cache(network: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that has Paddle's graph."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        CompiledNetwork(network, LOGITS).prepare((3, HEIGHT, 64))
    return folder


@pytest.fixture
def plant(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Install OpenVINO, in whose place Paddle computes, and add a number to its outputs."""
    shutil.copytree(cache, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    original = compiled.open_runner

    def planted(wrong: float = 0.0) -> None:
        def open_runner(engine: str, folder: Path, **options: Any) -> Any:
            if engine == OPENVINO and (folder / ONNX).read_bytes():
                raise ValueError("damaged")
            runner = original(PADDLE, folder, **options)
            added = wrong if engine == OPENVINO else 0.0
            return lambda inputs: [output + added for output in runner(inputs)]

        monkeypatch.setattr(runners, "find_spec", lambda name: name)
        monkeypatch.setattr(compiled, "convert_graph", lambda folder: (folder / "inference.onnx").touch())
        monkeypatch.setattr(compiled, "open_runner", open_runner)

    return planted


def started(network: BaseModel) -> CompiledNetwork:
    found = CompiledNetwork(network, LOGITS, name="Teacher", engine="auto")
    found.prepare((3, HEIGHT, 64))
    return found


def assert_right(found: CompiledNetwork, network: BaseModel) -> None:
    images, labels = batch(3, 64)
    with paddle.no_grad():
        right = network(images, labels, LOGITS)[1].numpy()
    np.testing.assert_allclose(found(images, labels, LOGITS)[1].numpy(), right, atol=1e-4)


@pytest.mark.parametrize("missing", ["", "openvino", "paddle2onnx"])
def test_openvino_is_taken_if_its_packages_are_installed(
    network: BaseModel, plant: Plant, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant()
    monkeypatch.setattr(runners, "find_spec", lambda name: None if name == missing else name)
    found = started(network)
    assert_right(found, network)
    assert found.label == (PADDLE if missing else OPENVINO)


def test_a_failure_leaves_the_work_to_the_network_with_one_line_and_no_file(
    network: BaseModel, plant: Plant, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ppocr_ext")
    plant(wrong=1.0)
    for _ in range(2):
        caplog.clear()
        found = started(network)
        assert_right(found, network)
        assert found.label == NETWORK
        (said,) = caplog.messages
        assert "Teacher" in said and "not compiled" in said
        assert list((tmp_path / "engines").iterdir()) == []
    plant()
    assert started(network).label == OPENVINO  # nothing is remembered


def test_an_engine_that_fails_on_a_batch_is_not_asked_again(
    network: BaseModel, plant: Plant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ppocr_ext")
    plant()
    found, asked = started(network), []

    def fail(*args: Any) -> None:
        asked.append(args)
        raise RuntimeError("planted")

    monkeypatch.setattr(compiled._Graph, "run", fail)
    for _ in range(2):
        assert_right(found, network)
    assert found.label == NETWORK and len(asked) == 1
    assert [message for message in caplog.messages if "planted" in message] == caplog.messages


def test_a_damaged_file_of_an_engine_is_made_again(network: BaseModel, plant: Plant, tmp_path: Path) -> None:
    plant()
    started(network)
    (file,) = tmp_path.rglob(ONNX)
    file.write_bytes(b"damaged")
    assert started(network).label == OPENVINO
    assert file.read_bytes() == b""


def test_a_graph_that_cannot_be_converted_leaves_the_work_to_the_network(
    network: BaseModel, plant: Plant, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ppocr_ext")
    plant()

    def fail(*args: Any) -> None:
        raise ModelError("planted", code="not_converted")

    monkeypatch.setattr(compiled, "convert_graph", fail)
    assert started(network).label == NETWORK
    (said,) = caplog.messages
    assert "planted" in said
