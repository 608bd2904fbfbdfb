"""An exported folder: its files, what they say, and the lines of code in its card."""

import contextlib
import hashlib
import io
import json
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from error_codes import raises_code
from one_conv import CHARACTERS, SHAPE

from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.export import clients, exporter
from ppocr_ext.export.exporter import FILES, export_recogniser, policy_of_width
from ppocr_ext.inference.comparison import TOLERANCE, drawn_images
from ppocr_ext.inference.formats import FORMATS
from ppocr_ext.inference.runners import NetworkEngine
from ppocr_ext.io.atomic import digests
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.run.recogniser import TrainedRecogniser

PAD = WidthPolicy("pad", SHAPE)
POLICIES = [PAD, replace(PAD, kind="squash"), replace(PAD, kind="widen"), replace(PAD, color="RGB")]


def text_of(trained: TrainedRecogniser, policy: WidthPolicy, image: np.ndarray) -> tuple[str, float]:
    reading = read(
        NetworkEngine(trained.network).probabilities(policy.prepare(image)[None])[0], trained.charset
    )
    return reading.text, reading.confidence


def test_model_json_says_what_is_there(exported, trained):
    content = json.loads((exported.folder / "model.json").read_text(encoding="utf-8"))
    assert set(exported.sizes) == set(FILES) == {file.name for file in exported.folder.iterdir()}
    for name, facts in content["files"].items():
        data = (exported.folder / name).read_bytes()
        assert facts == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    assert set(content["files"]) == set(FILES) - {"model.json"}
    assert WidthPolicy.from_json(content["width_policy"], "model.json") == PAD
    lines = (exported.folder / "charset.txt").read_text(encoding="utf-8").splitlines()
    assert lines == [*CHARACTERS, " "] and content["classes"] == len(lines) + 1
    assert (content["format"], content["width"], content["image_shape"]) == (1, "dynamic", list(SHAPE))
    weights = hashlib.sha256(trained.weights.read_bytes()).hexdigest()
    assert content["source"]["digest"] == weights
    assert content["metric"] == {"acc": 0.75, "norm_edit_dis": 0.9}
    found = content["comparison"]
    assert {*found["largest_difference"]} == {name for form in FORMATS.values() for name in form.openers}
    assert max(found["largest_difference"].values()) < TOLERANCE and 0 < found["noise"] < TOLERANCE
    assert 0 < found["least_margin"] < 1 and not any(found["different_texts"].values())
    card = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in card for name in found["largest_difference"])


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.kind}-{policy.color}")
def test_the_lines_for_onnx_runtime_read_what_the_network_reads(exported, trained, policy, tmp_path):
    for number, image in enumerate(drawn_images(trained.charset.characters, SHAPE[1])):
        file = tmp_path / f"{number}.png"
        cv2.imwrite(str(file), image)
        code = clients.onnxruntime_lines(str(exported.folder), policy).replace("IMAGE", str(file))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, {})
        text, confidence = printed.getvalue().rstrip("\n").rsplit(" ", 1)
        expected = text_of(trained, policy, image)
        assert text == expected[0]
        assert float(confidence) == pytest.approx(expected[1], abs=1e-4)


def test_only_a_squash_model_is_given_an_input_shape():
    for policy in POLICIES:
        squashes = policy.kind == "squash"
        assert ("--input_shape 3 32 64" in clients.shell_command("out", "ch_SVTRv2_rec", policy)) == squashes
        assert ("input_shape=[3, 32, 64]" in clients.python_lines("out", "ch_SVTRv2_rec", policy)) == squashes
    for lines in (clients.python_lines('a "b"', "name", PAD), clients.onnxruntime_lines('a "b"', PAD)):
        compile(lines, "card", "exec")
    assert "'my out'" in clients.shell_command("my out", "ch_SVTRv2_rec", PAD)


def test_onnx_alone(trained, tmp_path):
    pytest.importorskip("paddle2onnx")
    output = tmp_path / "out"
    output.mkdir()
    for name in ("notes.txt", "inference.json", "README.md"):  # files of the user, and an older export
        (output / name).write_text("old", encoding="utf-8")
    listed = {"files": digests(output, ["inference.json"])}
    (output / "model.json").write_text(json.dumps(listed), encoding="utf-8")
    with raises_code(DataError, "file_exists", "README.md"):
        export_recogniser(trained.config, trained, output, format="onnx", force=True)
    (output / "README.md").unlink()
    export_recogniser(trained.config, trained, output, format="onnx", force=True)
    without = {"inference.json", "inference.pdiparams"}
    assert {file.name for file in output.iterdir()} == {*FILES, "notes.txt"} - without
    assert "PaddleOCR 3.7, shell" not in (output / "README.md").read_text(encoding="utf-8")


def test_a_width_is_accepted_where_it_makes_sense(caplog):
    assert policy_of_width(POLICIES[2], None) == POLICIES[2]
    assert policy_of_width(POLICIES[1], 64) == POLICIES[1] and not caplog.records
    with raises_code(ConfigError, "bad_width", "--width 100", "--width 64"):
        policy_of_width(POLICIES[1], 100)
    assert policy_of_width(POLICIES[2], 100) == WidthPolicy("pad", (3, SHAPE[1], 100))
    assert len(caplog.records) == 1


def test_nothing_is_left_of_an_export_that_fails(trained, tmp_path, monkeypatch):
    pytest.importorskip("paddle2onnx")

    def fail(*args: Any) -> None:
        raise ConfigError("no", code="bad_value")

    monkeypatch.setattr(exporter, "write_reader", fail)
    with raises_code(ConfigError, "bad_value"):
        export_recogniser(trained.config, trained, tmp_path / "new" / "model")
    assert [*tmp_path.rglob("*.*")] == []
