"""What files of a released model say, and what is wrong with them, before anything of a model runs."""

import pickle

import numpy as np
import onnx
import paddle
import pytest
from error_codes import raises_code
from onnx import TensorProto, helper
from released import DETECTOR, describe, save_layer

from ppocr_ext.errors import CharsetError, DataError, WeightsError
from ppocr_ext.inference.released import find_released
from ppocr_ext.io.protobuf import MAX_FIELDS, fields


def onnx_file(file, metadata=(), external=None, constant=False, branch=False):
    """An ONNX file of one product; its weights may be the value of a node, or in a branch of an `If`."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [3, 5], np.zeros(15))
    if external is not None:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=external)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    graph = helper.make_graph(nodes, "g", [], [], [] if constant else [tensor])
    if branch:
        graph = helper.make_graph(
            [helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)], "g", [], []
        )
    model = helper.make_model(graph)
    helper.set_model_props(model, dict(metadata))
    file.write_bytes(model.SerializeToString())
    return file


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of two tensors, as Paddle writes them."""
    if not hasattr(paddle.inference.Config, "enable_new_ir"):
        pytest.skip("models are exported with Paddle 3")
    return save_layer(paddle.nn.Linear(3, 5), [None, 3], tmp_path_factory.mktemp("paddle")).read_bytes()


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
    file = folder / "inference.yml"
    file.write_bytes(file.read_bytes().replace(b"'", b""))  # digits without quotes too
    model = find_released(folder)
    assert (model.name, model.image_shape, model.color) == ("my_rec", (3, 32, 100), "RGB")
    assert model.characters == ("0", "~", "null", "y", "é")
    assert sorted(model.digests) == ["inference.json", "inference.pdiparams"]


def test_what_is_no_released_model(folder, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best_accuracy.pdparams").touch()
    ours = onnx_file(tmp_path / "ours.onnx", {"character": "a", "width_policy": "{}"})
    for value in ("nowhere", "inference.yml", "run", ours):
        assert find_released(tmp_path / value) is None
    (folder / "model.json").touch()
    assert find_released(folder) is None and find_released(folder / "inference.json") is None


@pytest.mark.parametrize(("name", "more"), [("inference.pdiparams", bytes(4)), ("a.onnx", b"\x0b")])
def test_files_that_are_cut_short_or_of_another_kind(folder, tmp_path, name, more):
    file = tmp_path / name
    whole = file.read_bytes() if file.exists() else onnx_file(file).read_bytes()
    other = (b"garbage " * 9, b"\xff" * 40, pickle.dumps({"a": [1] * 100}))
    for content in (whole[:-1], whole[:-3], whole[:20], b"", whole + more, *other):
        file.write_bytes(content)
        with raises_code(WeightsError, "damaged_file", file):
            find_released(file)


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("location", ["../weights.bin", "weights.bin", "/etc/passwd"])
def test_weights_outside_an_onnx_file_are_refused(tmp_path, location, constant, branch):
    file = onnx_file(tmp_path / "a.onnx", external=location, constant=constant, branch=branch)
    with raises_code(WeightsError, "external_data", file):
        find_released(file)


def test_empty_fields_without_end_are_refused(folder, tmp_path):
    nodes = b"\x0a\x00" * (MAX_FIELDS + 1)
    descriptions = bytes(16) + b"\x02\x00\x00\x00\x08\x05" + bytes(4)  # a tensor of one number
    for name, content in (
        ("a.onnx", b"\x3a\x82\xb5\x18" + nodes),
        ("b.onnx", b"\x72\x00" * MAX_FIELDS + b"\x3a\x00"),
        ("inference.pdiparams", descriptions * MAX_FIELDS),
        ("inference.pdiparams", descriptions[:16] + b"\x82\xb5\x18\x00" + nodes),
    ):
        (tmp_path / name).write_bytes(content)
        with raises_code(WeightsError, "damaged_file", name):
            find_released(tmp_path / name)


def test_the_folder_of_a_run_is_a_run_whatever_else_lies_in_it(tmp_path):
    file = onnx_file(tmp_path / "a.onnx")
    (tmp_path / "config.yml").touch()
    assert find_released(tmp_path).graph == file
    (tmp_path / "latest.pdparams").touch()
    assert find_released(tmp_path) is None and find_released(file).graph == file


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


def test_nested_aliases_and_configs_of_a_training_are_called_what_they_are(folder, tmp_path):
    lists = ["a0: &a0 [x, x]", *(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]" for n in range(40))]
    steps = "PreProcess: {transform_ops: [{DecodeImage: {img_mode: COLOR}}]}"
    post = "PostProcess: {name: DECODER}\nGlobal: {model_name: MODEL}"
    for word in ("COLOR", "DECODER", "MODEL"):
        content = "\n".join((*lists, steps, post)).replace(word, "*a40")
        (folder / "inference.yml").write_text(content)
        with raises_code(DataError, "bad_content", "expected a text"):
            find_released(folder)
    (folder / "inference.yml").write_text("Architecture: {Backbone: {name: PPLCNetV4}}\nGlobal: {}\n")
    with raises_code(DataError, "bad_content", "the config of a training"):
        find_released(folder)


def test_a_dictionary_that_is_given_takes_precedence(folder):
    model = find_released(folder, "ppocr/utils/dict/ppocrv5_en_dict.txt")  # ships with ppocr-ext
    assert len(model.characters) == 436
    with raises_code(CharsetError, "unreadable_file", "none.txt"):
        find_released(folder, "none.txt")


def test_fields_of_protobuf():
    message = onnx.StringStringEntryProto(key="k" * 200, value="é").SerializeToString()
    assert list(fields(memoryview(message))) == [(1, b"k" * 200), (2, "é".encode())]
    numbers = onnx.TensorShapeProto.Dimension(dim_value=18_385).SerializeToString()
    assert list(fields(memoryview(numbers))) == [(1, 18_385)]
