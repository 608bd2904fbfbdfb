"""A network that is trained, compiled for each evaluation: it has the weights of then, and leaves no files."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from test_compiled import LOGITS, batch, of_case

from ppocr_ext.engine import request_graph
from ppocr_ext.engine.changing_network import ChangingNetwork
from ppocr_ext.engine.runners import NETWORK, PADDLE
from ppocr_ext.io.file_names import CACHE_VARIABLE
from ppocr_ext.modeling import EVAL
from ppocr_ext.modeling.base_model import BaseModel


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What was traced; the cache folder and the temporary files of the test are in its own folder."""
    made, original = [], request_graph._Traced

    def trace(*args: Any) -> Any:
        made.append(original(*args))
        return made[-1]

    monkeypatch.setattr(request_graph, "_Traced", trace)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return made


def take_step(network: BaseModel, seed: int) -> None:
    """Change parameters and statistics, each by a fifth of its size or more."""
    rng = np.random.default_rng(seed)
    network.train()
    with paddle.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                change = 1 + rng.uniform(-0.3, 0.3, tensor.shape)
                tensor.set_value(tensor * paddle.to_tensor(change.astype(np.float32)))
    network.eval()


@pytest.mark.parametrize(
    ("name", "height", "widths", "graphs"),
    [
        ("model_v4_v5_mobile_reduced", 48, (96, 160), 1),
        ("model_v4_svtr_reduced", 48, (320, 320), 2),  # tried at any width, then at one
    ],
)
def test_each_evaluation_has_the_weights_of_then_and_only_the_first_is_traced(
    name: str, height: int, widths: tuple[int, int], graphs: int, traced: list[Any], tmp_path: Path
) -> None:
    network = of_case(name)
    engine, before = ChangingNetwork(network, LOGITS, name), None
    for evaluation in range(2):
        paddle.seed(evaluation)
        drawn = paddle.rand([1]).item()
        paddle.seed(evaluation)
        state = {key: value.numpy().copy() for key, value in network.state_dict().items()}
        for count, width in zip((1, 3), widths, strict=True):
            images, _ = batch(count, width, height)
            with paddle.no_grad():
                expected = network(images, None, LOGITS)
            found, size = engine(images, None, LOGITS), float(expected.abs().max())
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=2e-5 * size)
        assert paddle.rand([1]).item() == drawn
        assert before is None or np.abs(expected.numpy() - before).max() > 0.01 * size
        before = expected.numpy()
        for key, value in network.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), state[key], err_msg=key)
        engine.train()
        take_step(network, evaluation)
    assert engine.engine == PADDLE and len(traced) == graphs and list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_stop_the_compiling_for_one_evaluation(traced: list[Any]) -> None:
    network = of_case("model_v4_v5_mobile_reduced")
    engine, weight = ChangingNetwork(network, EVAL, "the model"), network.parameters()[0]
    images, _ = batch(2, 96, 48)
    engine(images)
    good = weight.clone()
    for value, expected in ((good * float("nan"), NETWORK), (good, PADDLE)):
        engine.train()
        weight.set_value(value)
        with paddle.no_grad():
            right = network(images).numpy()
        np.testing.assert_allclose(engine(images).numpy(), right, atol=1e-4)
        assert engine.engine == expected


def test_without_a_graph_the_network_evaluates_and_one_line_says_so(
    traced: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> None:
        raise OSError("No space left on device")

    caplog.set_level(logging.WARNING, "ppocr_ext")
    network = of_case("model_v4_v5_mobile_reduced")
    engine = ChangingNetwork(network, EVAL, "the model")
    images, _ = batch(2, 96, 48)
    engine(images)
    engine.train()
    take_step(network, 1)
    monkeypatch.setattr(paddle.jit, "save", full)
    for _ in range(2):
        with paddle.no_grad():
            expected = network(images)
        assert engine(images).equal_all(expected).item()
        engine.train()
    assert engine.engine == NETWORK and caplog.text.count("No space left") == 1
