"""`ppocr-ext verify`: faults are planted into copies of one export, and each is found where it lies."""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cv2
import onnx
import paddle
import pytest
from error_codes import raises_code
from one_conv import CHARACTERS, SHAPE, recogniser_of

from ppocr_ext.cli.main import main
from ppocr_ext.errors import DataError, ModelError, WeightsError
from ppocr_ext.export import verify_export as verify_module
from ppocr_ext.export.exporter import export_recogniser
from ppocr_ext.export.verify_export import NETWORK, Verification, verify_export
from ppocr_ext.inference.comparison import TOLERANCE, drawn_images
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.io.resources import file_digest
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import WidthPolicy

PADDLE = ["inference.json, oneDNN", "inference.json, no oneDNN"]
ONNX = "inference.onnx"


@pytest.fixture
def verify(trained, monkeypatch):
    """Verify a folder against the network of `trained`, which has no run folder of its own."""
    monkeypatch.setattr(verify_module, "recogniser_config", lambda *given: trained.config)
    monkeypatch.setattr(verify_module, "load_on_cpu", lambda *given, **choices: trained)

    def call(folder: Path, **options: Any) -> Verification:
        return verify_export(folder, run=folder, **{"with_clients": False, "trust_model": True, **options})

    return call


@pytest.fixture
def copy(exported, tmp_path):
    return Path(shutil.copytree(exported.folder, tmp_path / "model"))


def publish(folder: Path) -> None:
    """Write the digests anew: the fault was there when the folder was exported."""
    file = folder / "model.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for name, facts in content["files"].items():
        facts["sha256"] = file_digest(folder / name)
    file.write_text(json.dumps(content), encoding="utf-8")


def differing(found: Verification) -> list[str]:
    return [row.name for row in found.rows if row.faults]


def test_an_export_equals_its_network(verify, exported, trained, tmp_path):
    images = drawn_images(trained.charset.characters, SHAPE[1])
    for number, image in enumerate(images):
        cv2.imwrite(str(tmp_path / f"{number}.png"), image)
    network = NetworkEngine(trained.network)
    inputs = [WidthPolicy("pad", SHAPE).prepare(image)[None] for image in images]
    labels = [read(network.probabilities(one)[0], trained.charset).text for one in inputs]
    assert len(set(labels)) == len(labels) == 4
    labels[0] = "wrong"
    rows = "".join(f"{number}.png\t{label}\n" for number, label in enumerate(labels)) + "missing.png\tx\n"
    (tmp_path / "list.txt").write_text(rows, encoding="utf-8")
    found = verify(exported.folder, images=[str(tmp_path / "list.txt")])
    assert found.agrees() and found.reference == NETWORK
    assert [row.name for row in found.rows] == [NETWORK, *PADDLE, ONNX]
    assert {(row.images, row.different, row.correct) for row in found.rows} == {(4, 0, 3)}
    assert max(row.largest for row in found.rows) < TOLERANCE
    assert len(found.unreadable) == 1 and "missing.png" in found.unreadable[0]


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        file = folder / "inference.yml"
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")

    return plant


def changed_onnx(change: Callable[[onnx.ModelProto], None]) -> Callable[[Path], None]:
    def plant(folder: Path) -> None:
        model = onnx.load(folder / ONNX)
        change(model)
        onnx.save(model, folder / ONNX)

    return plant


def other_dictionary(model: onnx.ModelProto) -> None:
    (entry,) = (each for each in model.metadata_props if each.key == "character")
    entry.value = "\n".join([*CHARACTERS[1:], CHARACTERS[0], " "])


def other_policy(key: str, value: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        (entry,) = (each for each in model.metadata_props if each.key == "width_policy")
        entry.value = json.dumps({**json.loads(entry.value), key: value})

    return change


def softmax_twice(model: onnx.ModelProto) -> None:
    (output,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("Softmax", [output.name], ["twice"], axis=-1))
    output.name = "twice"


def fixed(axis: int, size: int) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size

    return change


@pytest.mark.parametrize(
    ("plant", "readers", "fact"),
    [
        pytest.param(replaced('- "0"\n  - "1"', '- "1"\n  - "0"'), PADDLE, "'1'", id="dictionary-yml"),
        pytest.param(replaced('  - "a"\n', ""), PADDLE, "23", id="dictionary-short"),
        pytest.param(changed_onnx(other_dictionary), [ONNX], "'1'", id="wrong-dictionary"),
        pytest.param(replaced("BGR", "RGB"), PADDLE, "differ by", id="RGB-for-BGR"),
        pytest.param(changed_onnx(other_policy("color", "RGB")), [ONNX], "differ by", id="RGB-for-BGR-onnx"),
        pytest.param(changed_onnx(other_policy("kind", "squash")), [ONNX], "differ by", id="squashed-width"),
        pytest.param(changed_onnx(softmax_twice), [ONNX], "differ by", id="double-softmax"),
        pytest.param(changed_onnx(fixed(3, 64)), [ONNX], "width", id="fixed-width"),
        pytest.param(changed_onnx(fixed(0, 1)), [ONNX], "images of width", id="fixed-batch"),
    ],
)
def test_a_planted_fault_is_found_in_its_form(verify, copy, plant, readers, fact):
    plant(copy)
    publish(copy)
    found = verify(copy)  # the other forms of the model are the clean twins
    assert differing(found) == readers
    assert all(fact in str(row.faults) for row in found.rows if row.name in readers)
    assert not found.agrees()


class NormedConv(paddle.nn.Layer):
    """A convolution with BatchNorm; `forgets` folds it without the variance that was seen in training."""

    def __init__(self, forgets: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.forgets = paddle.nn.Conv2D(24, 24, 1), paddle.nn.BatchNorm2D(24), forgets
        self.norm._variance.set_value(paddle.full([24], 2.0))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.norm(self.conv(x))

    def fused(self) -> paddle.nn.Conv2D:
        both, norm = paddle.nn.Conv2D(24, 24, 1), self.norm
        scale = norm.weight / paddle.sqrt((1.0 if self.forgets else norm._variance) + 1e-5 + 0 * norm.weight)
        both.weight.set_value(self.conv.weight * scale.reshape([-1, 1, 1, 1]))
        both.bias.set_value((self.conv.bias - norm._mean) * scale + norm.bias)
        return both


@pytest.mark.parametrize("forgets", [False, True])
def test_a_batch_norm_that_is_folded_wrongly_is_not_published(forgets, tmp_path):
    recogniser = recogniser_of(tmp_path)
    recogniser.network.backbone.branches = NormedConv(forgets)
    recogniser.network.eval()
    with raises_code(ModelError, "export_differs") if forgets else nullcontext():
        export_recogniser(recogniser.config, recogniser, tmp_path / "model", format="paddle")
    assert (tmp_path / "model").exists() != forgets


@pytest.mark.parametrize("name", ["inference.pdiparams", ONNX])
def test_truncated_weights_are_found(verify, copy, name):
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    found = verify(copy)
    assert [name in fault for fault in found.faults] == [True] and not found.agrees()
    assert differing(found) == ([ONNX] if name == ONNX else PADDLE)


@pytest.mark.parametrize("name", ["inference.json", "inference.pdiparams", ONNX])
def test_files_of_unknown_origin_run_only_if_they_are_trusted(copy, name):
    """A model is a program; the digests of `model.json` say that these files are those that were exported."""
    description = json.loads((copy / "model.json").read_text(encoding="utf-8"))
    del description["files"][name]  # as if the file had been put beside them
    (copy / "model.json").write_text(json.dumps(description), encoding="utf-8")
    with raises_code(WeightsError, "digest_mismatch", name, "--trust-model"):
        verify_export(copy, with_clients=False)
    assert verify_export(copy, with_clients=False, trust_model=True).agrees()


def test_a_changed_charset_or_nothing_to_compare_is_an_error(verify, copy):
    for name in ("inference.json", "inference.pdiparams"):
        (copy / name).unlink()
    with raises_code(DataError, "nothing_to_compare", "--run"):
        verify_export(copy, with_clients=False)
    (copy / "charset.txt").write_text("a\nb\n", encoding="utf-8")
    with raises_code(WeightsError, "digest_mismatch", "charset.txt"):
        verify(copy)


def test_without_the_run_the_forms_are_compared(copy, capsys):
    assert main(["verify", str(copy), "--no-clients"]) == 0
    assert "--run" in capsys.readouterr().out
    changed_onnx(softmax_twice)(copy)
    publish(copy)
    assert main(["verify", str(copy), "--no-clients", "--tolerance", "0.0001"]) == 1
    said = capsys.readouterr().out
    assert "inference.onnx differs" in said and "differ by" in said
    assert main(["verify", str(copy), "--no-clients", "--tolerance", "0.999"]) == 0
    assert main(["verify", str(copy / "nowhere")]) == 2
    assert main(["verify", str(copy), "--tolerance", "0"]) == 2


@pytest.mark.e2e
def test_the_client_of_paddleocr_2_reads_the_same(exported):
    rows = verify_export(exported.folder).rows
    found = next(row for row in rows if row.name.startswith("paddleocr 2."))
    assert found.images == 4
    assert not found.faults and found.largest > 0 and "widen" in found.note
