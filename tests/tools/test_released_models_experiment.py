"""The comparison counts equal texts and shows each other one; the client is stood in for."""

import sys

import numpy as np
import pytest
from experiments import released_models

from ppocr_ext.recognition.ctc_text import Reading

READINGS = {"a.png": ("京A1", 0.9), "b.png": ("", 0.0), "c.png": ("沪B2", 0.5)}
CLIENT = """
texts = iter([("京A1", 0.875), ("", 0), (NAME, 0.25)])
read = lambda pixels: next(texts)
"""


class Recogniser:
    engine, origin = "onnx", "model: tiny"

    def __init__(self, source, trust_model):
        pass

    def read(self, images):
        found = [(path, *READINGS[path.rpartition("/")[2]]) for path in images]
        return [Reading(text, score, image=path) for path, text, score in found]


def test_rows_and_differences(tmp_path, monkeypatch, capsys):
    cv2 = pytest.importorskip("cv2")
    for name in READINGS:
        cv2.imwrite(str(tmp_path / name), np.zeros((8, 8, 3), np.uint8))
    monkeypatch.setattr(released_models, "Recognizer", Recogniser)
    monkeypatch.setitem(released_models.CLIENTS, "rapidocr", CLIENT)
    words = ["x", "model.onnx", str(tmp_path), "--python", sys.executable, "--client", "rapidocr"]
    monkeypatch.setattr(sys, "argv", [*words, "--name", "沪B3"])
    released_models.main()
    origin, row, other = capsys.readouterr().out.splitlines()
    assert origin == Recogniser.origin
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    assert cells == ["沪B3", "onnx", "rapidocr", "2 of 3", "2.5e-02"]
    assert str(tmp_path / "c.png") in other and "'沪B2' 0.5000" in other and "'沪B3' 0.2500" in other
