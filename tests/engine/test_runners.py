"""ONNX Runtime and OpenVINO compute what the network computes, or the network does and the log says why."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import paddle
import pytest
from error_codes import raises_code
from test_compiled import HEIGHT, LOGITS, assert_equal_outputs, batch, of_case, teacher

from ppocr_ext.engine import onnx_conversion, runners
from ppocr_ext.engine.compiled import compile_network
from ppocr_ext.engine.runners import BFLOAT16, NETWORK, ONNXRUNTIME, OPENVINO, PADDLE, has_bfloat16
from ppocr_ext.errors import MissingPackageError, ModelError, PPOCRExtError
from ppocr_ext.io.file_names import CACHE_VARIABLE
from ppocr_ext.modeling import EVAL, TRAIN, BaseModel
from ppocr_ext.modeling.head_request import HeadRequest


@pytest.fixture(params=[ONNXRUNTIME, OPENVINO])
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    pytest.importorskip("paddle2onnx")
    return str(request.param)


@pytest.mark.parametrize(
    ("make", "asked", "height", "widths"),
    [
        (teacher, TRAIN, HEIGHT, (64, 200, 41)),
        (lambda: of_case("model_v4_v5_mobile_reduced"), EVAL, 48, (96, 160)),
        (lambda: of_case("model_v4_svtr_reduced"), EVAL, 48, (320, 320)),
    ],
    ids=["two heads", "v5", "one width"],
)
def test_an_engine_returns_what_the_network_returns(
    engine: str,
    make: Callable[[], BaseModel],
    asked: HeadRequest,
    height: int,
    widths: tuple[int, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = make()
    found = compile_network(network, asked, engine=engine)
    with paddle.no_grad():
        for count, width in zip((1, 7, 2), widths, strict=False):
            images, labels = batch(count, width, height)
            assert_equal_outputs(found(images, labels, asked), network(images, labels, asked))
    assert found.label == engine
    assert not [line for line in caplog.records if line.levelno > logging.INFO]


def test_openvino_computes_in_bfloat16() -> None:
    pytest.importorskip("openvino")
    if not has_bfloat16():
        pytest.skip("this processor has no instructions for bfloat16")
    network = teacher()
    found = compile_network(network, TRAIN, engine=OPENVINO, dtype=BFLOAT16)
    images, labels = batch(5, 96)
    with paddle.no_grad():
        pairs = zip(
            *(paddle.utils.flatten(each(images, labels, TRAIN)) for each in (found, network)), strict=True
        )
        errors = [float((one - other).norm() / other.norm()) for one, other in pairs]
    assert found.label == "openvino bfloat16"
    assert 1e-3 < max(errors) < 0.05


SIGNAL_AFTER_THREE = """
import signal, sys
from pathlib import Path
from ppocr_ext.engine.runners import OPENVINO, open_runner

opened = [open_runner(OPENVINO, Path(sys.argv[1]), threads=1) for _ in range(3)]
while opened:
    opened.pop(0)
signal.signal(signal.SIGINT, lambda *_: print("handled"))
signal.raise_signal(signal.SIGINT)
"""


def test_a_signal_is_handled_after_graphs_of_openvino_were_freed(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    helper = pytest.importorskip("onnx").helper
    x, y = (helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    (tmp_path / "inference.onnx").write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", SIGNAL_AFTER_THREE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "handled"), done.stderr


def test_a_graph_that_onnx_runtime_refuses_in_bfloat16_is_computed_in_float32(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pytest.importorskip(ONNXRUNTIME)
    found = compile_network(teacher(), LOGITS, engine=ONNXRUNTIME, dtype=BFLOAT16)
    assert found.label == "onnxruntime float32" and "bfloat16" in caplog.text


class Pooled(paddle.nn.Layer):
    """A backbone with a layer that paddle2onnx ends its process for."""

    def __init__(self, backbone: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = backbone

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return paddle.nn.functional.adaptive_avg_pool2d(self.inner(images), [1, 6])


def test_what_cannot_be_converted_for_any_width_is_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(ONNXRUNTIME)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    network = teacher()
    network.backbone = Pooled(network.backbone)
    caplog.set_level(logging.INFO, "ppocr_ext")
    images, labels = batch(2, 96)
    found = compile_network(network, LOGITS, name="Teacher", engine=ONNXRUNTIME)
    with paddle.no_grad():
        assert_equal_outputs(found(images, labels, LOGITS), network(images, labels, LOGITS))
    assert found.label == ONNXRUNTIME
    (said,) = (each for each in caplog.messages if "each width" in each)
    assert "Teacher" in said and "Adaptive" in said


ABORT = "import os; os.abort()"
OPERATOR = "print('[ERROR][Paddle2ONNX] [OP: pool] no such form')"
FULL = "raise OSError(28, 'No space left on device')"


@pytest.mark.parametrize(
    ("code", "kind", "fact"),
    [
        (f"{OPERATOR}; {ABORT}", ModelError, "no such form"),
        (ABORT, ModelError, "printed nothing"),
        (f"{OPERATOR}; raise SystemExit", ModelError, "no such form"),
        (FULL, ModelError, "No space left"),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})", ModelError, "signal 9"),
        ("import no_such_library", MissingPackageError, "no_such_library"),
    ],
)
def test_a_converter_that_fails_is_an_error_with_its_reason(
    code: str, kind: type[Exception], fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_conversion, "_CODE", code)
    with pytest.raises(PPOCRExtError) as raised:
        onnx_conversion.convert_graph(tmp_path, tmp_path / "inference.onnx", tmp_path)
    assert type(raised.value) is kind and fact in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [FULL, ABORT])
def test_what_cannot_be_converted_is_computed_by_the_network_and_tried_at_the_next_start(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(ONNXRUNTIME)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    network = teacher()
    with monkeypatch.context() as patch:
        patch.setattr(onnx_conversion, "_CODE", code)
        found = compile_network(network, LOGITS, engine=ONNXRUNTIME)
        found.prepare((3, HEIGHT, 64))
        assert found.label == NETWORK
    assert list((tmp_path / "engines").iterdir()) == []
    again = compile_network(network, LOGITS, engine=ONNXRUNTIME)
    again.prepare((3, HEIGHT, 64))
    assert again.label == ONNXRUNTIME


def test_an_engine_that_is_not_installed_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runners, "find_spec", lambda name: None)
    assert runners.other_engines("float32") == []
    for engine, extra in ((OPENVINO, "ppocr-ext[openvino]"), (ONNXRUNTIME, "ppocr-ext[onnx]")):
        with raises_code(MissingPackageError, "missing_package", engine, "paddle2onnx", extra):
            compile_network(teacher(), LOGITS, engine=engine)
    assert compile_network(teacher(), LOGITS, engine="auto").engine == PADDLE
