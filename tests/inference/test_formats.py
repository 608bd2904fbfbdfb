"""Engines give the network's probabilities, from several threads too, and say what is wrong with a file."""

import numpy as np
import onnx
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near
from onnx import TensorProto, helper

from ppocr_ext.errors import MissingPackageError, WeightsError
from ppocr_ext.inference import runners
from ppocr_ext.inference.formats import ExportedEngine
from ppocr_ext.inference.runners import GRAPH, WEIGHTS, NetworkEngine


class Columns(paddle.nn.Layer):
    """A recogniser of four classes, a frame for each eight columns; its outputs differ in train and eval mode."""

    def __init__(self):
        super().__init__()
        self.fc = paddle.nn.Linear(3 * 16 * 8, 4)

    def forward(self, images):
        if self.training:
            raise AssertionError("in train mode")
        frames = images.transpose([0, 3, 1, 2]).reshape([0, -1, 8 * 3 * 16])
        return paddle.nn.functional.softmax(self.fc(frames), axis=-1)


@pytest.fixture(scope="module")
def network():
    paddle.seed(1)
    layer = Columns()
    layer.train()
    return layer


@pytest.fixture(scope="module")
def folder(network, tmp_path_factory):
    """The network as Paddle and as ONNX, the latter written by hand."""
    if not hasattr(paddle.inference.Config, "enable_new_ir"):
        pytest.skip("models are exported with Paddle 3")
    path = tmp_path_factory.mktemp("model")
    network.eval()
    spec = [paddle.static.InputSpec([None, 3, 16, None], "float32", name="x")]
    static = paddle.jit.to_static(Columns(), input_spec=spec, full_graph=True)
    static.set_state_dict(network.state_dict())
    static.eval()
    paddle.jit.save(static, str(path / "inference"))
    write_onnx(path / "inference.onnx", network)
    return path


def write_onnx(file, network, metadata=None):
    weight, bias = (p.numpy() for p in (network.fc.weight, network.fc.bias))
    constants = [
        helper.make_tensor("shape", TensorProto.INT64, [3], [0, -1, 8 * 3 * 16]),
        helper.make_tensor("weight", TensorProto.FLOAT, weight.shape, weight.ravel()),
        helper.make_tensor("bias", TensorProto.FLOAT, bias.shape, bias),
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("MatMul", ["r", "weight"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"], axis=-1),
    ]
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 16, "w"])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [images], [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {"character": "a\nb\nc"})
    onnx.save(model, str(file))


def all_engines(network, folder):
    return [
        NetworkEngine(network),
        ExportedEngine("paddle", folder, way="inference.json, no oneDNN"),
        ExportedEngine("paddle", folder, threads=1),
        ExportedEngine("onnx", folder / "inference.onnx", threads=1),
    ]


def test_all_give_the_same_at_any_batch_and_width(network, folder):
    first, *others = all_engines(network, folder)
    assert [engine.name for engine in (first, *others)] == ["network", "paddle", "paddle", "onnx"]
    for shape in ((1, 3, 16, 64), (5, 3, 16, 24)):
        images = np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)
        expected = first.probabilities(images)
        assert expected.shape == (shape[0], shape[3] // 8, 4) and expected.dtype == np.float32
        assert np.allclose(expected.sum(axis=2), 1)
        for engine in others:
            assert_near(engine.probabilities(images), expected)


def test_a_network_that_returns_its_features_too_is_read_by_its_probabilities(network):
    class Wrapped(paddle.nn.Layer):
        def __init__(self, form):
            super().__init__()
            self.network, self.form = network, form

        def forward(self, images):
            out = self.network(images)
            return {"tuple": (images, out), "dict": {"head_out": out, "backbone_out": images}}[self.form]

    images = np.zeros((1, 3, 16, 64), np.float32)
    expected = NetworkEngine(network).probabilities(images)
    for form in ("tuple", "dict"):
        assert np.array_equal(NetworkEngine(Wrapped(form)).probabilities(images), expected)


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS])
def test_a_missing_or_damaged_paddle_file_is_named(folder, tmp_path, name):
    for file in (GRAPH, WEIGHTS):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    (tmp_path / name).write_bytes(b"garbage")
    with raises_code(WeightsError, "damaged_file", tmp_path):
        ExportedEngine("paddle", tmp_path)
    (tmp_path / name).unlink()
    with raises_code(WeightsError, "missing_file", tmp_path / name):
        ExportedEngine("paddle", tmp_path)


@pytest.mark.parametrize("content", [b"", b"garbage" * 20, None])
def test_a_damaged_onnx_file_is_named(folder, tmp_path, content):
    file = tmp_path / "a.onnx"
    file.write_bytes((folder / "inference.onnx").read_bytes()[:-50] if content is None else content)
    with raises_code(WeightsError, "damaged_file", file):
        ExportedEngine("onnx", file)
    with raises_code(WeightsError, "missing_file", "b.onnx"):
        ExportedEngine("onnx", tmp_path / "b.onnx")


def test_an_onnx_file_of_another_kind_is_refused(tmp_path):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 3, "w"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    file = tmp_path / "other.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    with raises_code(WeightsError, "not_a_recogniser", file):
        ExportedEngine("onnx", file)


def test_a_missing_package_is_named_with_its_extra(folder, monkeypatch):
    monkeypatch.setattr(runners, "find_spec", lambda name: None)
    with raises_code(MissingPackageError, "missing_package", "onnxruntime", "ppocr-ext[onnx]"):
        ExportedEngine("onnx", folder / "inference.onnx")
    with raises_code(MissingPackageError, "missing_package", "paddle", "ppocr-ext[cpu]"):
        ExportedEngine("paddle", folder)
