"""What files of a released model say, and what is wrong with them, before anything of a model runs."""

import pickle

import numpy as np
import onnx
import paddle
import pytest
from error_codes import raises_code
from onnx import TensorProto, helper
from released import DETECTOR, describe

from ppocr_ext.errors import CharsetError, DataError, WeightsError
from ppocr_ext.inference.released import find_released
from ppocr_ext.io.protobuf import fields


def onnx_file(file, metadata=(), external=None, constant=False):
    """An ONNX file of one product, whose weights are the value of a node if `constant` is true."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [3, 5], np.zeros(15))
    if external is not None:
        tensor.ClearField("float_data")
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", external
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, dict(metadata))
    file.write_bytes(model.SerializeToString())
    return file


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of two tensors, as Paddle writes them."""
    if not hasattr(paddle.inference.Config, "enable_new_ir"):
        pytest.skip("models are exported with Paddle 3")
    prefix = tmp_path_factory.mktemp("paddle") / "inference"
    spec = [paddle.static.InputSpec([None, 3], "float32", name="x")]
    layer = paddle.jit.to_static(paddle.nn.Linear(3, 5), input_spec=spec, full_graph=True)
    paddle.jit.save(layer, str(prefix))
    return prefix.with_suffix(".pdiparams").read_bytes()


@pytest.fixture
def folder(weights, tmp_path):
    (tmp_path / "inference.json").write_text("{}")
    (tmp_path / "inference.pdiparams").write_bytes(weights)
    describe(tmp_path, "ab~0")
    return tmp_path


def test_what_an_onnx_file_says(tmp_path):
    file = onnx_file(tmp_path / "a.onnx", {"character": "a\n \nb", "other": "x"})
    model = find_released(file)
    assert (model.form, model.graph, model.weights, model.characters) == ("onnx", file, None, ("a", " ", "b"))
    assert (model.name, model.is_known, model.image_shape, model.color) == (None, False, (3, 48, 320), "BGR")
    assert model.charset(4).characters == ("a", " ", "b")
    assert model.charset(5).characters == ("a", " ", "b", " ")
    with raises_code(CharsetError, "class_count", file, 6, 3):
        model.charset(6)
    before = model.digest
    onnx_file(file, {"character": "a\n \nc"})
    assert find_released(file).digest != before == model.digest


def test_what_a_description_says(folder):
    describe(folder, ["0", "~", "null", "y", "é"], shape=(3, 32, 100), color="RGB", name="my_rec")
    text = (
        (folder / "inference.yml").read_text(encoding="utf-8").replace("'", "")
    )  # digits without quotes too
    (folder / "inference.yml").write_text(text, encoding="utf-8")
    model = find_released(folder)
    assert (model.name, model.image_shape, model.color) == ("my_rec", (3, 32, 100), "RGB")
    assert model.characters == ("0", "~", "null", "y", "é")
    assert sorted(model.digests) == ["inference.json", "inference.pdiparams"]


def test_what_is_no_released_model(folder, tmp_path):
    assert find_released(tmp_path / "nowhere") is None
    assert find_released(tmp_path / "inference.yml") is None
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best_accuracy.pdparams").touch()
    assert find_released(tmp_path / "run") is None
    ours = onnx_file(tmp_path / "run" / "ours.onnx", {"character": "a", "width_policy": "{}"})
    assert find_released(ours) is None
    (folder / "model.json").touch()
    assert find_released(folder) is None and find_released(folder / "inference.json") is None


@pytest.mark.parametrize(
    "content",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[:20],
        lambda whole: b"",
        lambda whole: whole + b"\0" * 4,
        lambda whole: pickle.dumps({"a": [1] * 100}),
        lambda whole: b"not weights " * 9,
    ],
)
def test_weights_that_are_cut_short_or_of_another_kind(folder, content):
    file = folder / "inference.pdiparams"
    file.write_bytes(content(file.read_bytes()))
    with raises_code(WeightsError, "damaged_file", file):
        find_released(folder)


def test_onnx_files_that_are_cut_short_or_of_another_kind(tmp_path):
    file = onnx_file(tmp_path / "a.onnx")
    whole = file.read_bytes()
    for content in (whole[:-3], b"", b"garbage" * 9, b"\xff" * 40, pickle.dumps([1])):
        file.write_bytes(content)
        with raises_code(WeightsError, "damaged_file", file):
            find_released(file)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("location", ["../weights.bin", "weights.bin", "/etc/passwd"])
def test_weights_outside_an_onnx_file_are_refused(tmp_path, location, constant):
    file = onnx_file(tmp_path / "a.onnx", external=location, constant=constant)
    with raises_code(WeightsError, "external_data", file):
        find_released(file)


def test_several_models_and_missing_files_are_named(folder):
    (folder / "inference.pdmodel").touch()
    with raises_code(WeightsError, "several_models", "inference.json", "inference.pdmodel"):
        find_released(folder)
    assert find_released(folder / "inference.json").graph.name == "inference.json"
    (folder / "inference.pdmodel").unlink()
    (folder / "inference.json").rename(folder / "other.json")
    for value in (folder, folder / "inference.pdiparams"):
        with raises_code(WeightsError, "missing_file", folder / "inference.pdiparams"):
            find_released(value)
    (folder / "inference.pdiparams").unlink()
    (folder / "other.json").rename(folder / "inference.json")
    with raises_code(WeightsError, "missing_file", folder / "inference.pdiparams"):
        find_released(folder)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (DETECTOR, "not_a_recogniser"),
        ({"color": "GRAY"}, "unsupported_preprocessing"),
        ({"shape": (1, 32, 100)}, "unsupported_preprocessing"),
        ({"shape": (3, 32)}, "unsupported_preprocessing"),
        ({"PreProcess": {"transform_ops": [{"Resize": None}]}}, "unsupported_preprocessing"),
        ({"PreProcess": {"transform_ops": ["Resize"]}}, "bad_content"),
        ({"PreProcess": None}, "bad_content"),
        ({"PostProcess": {"name": "CTCLabelDecode", "character_dict": "dict.txt"}}, "bad_content"),
    ],
)
def test_descriptions_of_other_models(folder, changes, code):
    file = describe(folder, "ab", **changes)
    with raises_code(DataError, code, file):
        find_released(folder)


def test_a_description_that_is_no_yaml(folder):
    for content in (
        b"a: [",
        b"\xff\xfe",
        b"[" * 5000,
        b"- a",
        b"",
        b"!!python/object/apply:os.system [echo]",
    ):
        (folder / "inference.yml").write_bytes(content)
        with raises_code(DataError, "bad_content", folder / "inference.yml"):
            find_released(folder)


def test_a_dictionary_that_is_given_takes_precedence(folder):
    model = find_released(folder, "ppocr/utils/dict/ppocrv5_en_dict.txt")  # ships with ppocr-ext
    assert len(model.characters) == 436
    with raises_code(CharsetError, "unreadable_file", "none.txt"):
        find_released(folder, "none.txt")


def test_fields_of_protobuf(tmp_path):
    message = onnx.StringStringEntryProto(key="k" * 200, value="é").SerializeToString()
    assert {number: bytes(value).decode() for number, value in fields(memoryview(message))} == {
        1: "k" * 200,
        2: "é",
    }
    numbers = onnx.TensorShapeProto.Dimension(dim_value=18_385).SerializeToString()
    assert list(fields(memoryview(numbers))) == [(1, 18_385)]
