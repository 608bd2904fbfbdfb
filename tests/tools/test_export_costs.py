"""The benchmark of exporting centers: lines that are read correctly, its rows, its verdict on a checkout's."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from benchmark import main
from benchmarks import export_center
from benchmarks.export_center_data import prepare
from benchmarks.export_center_worker import measure
from error_codes import raises_code

from ppocr_ext.errors import HostError, PPOCRExtError
from ppocr_ext.run import compiled_models

SMALL = ["--size", "tiny", "--batch", "4", "--lines", "6", "--rounds", "2"]


@pytest.fixture(autouse=True)
def compiled_for_few_lines(monkeypatch):
    monkeypatch.setattr(compiled_models, "LEAST_SAMPLES", 7)


def names(shown):
    return [line.split(" | ")[0].strip("| ") for line in shown.splitlines() if line.startswith("|")][2:]


def checkout(folder):
    (folder / "ppocr" / "modeling").mkdir(parents=True)
    return str(folder)


def copy_of_ours(folder, change):
    with np.load(Path(folder) / "ours.npz") as ours:
        np.savez(
            Path(folder) / "peer.npz", class_ids=ours["class_ids"], centers=ours["centers"] * (1 + change)
        )
    return {"images_per_second": [2.0], "peak": 3_000_000}


def test_every_line_is_read_correctly_and_counts(tmp_path):
    prepare(str(tmp_path), "tiny", lines=6, batch=4)
    found = measure(str(tmp_path), ["bare", "centers", "engine"], "argmax")
    # the six twice, so that networks are compiled
    assert (found["lines"], found["correct"], len(found["images_per_second"])) == (12, 12, 3)
    with np.load(tmp_path / "ours.npz") as ours:
        assert ours["counts"].sum() == 12 * 16  # each frame of each line
        assert len(ours["class_ids"]) > 5  # of eleven: the frames are not all of one class


def test_a_row_for_each_pass_and_ratios(in_this_process, capsys):
    in_this_process(export_center)
    assert main(["export-center", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"^tiny: 6 lines \(all read correctly\), batch 4, 32x128, 11 classes", shown, re.MULTILINE
    )
    assert names(shown) == ["bare eval forward", "bare forward of the engine", "ppocr_ext, centers"]
    assert re.search(r"^\| bare forward of the engine \| [\d.]+ \| [\d.]+ \| 1\.00 \|", shown, re.MULTILINE)


def test_ratios_are_of_medians():
    costs = export_center.ExportCosts(
        "",
        {export_center.ENGINE: [10.0, 20.0, 90.0], export_center.OURS: [18.0, 18.0, 99.0]},
        {export_center.ENGINE: 1_000_000, export_center.OURS: 2_500_000},
    )
    assert "| ppocr_ext, centers | 18.0 | 99.0 | 0.90 | 1.00 | 2.5 |" in costs.to_markdown()


@pytest.mark.parametrize(("change", "code", "verdict"), [(0.0, 0, "agree"), (1e-4, 1, "DISAGREE")])
def test_centers_of_a_checkout_must_be_ours(change, code, verdict, in_this_process, tmp_path, capsys):
    in_this_process(export_center, export_center_peer=lambda folder, **_: copy_of_ours(folder, change))
    assert main(["export-center", *SMALL, "--peer", checkout(tmp_path)]) == code
    shown = capsys.readouterr().out
    assert names(shown)[3:] == ["PaddleOCR, distillation config", "PaddleOCR, student alone"]
    assert f"The centers and PaddleOCR's {verdict}: they differ by" in shown


def test_centers_of_other_classes_are_no_agreement(tmp_path):
    for name, ids in (("a", [0, 1]), ("b", [0, 2])):
        np.savez(tmp_path / f"{name}.npz", class_ids=np.array(ids), centers=np.ones((2, 3)))
    assert export_center.difference(tmp_path / "a.npz", tmp_path / "b.npz") == float("inf")


def test_a_folder_that_is_no_checkout_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(export_center, "in_fresh_process", lambda *_: pytest.fail("something was measured"))
    with raises_code(HostError, "not_a_checkout", tmp_path):
        export_center.measure_export_center("tiny", peer=str(tmp_path))


def test_aligned_frames_are_not_a_checkout_s(tmp_path):
    with raises_code(PPOCRExtError, "conflicting_options", "--frames", "--peer"):
        export_center.measure_export_center("tiny", frames="aligned", peer=checkout(tmp_path))


@pytest.mark.e2e
def test_against_a_checkout_in_fresh_processes(capsys):
    peer = os.environ.get("PADDLEOCR_PEER") or os.environ.get("PADDLEOCR_HOME")
    if not peer or not Path(peer, "tools", "export_center.py").is_file():
        pytest.skip("PADDLEOCR_PEER names no checkout of PaddleOCR with its training code")
    assert main(["export-center", *SMALL, "--peer", peer]) == 0
    assert "PaddleOCR's agree" in capsys.readouterr().out
