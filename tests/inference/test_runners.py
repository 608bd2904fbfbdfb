"""ONNX Runtime and OpenVINO compute what the network computes, or the network does and the log says why."""

import logging
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from test_compiled import HEIGHT, LOGITS, assert_equal_outputs, batch, count_written, of_case, teacher

from ppocr_ext.config.global_keys import BFLOAT16, NETWORK, ONNXRUNTIME, OPENVINO, PADDLE
from ppocr_ext.errors import MissingPackageError, ModelError, PPOCRExtError
from ppocr_ext.inference import compiled, formats, runners
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import ONNX, has_bfloat16
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.modeling import EVAL, TRAIN, BaseModel

RESHAPE = {"name": "SequenceEncoder", "encoder_type": "reshape"}


def require(engine):
    """Skip a test where the engine is not installed, or the converter, which has no wheel for Python 3.13."""
    pytest.importorskip(engine)
    pytest.importorskip("paddle2onnx")


@pytest.fixture(params=[ONNXRUNTIME, OPENVINO])
def engine(request):
    require(request.param)
    return str(request.param)


@pytest.mark.parametrize(
    ("make", "asked", "height", "widths"),
    [
        (teacher, TRAIN, HEIGHT, (64, 200, 41)),
        (lambda: of_case("model_v4_svtr_reduced"), EVAL, 48, (320, 320)),
    ],
    ids=["two heads", "one width"],
)
def test_an_engine_returns_what_the_network_returns(engine, make, asked, height, widths, caplog):
    network = make()
    found = CompiledNetwork(network, asked, engine=engine)
    with paddle.no_grad():
        for count, width in zip((1, 7, 2), widths, strict=False):
            images, labels = batch(count, width, height)
            assert_equal_outputs(found(images, labels, asked), network(images, labels, asked))
    assert found.label == engine
    assert not [line for line in caplog.records if line.levelno > logging.INFO]


def test_openvino_computes_in_bfloat16():
    require(OPENVINO)
    if not has_bfloat16():
        pytest.skip("this processor has no instructions for bfloat16")
    network = teacher()
    found = CompiledNetwork(network, TRAIN, engine=OPENVINO, dtype=BFLOAT16)
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
from ppocr_ext.config.global_keys import OPENVINO
from ppocr_ext.inference.runners import open_runner

opened = [open_runner('openvino', Path(sys.argv[1]), threads=1) for _ in range(3)]
while opened:
    opened.pop(0)
signal.signal(signal.SIGINT, lambda *_: print("handled"))
signal.raise_signal(signal.SIGINT)
"""


def test_a_signal_is_handled_after_graphs_of_openvino_were_freed(tmp_path):
    require(OPENVINO)
    helper = pytest.importorskip("onnx").helper
    x, y = (helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    (tmp_path / "inference.onnx").write_bytes(model.SerializeToString())
    command = [sys.executable, "-c", SIGNAL_AFTER_THREE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "handled"), done.stderr


def test_a_graph_that_onnx_runtime_refuses_in_bfloat16_is_computed_in_float32(caplog):
    require(ONNXRUNTIME)
    found = CompiledNetwork(teacher(), LOGITS, engine=ONNXRUNTIME, dtype=BFLOAT16)
    assert found.label == "onnxruntime float32" and "bfloat16" in caplog.text


@pytest.mark.parametrize(("frames", "widths"), [(6, [96, 48]), ("width", [None])])
def test_a_network_that_pools_to_a_number_of_frames_gets_a_graph_for_each_width(
    frames, widths, tmp_path, monkeypatch
):
    """ONNX has no adaptive pooling of images of any width."""
    require(ONNXRUNTIME)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    paddle.seed(1)
    backbone = {"name": "PPLCNetV3", "scale": 0.25, "conv_kxk_num": 1, "train_frames": frames}
    head = {"name": "CTCHead", "out_channels": 5}
    network = BaseModel({"Backbone": backbone, "Neck": RESHAPE, "Head": head})
    network.head.fc.weight.set_value(network.head.fc.weight * 1e-4)  # untrained, its logits go up to 60,000
    network.eval()
    written = count_written(monkeypatch)
    asked = replace(LOGITS, for_training=True)
    found = CompiledNetwork(network, asked, engine=ONNXRUNTIME)
    with paddle.no_grad():
        for width in (96, 48):
            images, _ = batch(2, width, 48)
            assert_equal_outputs(found(images, None, asked), network(images, None, asked))
    assert found.label == ONNXRUNTIME and [each[2][2] for each in written] == widths


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
def test_a_converter_that_fails_is_an_error_with_its_reason(code, kind, fact, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_CODE", code)
    with pytest.raises(PPOCRExtError) as raised:
        formats.convert_graph(tmp_path)
    assert type(raised.value) is kind and fact in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_converted_is_computed_by_the_network_and_tried_at_the_next_start(
    tmp_path, monkeypatch
):
    require(ONNXRUNTIME)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    network = teacher()
    with monkeypatch.context() as patch:
        patch.setattr(formats, "_CODE", ABORT)
        found = CompiledNetwork(network, LOGITS, engine=ONNXRUNTIME)
        found.prepare((3, HEIGHT, 64))
        assert found.label == NETWORK
    assert list((tmp_path / "engines").iterdir()) == []
    again = CompiledNetwork(network, LOGITS, engine=ONNXRUNTIME)
    again.prepare((3, HEIGHT, 64))
    assert again.label == ONNXRUNTIME


def test_an_engine_that_is_not_installed_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(runners, "find_spec", lambda name: None)
    assert runners.other_engines("float32") == []
    for engine, extra in ((OPENVINO, "ppocr-ext[openvino]"), (ONNXRUNTIME, "ppocr-ext[onnx]")):
        with raises_code(MissingPackageError, "missing_package", engine, "paddle2onnx", extra):
            CompiledNetwork(teacher(), LOGITS, engine=engine)
    assert CompiledNetwork(teacher(), LOGITS, engine="auto").engine == PADDLE


Plant = Callable[..., None]


@pytest.fixture(scope="module")
def network():
    return teacher()


@pytest.fixture(scope="module")
def cache(network, tmp_path_factory):
    """A cache folder that has Paddle's graph."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        CompiledNetwork(network, LOGITS).prepare((3, HEIGHT, 64))
    return folder


@pytest.fixture
def plant(cache, tmp_path, monkeypatch):
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
def test_openvino_is_taken_if_its_packages_are_installed(network, plant, missing, monkeypatch):
    plant()
    monkeypatch.setattr(runners, "find_spec", lambda name: None if name == missing else name)
    found = started(network)
    assert_right(found, network)
    assert found.label == (PADDLE if missing else OPENVINO)


def test_a_failure_leaves_the_work_to_the_network_with_one_line_and_no_file(network, plant, tmp_path, caplog):
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


def test_an_engine_that_fails_on_a_batch_is_not_asked_again(network, plant, monkeypatch, caplog):
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


def test_a_damaged_file_of_an_engine_is_made_again(network, plant, tmp_path):
    plant()
    started(network)
    (file,) = tmp_path.rglob(ONNX)
    file.write_bytes(b"damaged")
    assert started(network).label == OPENVINO
    assert file.read_bytes() == b""
