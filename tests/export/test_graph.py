"""The exported graph computes what the network computes: once softmaxed, for every batch and width."""

import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import paddle
import pytest
from error_codes import raises_code
from networks import assert_near
from one_conv import SHAPE, recogniser_of
from tiny_runs import TINY

from ppocr_ext.errors import MissingPackageError, ModelError, PPOCRExtError
from ppocr_ext.export import exporter
from ppocr_ext.export.exporter import compare_files, export_recogniser, onnx_metadata
from ppocr_ext.export.verify import Picture
from ppocr_ext.inference import runners
from ppocr_ext.inference.formats import FORMATS, ExportedEngine, write_onnx
from ppocr_ext.inference.graph import only_width, write_reader
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.modeling import build_model
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.recognition.opening import RecognizerParts


def images(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).uniform(-1, 1, (count, 3, SHAPE[1], width)).astype(np.float32)


def softmax_of_logits(network: paddle.nn.Layer, batch: np.ndarray) -> np.ndarray:
    """Independent of what the head returns: the output of its last linear layer, in NumPy."""
    kept = []
    handle = network.head.fc.register_forward_post_hook(
        lambda layer, given, logits: kept.append(logits.numpy())
    )
    network(paddle.to_tensor(batch))
    handle.remove()
    powers = np.exp(kept[0] - kept[0].max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("form", [partial(ExportedEngine, "paddle"), partial(ExportedEngine, "onnx")])
@pytest.mark.parametrize(("count", "width"), [(1, 64), (3, 64), (2, 200), (1, 41)])
def test_probabilities_are_the_softmax_of_the_logits(exported, trained, form, count, width):
    batch = images(count, width)
    expected = softmax_of_logits(trained.network, batch)
    assert expected.max(axis=-1).mean() > 0.3  # a second softmax would show
    assert_near(form(exported.folder).probabilities(batch), expected)


def test_branches_are_folded_and_the_network_keeps_its_own(trained, exported):
    parameters = sum(int(np.prod(p.shape)) for p in trained.network.parameters())
    assert exported.description.parameters == parameters - 24 * 24 - 24
    assert hasattr(trained.network.backbone.branches, "two")


def test_features_for_center_loss_change_nothing(tmp_path, trained):
    (folder := tmp_path / "graph").mkdir()
    other = recogniser_of(tmp_path, return_feats=True)
    other.network.return_all_feats = True
    write_reader(other.network, folder, SHAPE)
    batch = images(2, 64)
    expected = softmax_of_logits(trained.network, batch)  # the same seed
    assert_near(ExportedEngine("paddle", folder).probabilities(batch), expected)


class FixedBackbone(paddle.nn.Layer):
    def __init__(self, backbone: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = backbone

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.inner(x) + paddle.zeros([1, 24, 1, 24])


class NarrowBackbone(paddle.nn.Layer):
    """Reads images of any width up to 200 pixels."""

    def __init__(self, backbone: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = backbone

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if x.shape[3] > 200:
            raise ValueError("too wide")
        return self.inner(x)


def test_a_network_with_a_greatest_width_takes_more_than_one(tmp_path):
    network = recogniser_of(tmp_path).network
    network.backbone = NarrowBackbone(network.backbone)
    assert only_width(network, (3, SHAPE[1], 192)) is None


def test_a_network_of_one_width_is_known_and_its_graph_takes_no_other(tmp_path):
    network = recogniser_of(tmp_path).network
    assert only_width(network, (3, SHAPE[1], 192)) is None
    network.backbone = FixedBackbone(network.backbone)
    # as many frames as channels: with `squeeze` in the neck, oneDNN would mix them up
    shape = (3, SHAPE[1], 192)
    assert only_width(network, shape) == 192
    assert write_reader(network, tmp_path, shape, 192).classes == len(network.head.fc.bias)
    pytest.importorskip("paddle2onnx")
    write_onnx(tmp_path, {})
    session = onnxruntime.InferenceSession(str(tmp_path / "inference.onnx"))
    assert session.get_inputs()[0].shape[2:] == [32, 192]
    batch = images(2, 192)
    expected = softmax_of_logits(network, batch)
    assert_near(ExportedEngine("paddle", tmp_path).probabilities(batch), expected)


def test_a_network_of_one_width_is_exported_for_it_without_being_asked(tmp_path):
    pytest.importorskip("paddle2onnx")
    trained = recogniser_of(tmp_path, {"image_shape": [3, SHAPE[1], 192]})
    trained.network.backbone = FixedBackbone(trained.network.backbone)
    made = export_recogniser(trained.config, trained, tmp_path / "model").description
    assert (made.width, made.policy.kind, made.policy.image_shape[2]) == (192, "pad", 192)


class SoftmaxTwice(paddle.nn.Layer):
    def __init__(self, head: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = head

    def forward(self, x: paddle.Tensor, targets: Any = None) -> paddle.Tensor:
        return paddle.nn.functional.softmax(self.inner(x), axis=-1)


def test_a_home_that_cannot_be_written_to_is_no_hindrance(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    homes, to_static = [], paddle.jit.to_static
    monkeypatch.setattr(
        paddle.jit,
        "to_static",
        lambda *args, **more: homes.append(Path.home().is_dir()) or to_static(*args, **more),
    )
    for name in ("first", "second"):  # Paddle keeps what it has converted, but not the files
        (tmp_path / name).mkdir()
        write_reader(recogniser_of(tmp_path).network, tmp_path / name, SHAPE)
        assert (tmp_path / name / "inference.json").is_file()
    assert homes == [True, True] and os.environ["HOME"] == str(tmp_path / "file")


def test_a_signal_waits_until_the_network_is_traced(tmp_path, monkeypatch):
    """Inside Paddle's C++ an exception of its handler would abort the process."""
    save, saved = paddle.jit.save, []

    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        save(*args)
        saved.append(True)

    monkeypatch.setattr(paddle.jit, "save", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        write_reader(recogniser_of(tmp_path).network, tmp_path, SHAPE)
    assert saved and (tmp_path / "inference.json").is_file()
    assert signal.getsignal(signal.SIGINT) == before


def test_a_head_that_applies_the_softmax_twice_is_refused(tmp_path):
    network = recogniser_of(tmp_path).network
    network.head = SoftmaxTwice(network.head)
    network.eval()
    with raises_code(ModelError, "unsupported_output"):
        write_reader(network, tmp_path, SHAPE)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    network = recogniser_of(tmp_path).network
    network.head.fc.bias.set_value(network.head.fc.bias * float("nan"))
    with raises_code(ModelError, "not_finite"):
        write_reader(network, tmp_path, SHAPE)


def test_what_cannot_be_compiled_is_an_error_with_what_was_printed(tmp_path, capfd):
    network = recogniser_of(tmp_path).network
    network.backbone = NotCompiled(network.backbone)
    with raises_code(ModelError, "not_compiled", "from C++"):
        write_reader(network, tmp_path, SHAPE)
    assert "from C++" not in capfd.readouterr().err


class NotCompiled(paddle.nn.Layer):
    def __init__(self, backbone: paddle.nn.Layer) -> None:
        super().__init__()
        self.inner = backbone

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if not paddle.in_dynamic_mode():
            os.write(2, b"from C++\n")
            raise RuntimeError("no")
        return self.inner(x)


@pytest.mark.parametrize("damage", [lambda weights: b"", lambda weights: bytes(len(weights))])
def test_damaged_weights_are_found_before_anything_is_published(exported, trained, tmp_path, damage):
    """The converter writes a file from truncated weights, and says nothing."""
    graph, weights = "inference.json", "inference.pdiparams"
    for name in (graph, "inference.yml"):
        shutil.copy(exported.folder / name, tmp_path / name)
    good = (exported.folder / weights).read_bytes()
    half = len(good) // 2
    (tmp_path / weights).write_bytes(good[:half] + damage(good[half:]))
    write_onnx(tmp_path, onnx_metadata(trained.charset, POLICY))
    (tmp_path / weights).write_bytes(good)
    parts = RecognizerParts(NetworkEngine(trained.network), POLICY, trained.charset)
    with pytest.raises(PPOCRExtError) as caught:
        compare_files(tmp_path, parts, PICTURES, any_width=True)
    assert caught.value.code in ("damaged_file", "export_differs") and "inference.onnx" in str(caught.value)


PICTURES = [
    Picture(((batch[0].transpose(1, 2, 0) + 1) * 127).astype(np.uint8))
    for batch in map(images, (1, 1), (64, 200))
]
POLICY = WidthPolicy("pad", SHAPE)


def test_a_form_that_cannot_be_run_is_an_error_with_its_name(exported, trained, monkeypatch):
    class Failing:
        name = "failing"

        def probabilities(self, batch: np.ndarray) -> np.ndarray:
            raise RuntimeError("no such operator")

    parts = RecognizerParts(ExportedEngine("paddle", exported.folder), POLICY, trained.charset)
    other = replace(parts, engine=Failing())
    monkeypatch.setattr(exporter, "open_forms", lambda *given: ({"inference.json": other}, {}))
    with raises_code(ModelError, "export_differs", "inference.json", "no such operator"):
        compare_files(exported.folder, parts, PICTURES, any_width=True)


def test_onnx_has_opset_17_the_dictionary_and_no_constant_that_nothing_reads(exported, trained):
    model = onnx.load(exported.folder / "inference.onnx")
    assert model.opset_import[0].version == 17
    (entry,) = [each for each in model.metadata_props if each.key == "character"]
    assert tuple(entry.value.splitlines()) == trained.charset.characters
    read = {name for node in model.graph.node for name in node.input}
    constants = [node.output[0] for node in model.graph.node if node.op_type == "Constant"]
    assert constants and set(constants) <= read


def test_a_missing_converter_names_the_extra(monkeypatch):
    monkeypatch.setattr(runners, "find_spec", lambda name: None if name == "paddle2onnx" else name)
    with raises_code(MissingPackageError, "missing_package", "paddle2onnx", "ppocr-ext[onnx]"):
        FORMATS["onnx"].require_packages()


WATCH = """
import os, pathlib, subprocess
pathlib.Path(__file__).with_name("watched").touch()
start = subprocess.Popen.__init__
def watched(self, args, *others, **options):
    if "pip" in str(args):
        os._exit(9)
    start(self, args, *others, **options)
subprocess.Popen.__init__ = watched
"""


def test_paddles_converter_gets_no_chance_to_install_packages(exported, tmp_path, monkeypatch):
    monkeypatch.delenv("POLYGRAPHY_AUTOINSTALL_DEPS", raising=False)
    (tmp_path / "sitecustomize.py").write_text(WATCH)  # Python imports it when the converter's process starts
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("inference.json", "inference.pdiparams"):
        shutil.copy(exported.folder / name, tmp_path / name)
    write_onnx(tmp_path, {})
    assert (tmp_path / "inference.onnx").is_file()
    assert (tmp_path / "watched").is_file()
    assert "POLYGRAPHY_AUTOINSTALL_DEPS" not in os.environ


@pytest.mark.e2e
def test_a_foldable_network_of_ours_is_exported(tmp_path):
    head = {**TINY["Head"], "out_channels_list": {"CTCLabelDecode": 11, "NRTRLabelDecode": 14}}
    network = build_model({"Backbone": {"name": "RepSVTR"}, "Head": head})
    network.eval()
    write_reader(network, tmp_path, SHAPE)
    write_onnx(tmp_path, {})
    for count, width in ((1, 64), (2, 120)):
        batch = images(count, width)
        expected = NetworkEngine(network).probabilities(batch)
        for engine in (
            ExportedEngine("paddle", tmp_path),
            ExportedEngine("onnx", tmp_path / "inference.onnx"),
        ):
            assert_near(engine.probabilities(batch), expected)
