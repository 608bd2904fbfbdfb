"""The benchmark of released models: its tables by hand, and a small real run of steps and of readers."""

import cv2
import numpy as np
import pytest
from benchmark import main
from benchmarks import official
from benchmarks.fresh import in_fresh_process
from benchmarks.official import BOTH, FUSED, LIVE
from benchmarks.step import PEER
from benchmarks.stepping import APART
from released import real_release

SECONDS = {
    PEER: [8.0, 6.0, 6.0],
    BOTH: [4.0, 4.0, 3.0],
    FUSED: [1.0, 2.0, 3.0],
    FUSED + APART: [1.0, 1.0, 1.0],
}


def table_rows(shown):
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if "|" in line
    ]


@pytest.fixture
def line(tmp_path):
    file = tmp_path / "line.png"
    image = np.full((48, 120, 3), 255, np.uint8)
    cv2.imwrite(str(file), cv2.putText(image, "AB 12", (6, 36), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 0), 2))
    return str(file)


@pytest.fixture
def checkout(tmp_path):
    """A checkout that has the backbone of PP-OCRv4 mobile, and none of PP-OCRv6."""
    folder = tmp_path / "peer" / "ppocr" / "modeling" / "backbones"
    folder.mkdir(parents=True)
    (folder / "rec_lcnetv3.py").write_text("class PPLCNetV3(nn.Layer):\n")
    return str(tmp_path / "peer")


def test_each_kind_is_compared_with_paddleocr_where_it_has_the_network(
    in_this_process, monkeypatch, capsys, checkout, line
):
    def steps(network, kinds, root, **_):
        assert (root is None) == (network == "v6_small")
        times = {kind: [(each, each / 2) for each in SECONDS.get(kind, [1.0] * 3)] for kind in kinds}
        return {"times": times, "peak": 4_000_000_000 if kinds == [PEER] else 1_000_000_000}

    def readers(model, images, **_):
        assert images == [line]
        times = {"ours": [(0.5, 0.5)] * 3, "theirs": [(1.0, 2.0)] * 3}
        return {"times": times, "equal": {"ours": 1, "theirs": 0}, "images": 1}

    in_this_process(official, take_steps=steps, measure=readers)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # `--threads` sets it; it is as before after the test
    words = ["--peer", checkout, "--lines", line, "--threads", "2", "--batch", "4", "--rounds", "3"]
    assert main(["official", *words]) == 0
    rows = table_rows(capsys.readouterr().out)
    assert [PEER, "6.00", "3.00", "1.00 (1.00–1.00)", "1.00 (1.00–1.00)", "4.00", "1.00"] in rows
    assert [BOTH, "4.00", "2.00", "2.00 (1.50–2.00)", "2.00 (1.50–2.00)", "1.00", "0.25"] in rows
    # other processes compute: their processor time and memory are not of this one
    assert [FUSED + APART, "1.00", "", "6.00 (6.00–8.00)", "", "", ""] in rows
    assert [
        LIVE,
        "1.00",
        "0.50",
        "1.00 (1.00–1.00)",
        "1.00 (1.00–1.00)",
        "1.00",
        "1.00",
    ] in rows  # of v6 small
    assert ["theirs", "1.0", "2000.0", "4.00 (4.00–4.00)", "0 of 1"] in rows
    assert sum(row[0] == PEER for row in rows) == 1


def test_a_batch_that_the_processes_cannot_share_is_refused(checkout, monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["official", "--peer", checkout, "--batch", "3", "--threads", "2"]) == 2
    assert "--batch 3" in capsys.readouterr().err


def test_steps_are_taken_with_parallel_branches_and_in_one_piece(in_this_process, capsys):
    in_this_process(official)
    words = ["--networks", "v6_small", "--batch", "1", "--image", "48", "64", "--rounds", "1"]
    assert main(["official", *words]) == 0
    rows = table_rows(capsys.readouterr().out)[2:]
    assert [row[0] for row in rows] == [LIVE, FUSED]
    assert all(float(row[1]) > 0 and float(row[5]) > 0 for row in rows)


def test_the_readers_of_a_released_model_agree(line):
    real_release("PP-OCRv4_mobile_rec", "rapidocr-onnxruntime")
    work = {"model": "PP-OCRv4_mobile_rec", "images": [line, line], "batch": 2, "rounds": 1}
    measured = in_fresh_process("benchmarks.official_reading:measure", work)
    assert next(iter(measured["times"])) == "ppocr_ext, onnx"
    assert set(measured["equal"].values()) == {2}
