"""`Recognizer` and `predict` read a model that somebody released, from its files alone, as its clients read it."""

import importlib
import subprocess
import sys
from dataclasses import replace

import cv2
import numpy as np
import onnx
import paddle
import pytest
from error_codes import raises_code
from onnx import numpy_helper
from released import describe, onnx_release, paddle_release, real_release, save_layer
from saved_runs import network_of
from waiting import HANG

from ppocr_ext import Recognizer
from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.errors import CharsetError, ConfigError, WeightsError
from ppocr_ext.inference import released
from ppocr_ext.inference.released import find_released, released_packages
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.io.resources import file_digest
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.recognition.opening import RecognizerParts

CHARACTERS = tuple("0123456789")  # of the exported run, which has no space
SHAPE = (3, 32, 128)
DICTIONARY = "\n".join(CHARACTERS)


@pytest.fixture(scope="module")
def lines():
    """Narrow and wide noise."""
    rng = np.random.default_rng(4)
    return [rng.integers(0, 256, (32, width, 3), np.uint8) for width in (40, 128, 129, 200, 333)]


@pytest.fixture(scope="module")
def read_by_network(run, lines):
    network, charset = network_of(load(run / "config.yml"))

    def read(kind="widen", color="BGR"):
        policy = WidthPolicy(kind, SHAPE, color)
        return texts(Recognizer(RecognizerParts(NetworkEngine(network), policy, charset)), lines)

    return read


def texts(recognizer, images):
    return [each.text for each in recognizer.read(images)]


@pytest.fixture
def folder(exported, tmp_path):
    path = paddle_release(exported, tmp_path / "released")
    describe(path, CHARACTERS, name="my_rec")
    return path


def test_a_folder_of_paddle_and_its_files_read_what_the_network_reads(folder, lines, read_by_network):
    expected = read_by_network()
    assert len({*expected, *read_by_network("squash")}) > 6
    for source in (folder, folder / "inference", folder / "inference.json", folder / "inference.pdiparams"):
        recognizer = Recognizer(source, trust_model=True)
        assert (recognizer.engine, texts(recognizer, lines)) == ("paddle", expected)
    assert "my_rec" in recognizer.origin and "inference.yml" in recognizer.origin


def test_an_onnx_file_takes_its_dictionary_from_three_places(exported, lines, tmp_path, read_by_network):
    expected = read_by_network()
    file = onnx_release(exported, tmp_path / "a" / "some.onnx")
    with raises_code(CharsetError, "missing_dictionary", file, "--dict"):
        Recognizer(file, trust_model=True)
    (tmp_path / "dict.txt").write_text(DICTIONARY + "\n", encoding="utf-8")
    # Without inference.yml, images are 48 high and 320 wide; the graph says 32.
    found = Recognizer(file, trust_model=True, dictionary=tmp_path / "dict.txt")
    assert found.policy == WidthPolicy("widen", (3, 32, 320), "BGR", 3200)
    described = describe(file.parent, CHARACTERS)
    assert texts(Recognizer(file, trust_model=True), lines) == expected
    described.rename(file.parent / "some.yml")
    assert texts(Recognizer(file.parent, trust_model=True), lines) == expected
    onnx_release(exported, file, {"character": DICTIONARY})
    assert texts(Recognizer(file, trust_model=True), lines) == expected


def test_a_space_is_added_for_one_class_more_as_the_clients_do(exported, folder, lines, tmp_path):
    describe(folder, CHARACTERS[:-1])
    recognizer = Recognizer(folder, trust_model=True)
    assert recognizer.charset.characters == (*CHARACTERS[:-1], " ")
    assert any(" " in text for text in texts(recognizer, lines))
    for wrong in (CHARACTERS[:-2], (*CHARACTERS, "a")):
        describe(folder, wrong)
        with raises_code(CharsetError, "class_count", 11, len(wrong)):
            Recognizer(folder, trust_model=True)


def test_channels_are_in_the_order_that_the_description_says(folder, read_by_network, lines):
    for color in ("RGB", None):  # without DecodeImage, the client reads RGB
        describe(folder, CHARACTERS, color=color)
        assert texts(Recognizer(folder, trust_model=True), lines) == read_by_network(color="RGB")


@pytest.fixture
def onnx_of(exported, tmp_path):
    """Write an ONNX file that has its dictionary; a function may change its graph."""
    return lambda change=None: onnx_release(
        exported, tmp_path / "some.onnx", {"character": DICTIONARY}, change
    )


class OneConv(paddle.nn.Layer):
    """A frame for each eight columns; Paddle 3 cannot write the run's network in the old form."""

    def __init__(self):
        super().__init__()
        self.conv = paddle.nn.Conv2D(3, 11, (32, 8), stride=(32, 8))

    def forward(self, images):
        return paddle.nn.functional.softmax(self.conv(images).squeeze(2).transpose([0, 2, 1]) * 9)


def test_an_old_graph_is_read_too(lines, tmp_path):
    paddle.seed(3)
    network = OneConv()
    network.eval()
    with paddle.pir_utils.OldIrGuard():
        save_layer(network, [None, 3, 32, None], tmp_path)
    assert (tmp_path / "inference.pdmodel").is_file()
    describe(tmp_path, CHARACTERS)
    parts = RecognizerParts(NetworkEngine(network), WidthPolicy("widen", SHAPE), Charset(CHARACTERS))
    expected = texts(Recognizer(parts), lines)
    assert len(set(expected)) == len(lines)
    for source in (tmp_path, tmp_path / "inference"):
        assert texts(Recognizer(source, trust_model=True), lines) == expected


def test_a_graph_of_one_width_gets_images_of_this_width(onnx_of, lines, read_by_network):
    def fix(place, size):
        return onnx_of(
            lambda graph: setattr(graph.input[0].type.tensor_type.shape.dim[place], "dim_value", size)
        )

    recognizer = Recognizer(fix(3, 128), trust_model=True)
    assert recognizer.policy == WidthPolicy("pad", SHAPE, "BGR", None)
    assert texts(recognizer, lines) == read_by_network("pad")
    with raises_code(WeightsError, "not_a_recogniser", "some.onnx"):
        Recognizer(fix(0, 1), trust_model=True)  # a batch of one


def test_int8_weights_are_read(onnx_of, lines, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization", reason="quantises a model for this test")
    small = str(tmp_path / "int8.onnx")
    quantization.quantize_dynamic(str(onnx_of()), small, weight_type=quantization.QuantType.QUInt8)
    assert any(tensor.data_type in (2, 3) for tensor in onnx.load(small).graph.initializer)
    found = Recognizer(small, trust_model=True).read(lines)
    assert all(each.error is None for each in found) and len({each.text for each in found}) > 2


def test_only_a_known_model_runs_without_trust(folder, lines, monkeypatch):
    with raises_code(WeightsError, "unknown_model", folder, "--trust-model"):
        Recognizer(folder)
    digests = {file.name: file_digest(file) for file in folder.glob("inference.*") if file.suffix != ".yml"}
    row = replace(released_packages()[0], name="my_rec", sha256=digests)
    monkeypatch.setattr(released, "released_packages", lambda: (row,))
    recognizer = Recognizer(folder)
    assert row.label in recognizer.origin and texts(recognizer, lines)
    for ending in ("json", "pdiparams"):  # the digest decides, not the name
        (folder.parent / f"renamed.{ending}").hardlink_to(folder / f"inference.{ending}")
    assert find_released(folder.parent).is_known
    describe(folder, CHARACTERS, name="other_rec")
    with raises_code(WeightsError, "other_model", "other_rec", "my_rec"):
        Recognizer(folder)
    describe(folder, CHARACTERS)
    with (folder / "inference.pdiparams").open("ab") as stream:
        stream.write((folder / "inference.pdiparams").read_bytes())  # whole tensors still
    with raises_code(WeightsError, "unknown_model", folder):
        Recognizer(folder)


def test_models_of_other_kinds_and_weights_of_other_graphs_are_refused(folder, tmp_path):
    weights = save_layer(paddle.nn.Sequential(paddle.nn.Conv2D(3, 1, 3)), [None, 3, 32, None], tmp_path)
    with raises_code(WeightsError, "not_a_recogniser", tmp_path):
        Recognizer(tmp_path / "inference", trust_model=True)
    (folder / "inference.pdiparams").write_bytes(weights.read_bytes())  # fewer tensors than the graph has
    with raises_code(WeightsError, "damaged_file", folder):
        Recognizer(folder, trust_model=True)


def test_nan_in_the_weights_is_an_error_and_no_empty_text(onnx_of, lines):
    def spoil(graph):
        for tensor in (node.attribute[0].t for node in graph.node if node.op_type == "Constant"):
            values = numpy_helper.to_array(tensor)
            if values.dtype == np.float32 and values.ndim > 1:
                tensor.CopyFrom(numpy_helper.from_array(values * np.float32("nan"), tensor.name))

    with raises_code(WeightsError, "not_finite"):
        Recognizer(onnx_of(spoil), trust_model=True).read(lines)


def test_a_name_finds_the_cache_of_the_client_and_installed_packages(
    exported, onnx_of, lines, tmp_path, monkeypatch
):
    monkeypatch.setenv(released.CLIENT_CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    for name in ("PP-OCRv5_server_rec", "PP-OCRv3_mobile_rec"):  # official; the second one is in a package
        with raises_code(WeightsError, "missing_file", name):
            Recognizer(name)
    cached = paddle_release(exported, tmp_path / "cache" / "official_models" / "PP-OCRv5_server_rec")
    describe(cached, CHARACTERS)
    assert texts(Recognizer("PP-OCRv5_server_rec", trust_model=True), lines)
    package = tmp_path / "site" / "rapidocr_onnxruntime"
    (package / "models").mkdir(parents=True)
    file = onnx_of().rename(package / "models" / "ch_PP-OCRv3_rec_infer.onnx")
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    importlib.invalidate_caches()
    with raises_code(WeightsError, "unknown_model", file):  # not the file that we know
        Recognizer("PP-OCRv3_mobile_rec")
    assert "PP-OCRv3_mobile_rec" in Recognizer("PP-OCRv3_mobile_rec", trust_model=True).origin


def test_options_that_a_released_model_does_not_take(folder, run, exported):
    for options in ({"options": ["a=1"]}, {"device": "gpu"}, {"old_dictionary": "dict.txt"}):
        with raises_code(ConfigError, "unsupported_option", folder):
            Recognizer(folder, trust_model=True, **options)
    with raises_code(ConfigError, "unsupported_engine"):
        Recognizer(folder, trust_model=True, engine="onnx")
    for source in (run, exported):
        with raises_code(ConfigError, "unsupported_option", source):
            Recognizer(source, dictionary="dict.txt")


def test_the_command_says_first_what_it_reads_with(folder, images, tmp_path, capsys):
    (tmp_path / "dict.txt").write_text("\n".join("abcdefghij"), encoding="utf-8")
    command = ["predict", str(folder), str(images[0]), "--trust-model"]
    assert main([*command, "--dict", str(tmp_path / "dict.txt")]) == 0
    out, err = capsys.readouterr()
    facts = ("my_rec", str(folder), "dict.txt", "BGR", "32 x 128", "inference.yml")
    assert all(fact in err.splitlines()[0] for fact in facts)
    assert set(out.splitlines()[1].split("\t")[1]) <= set("abcdefghij")


def test_a_released_onnx_file_needs_no_paddle(onnx_of, images):
    program = f"""
import sys
from ppocr_ext.cli.main import main
code = main(["predict", {str(onnx_of())!r}, {str(images[0])!r}, "--trust-model"])
assert not {{"paddle", "ppocr", "paddleocr", "onnx"}} & sys.modules.keys()
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("row", released_packages(), ids=lambda row: f"{row.package}-{row.version}")
def test_a_real_model_reads_a_drawn_line(row):
    model = real_release(row.name, row.package)
    assert model.is_known and model.source == row.label
    image = np.full((48, 260, 3), 255, np.uint8)
    cv2.putText(image, "2468 ABC", (12, 36), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (0, 0, 0), 2)
    (reading,) = Recognizer(model).read([image])
    assert "".join(reading.text.split()) == "2468ABC" and reading.confidence > 0.8


def test_real_detectors_beside_a_real_recogniser_are_refused():
    folder = real_release("PP-OCRv6_small_rec", "rapidocr").graph.parent
    others = [file for file in folder.glob("*.onnx") if "_rec_" not in file.name]
    assert others
    for file in others:
        with raises_code(WeightsError, "not_a_recogniser", file):
            Recognizer(file, trust_model=True)
