"""Every network of the docs survives a round trip: exported, read back, filled into a new network, trained."""

import numpy as np
import onnx
import paddle
import pytest
from error_codes import raises_code
from onnx import helper, numpy_helper
from paddle import nn
from released import randomise, shipped_network, write_network

from ppocr_ext.errors import WeightsError
from ppocr_ext.inference.comparison import text_inputs
from ppocr_ext.inference.formats import convert_graph
from ppocr_ext.inference.graph_units import read_units
from ppocr_ext.inference.runners import open_onnxruntime
from ppocr_ext.modeling.restore import fill, match_units

WIDTH = 96
LARGE = ("pp-ocr/v4_server", "pp-ocr/v5_server", "pp-ocr/v6_medium", "svtrv2/teacher", "svtrv2/student")
SMALL = (
    *(f"pp-ocr/{name}" for name in ("v2_mobile", "v3_mobile", "v4_mobile", "v6_tiny", "v6_small")),
    "lines/student",
)
NETWORKS = [*SMALL, *(pytest.param(name, marks=pytest.mark.e2e) for name in LARGE)]


def logs(layer, images):
    layer.eval()
    with paddle.no_grad():
        return np.log(layer(paddle.to_tensor(images)).numpy() + 1e-9)


def restored(name, files, shape):
    """Return a new network with the weights of the files, and the names of the entries that were filled."""
    other, _ = shipped_network(name)
    randomise(other, 2)
    match = match_units(other, read_units(*files), shape)
    assert match.problem == ""
    return other, set(fill(match.pairs))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_read_back_from_paddle_and_onnx(name, tmp_path):
    exported, shape = write_network(name, tmp_path, WIDTH)  # with branches and BatchNorms
    convert_graph(tmp_path)
    images = text_inputs((2, *shape))
    expected = logs(exported, images)
    for files in (
        (tmp_path / "inference.json", tmp_path / "inference.pdiparams"),
        (tmp_path / "inference.onnx", None),
    ):
        other, filled = restored(name, files, shape)
        np.testing.assert_allclose(logs(other, images), expected, atol=1e-4)
        left = {entry.rpartition(".")[0] for entry in other.state_dict() if entry not in filled}
        assert left <= {"backbone.last_conv", "backbone.fc"}  # no output depends on them
    other.train()
    logits = other(paddle.to_tensor(images))
    logits = logits["ctc"] if isinstance(logits, dict) else logits
    paddle.nn.functional.log_softmax(logits)[:, :, 1].sum().backward()
    gradients = {n: p.grad for n, p in other.named_parameters() if not p.stop_gradient}
    assert [n for n, gradient in gradients.items() if gradient is None] == []
    still = [n for n, gradient in gradients.items() if not gradient.any()]
    assert len(still) < len(gradients) / 10, still  # a gate may be closed by chance


def test_a_graph_of_another_network_names_the_first_layer(tmp_path):
    write_network("lines/student", tmp_path, WIDTH)
    units = read_units(tmp_path / "inference.json", tmp_path / "inference.pdiparams")
    other, _ = shipped_network("svtrv2/student")
    assert match_units(other, units, (3, 48, WIDTH)).problem.startswith(
        "backbone.features.0.0: expected conv [48"
    )
    same, _ = shipped_network("lines/student")
    assert "nothing more" in match_units(same, units[:-1], (3, 48, WIDTH)).problem
    assert "no layer for linear" in match_units(same, [*units, units[-1]], (3, 48, WIDTH)).problem


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    write_network("lines/student", tmp_path, WIDTH)
    other, truncated = tmp_path / "other", tmp_path / "truncated.pdiparams"
    write_network("lines/teacher", other, WIDTH)
    truncated.write_bytes((tmp_path / "inference.pdiparams").read_bytes()[:-8])
    for file in (other / "inference.pdiparams", truncated):
        with raises_code(WeightsError, "damaged_file"):
            read_units(tmp_path / "inference.json", file)


def small_graph(file, steps):
    """Write an ONNX graph: a convolution with a bias, then the steps, each an operator and its weights."""
    draw = np.random.default_rng(5)
    weights = {"kernel": draw.normal(size=(4, 3, 3, 3)), "bias": draw.normal(size=4)}
    nodes = [helper.make_node("Conv", ["x", "kernel", "bias"], ["y0"])]
    for number, (operator, arrays) in enumerate(steps):
        names = [f"w{number}_{each}" for each in range(len(arrays))]
        weights |= dict(zip(names, arrays, strict=True))
        nodes.append(helper.make_node(operator, [f"y{number}", *names], [f"y{number + 1}"]))
    floats = {name: np.asarray(array, np.float32) for name, array in weights.items()}
    images = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    output = helper.make_tensor_value_info(f"y{len(steps)}", onnx.TensorProto.FLOAT, [1, 4, 6, 6])
    tensors = [numpy_helper.from_array(array, name) for name, array in floats.items()]
    graph = helper.make_graph(nodes, "small", [images], [output], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


NORM = ("BatchNormalization", ([1.5, 0.5, 2, 1], [0.1, 0, -1, 0.3], [1, -2, 0, 0.5], [1, 2, 0.5, 1]))


@pytest.mark.parametrize(
    ("steps", "bias"), [([NORM], False), ([NORM], None), ([("Mul", ([2.0],)), ("Add", ([3.0],)), NORM], None)]
)
def test_biases_affines_and_norms_keep_their_order(tmp_path, steps, bias):
    file = small_graph(tmp_path / "small.onnx", steps)
    layers = nn.Sequential(nn.Conv2D(3, 4, 3, bias_attr=bias), nn.BatchNorm2D(4))
    match = match_units(layers, read_units(file, None), (3, 8, 8))
    assert match.problem == ""
    fill(match.pairs)
    images = np.random.default_rng(6).normal(size=(1, 3, 8, 8)).astype(np.float32)
    (expected,) = open_onnxruntime([file])({"x": images})
    np.testing.assert_allclose(layers(paddle.to_tensor(images)).numpy(), expected, atol=1e-5)


CONCAT = [("Concat", [f"c{number}"] * 2, f"c{number + 1}", {"axis": 0}) for number in range(40)]


@pytest.mark.parametrize(
    ("steps", "shapes"),
    [(CONCAT, {"c0": [1]}), ([("Add", ["a", "b"], "c40", {})], {"a": [20_000, 1], "b": [1, 20_000]})],
    ids=["concat", "add"],
)
def test_constants_larger_than_weights_can_be_are_not_computed(tmp_path, steps, shapes):
    nodes = [helper.make_node(kind, inputs, [output], **options) for kind, inputs, output, options in steps]
    nodes.append(helper.make_node("MatMul", ["x", "c40"], ["y"]))
    tensors = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
    file = tmp_path / "hostile.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [], [], tensors)), str(file))
    with raises_code(WeightsError, "damaged_file", "larger than weights can be"):
        read_units(file, None)


def test_texts_in_a_graph_are_left_alone(tmp_path):
    """NumPy would take the memory of the longest text for each."""
    text = onnx.TensorProto(name="t", data_type=onnx.TensorProto.STRING, dims=[50_000])
    text.string_data.extend([b"a" * 50_000, *[b""] * 49_999])
    nodes = [
        helper.make_node("Constant", [], ["s"], value_strings=list(text.string_data)),
        helper.make_node("Concat", ["s", "t"], ["y"], axis=0),
    ]
    file = tmp_path / "texts.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [], [], [text])), str(file))
    assert read_units(file, None) == []


def test_layers_of_other_shapes_or_without_a_bias_do_not_fit(tmp_path):
    units = read_units(small_graph(tmp_path / "small.onnx", []), None)
    for other in (nn.Conv2D(3, 3, 3), nn.Conv2D(3, 4, 3, bias_attr=False), nn.Linear(8, 36)):
        assert match_units(nn.Sequential(other), units, (3, 8, 8)).problem != ""
