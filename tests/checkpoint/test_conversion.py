"""A released inference model in place of weights: found, converted once, compared, loaded, recorded."""

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from onnx import numpy_helper
from released import (
    CHARACTERS,
    describe,
    onnx_release,
    paddle_release,
    real_release,
    shipped_network,
    write_network,
)

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.conversion import conversion_of
from ppocr_ext.checkpoint.weight_sources import ReleasedSource, find_source
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.errors import WeightsError
from ppocr_ext.inference import released
from ppocr_ext.inference.comparison import text_inputs
from ppocr_ext.inference.formats import convert_graph
from ppocr_ext.inference.released import find_released
from ppocr_ext.io.resources import CACHE_VARIABLE, find_config
from ppocr_ext.run.host_config import complete

SHAPE = (3, 48, 320)
NAME = "PP-OCRv6_tiny_rec"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Graph and weights of a network of PP-OCRv6 tiny with random weights, and the network."""
    folder = tmp_path_factory.mktemp("tiny")
    network, _ = write_network("pp-ocr/v6_tiny", folder, 320)
    convert_graph(folder)
    return folder, network


@pytest.fixture
def folder(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = paddle_release(tiny[0], tmp_path / "released")
    describe(path, CHARACTERS, shape=SHAPE, name=NAME)
    return path


def tensors(graph):
    """The weights of an ONNX graph, which paddle2onnx writes as nodes."""
    nodes = [node.attribute[0].t for node in graph.node if node.op_type == "Constant"]
    return [*graph.initializer, *nodes]


def same(network, other):
    images = paddle.to_tensor(text_inputs((2, *SHAPE)))
    other.eval()
    with paddle.no_grad():
        np.testing.assert_allclose(other(images).numpy(), network(images).numpy(), atol=1e-5)


def test_a_folder_and_an_onnx_file_load_as_weights(folder, tiny, tmp_path):
    file = onnx_release(tiny[0], tmp_path / "tiny.onnx", {"character": "\n".join(CHARACTERS)})
    describe(tmp_path, CHARACTERS, shape=SHAPE, name=NAME)
    for value in (folder, folder / "inference.pdiparams", file):
        source = find_source(str(value))
        assert isinstance(source, ReleasedSource) and source.charset().characters == CHARACTERS
        network, _ = shipped_network("pp-ocr/v6_tiny")
        match = load_weights(network, value, charset=Charset(CHARACTERS), old_charset=source.charset())
        assert not match.mismatches()
        same(tiny[1], network)
        written = source.fetch().stat().st_mtime_ns
        assert find_source(str(value)).fetch().stat().st_mtime_ns == written  # not converted again


def test_its_own_dictionary_carries_the_classes_over(folder, tiny):
    other = Charset(CHARACTERS[::-1])
    network, _ = shipped_network("pp-ocr/v6_tiny")
    load_weights(network, folder, charset=other, old_charset=find_source(str(folder)).charset())
    images = paddle.to_tensor(text_inputs((1, *SHAPE)))
    network.eval()
    expected = tiny[1](images).numpy()
    np.testing.assert_allclose(network(images).numpy()[..., [0, *range(19, 0, -1)]], expected, atol=1e-5)


@pytest.mark.e2e
def test_the_network_is_found_without_a_name(folder):
    describe(folder, CHARACTERS, shape=SHAPE)
    assert conversion_of(find_released(folder)).config == "pp-ocr/v6_tiny.yml"


def test_another_network_than_the_name_says_is_named_by_its_first_layer(folder):
    describe(folder, CHARACTERS, shape=SHAPE, name="PP-OCRv6_small_rec")
    with raises_code(WeightsError, "other_network", "backbone.conv1.stem1.0", "conv [48, 3, 3, 3]"):
        conversion_of(find_released(folder))


def test_a_trusted_model_must_compute_what_the_network_computes(folder, tiny, tmp_path):
    def swish(graph):  # the weights fit, the activation does not
        for node in graph.node:
            if node.op_type == "HardSigmoid":
                node.attribute[0].f = 0.3

    describe(tmp_path, CHARACTERS, shape=SHAPE, name=NAME)
    model = find_released(onnx_release(tiny[0], tmp_path / "other.onnx", change=swish))
    for _ in range(2):  # also of weights that are converted already
        assert "not compared" in ReleasedSource("other.onnx", model).line
    for trusted in (True, False):  # the comparison is remembered
        with raises_code(WeightsError, "other_network", "difference"):
            conversion_of(model, trusted=trusted)


def test_convert_names_the_key_of_the_network_and_so_does_an_error(folder, tmp_path, capsys):
    out = tmp_path / "tiny.pdparams"
    assert main(["weights", "convert", str(folder), "--out", str(out), "--trust-model"]) == 0
    said = capsys.readouterr().out
    assert f"{out}: " in said and "Architecture.fused: true" in said and "not compared" not in said
    assert "not compared" not in find_source(str(folder)).line
    network, _ = shipped_network("pp-ocr/v6_tiny", fused=False)
    with raises_code(WeightsError, "weights_mismatch", "fused: true in the file, false in the model"):
        load_weights(network, out, charset=Charset(CHARACTERS))


def test_float16_is_converted_and_int8_or_nan_is_refused(folder, tiny, tmp_path):
    def with_kernels(function):
        def change(graph):
            for each in tensors(graph):
                array = numpy_helper.to_array(each)
                if array.dtype == np.float32 and array.ndim == 4:
                    each.CopyFrom(numpy_helper.from_array(function(array), each.name))

        return onnx_release(tiny[0], tmp_path / "other.onnx", change=change)

    describe(tmp_path, CHARACTERS, shape=SHAPE, name=NAME)
    half = with_kernels(lambda array: array.astype(np.float16))
    made = conversion_of(find_released(half))
    assert made.classes == 20
    weights = Checkpoint(made.file).weights()
    assert {each.dtype for each in weights.values()} == {np.dtype("float32")}
    for function, code in (
        (lambda array: array.astype(np.int8), "quantized_weights"),
        (lambda array: array * np.float32("nan"), "nonfinite_weights"),
    ):
        with raises_code(WeightsError, code):
            load_weights(shipped_network("pp-ocr/v6_tiny")[0], with_kernels(function))


def test_a_name_is_found_in_the_cache_of_the_client(folder, tmp_path, monkeypatch):
    cache = tmp_path / "paddlex" / "official_models" / NAME
    cache.parent.mkdir(parents=True)
    folder.rename(cache)
    monkeypatch.setenv(released.CLIENT_CACHE, str(tmp_path / "paddlex"))
    source = find_source(NAME)
    assert isinstance(source, ReleasedSource) and str(cache) in source.place
    assert source.record["sha256"] == source.digest


def test_a_real_model_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    made = conversion_of(
        real_release("PP-OCRv6_small_rec", "rapidocr")
    )  # its digest is known: it is compared
    assert made.classes == 18_710 and made.difference < 1e-5


@pytest.mark.parametrize(
    ("values", "fused"),
    [
        ({"Architecture.Models.Student.pretrained": "MODEL"}, [None, True]),
        ({"Global.pretrained_model": "MODEL"}, [None, True]),
        ({"Global.pretrained_model": "MODEL", "Global.checkpoints": "run/latest"}, [None, None]),
        ({"Architecture.Models.Teacher.pretrained": "MODEL"}, [True, None]),
        ({"Global.pretrained_model": ""}, [None, None]),
    ],
)
def test_a_network_with_such_weights_is_fused_unless_its_checkpoint_decides(folder, values, fused):
    none = {f"Architecture.Models.{name}.pretrained": None for name in ("Teacher", "Student")}
    given = {key: str(folder) if value == "MODEL" else value for key, value in values.items()}
    config = load([find_config("configs/pp-ocr/distill_v6_medium_to_small.yml")]).with_values(
        {**none, **given}
    )
    models = complete(config, Charset(CHARACTERS)).at("Architecture.Models")
    assert [models[name].get("fused") for name in ("Teacher", "Student")] == fused
