"""The benchmark of all that a run's speed rests on: its rows by hand, its order, its chart, and a small real run."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from benchmark import main
from benchmarks import export_center_data, passes, step_data, stepping, whole
from benchmarks.labels import LabelCost, LabelCosts
from benchmarks.step import BARE_STUDENT, CACHED, COMPILED, NETWORK, OPENVINO, PEER, RECOMPUTED
from benchmarks.stepping import APART
from benchmarks.whole_rows import CACHE, CENTERS, ENGINE, LABELS, agrees, rows, to_markdown
from error_codes import raises_code

from ppocr_ext.errors import HostError, PPOCRExtError
from ppocr_ext.run import compiled_models

ARITHMETIC = {"teacher": 50e9, "student": 10e9, "reading": 5e9, "weights": 10**8, "speed": 200e9}
GROWTH = {"lines": [100, 1000], "seconds": [1.0, 9.0], "peak": [10**8, 11 * 10**7]}


def measured():
    """A batch of two, one figure a round."""
    return {
        "setting": "by hand",
        "batch": 2,
        "arithmetic": ARITHMETIC,
        "step": {
            BARE_STUDENT: [1.0, 1.0, 2.0],
            CACHED: [1.0, 1.25, 2.0],
            COMPILED: [2.0, 1.5, 2.0],
            NETWORK: [3.0, 3.0, 6.0],
            CACHED + APART: [0.5, 0.5, 1.0],
            COMPILED + APART: [1.0, 1.0, 2.0],
            PEER: [4.0, 4.5, 8.0],
        },
        "eval": {COMPILED: [50.0, 60.0], PEER: [1.0, 3.0], "agrees": True},
        "center": {COMPILED: [40.0, 44.0], ENGINE: [50.0, 50.0], PEER: [2.0, 2.0], "agrees": True},
        "memory": {BARE_STUDENT: 10**9, COMPILED: 2 * 10**9, CACHED: 10**9, PEER: 4 * 10**9},
        "data": {
            "agrees": True,
            "arithmetic": ARITHMETIC,
            LABELS: GROWTH | {"limit": 300.0},
            CACHE: GROWTH | {"seconds": [1.0, 13.0]},
            CENTERS: GROWTH | {"peak": [10**8, 13 * 10**7]},
        },
    }


def test_figures_limits_ratios_and_aims():
    found = {(row.work, row.against.partition(":")[0]): row for row in rows([measured()])}
    live = found["distillation step, live teacher", PEER]
    # 2 operations x (50 + 3 x 10) GFLOP x 2 images at 200 GFLOP/s: the backward pass takes twice the products
    assert (live.figure, live.limit) == ("2.000 s (1.0 images/s)", "1.600 s")
    assert live.ratio.startswith("3.00 (2.00–4.00) ×") and (live.aim, live.met) == ("≥ 2.9", True)
    bare = found["distillation step, live teacher", BARE_STUDENT]
    assert bare.ratio.startswith("1.50 (1.00–2.00) ×") and (bare.aim, bare.met) == ("≤ 1.4", False)
    cached = found["distillation step, teacher cache", BARE_STUDENT]
    assert (cached.limit, cached.ratio[:16], cached.met) == ("0.600 s", "1.00 (1.00–1.25)", True)
    assert found["distillation step, teacher cache, a process for each thread", PEER].met is True
    assert not any(OPENVINO in row.work for row in found.values())  # what was not measured has no row
    evaluation, centers = found["evaluation", PEER], found["center export", ENGINE]
    assert (evaluation.limit, evaluation.ratio[:5], evaluation.met) == ("20 images/s", "27.50", True)
    assert (centers.figure, centers.ratio[:4], centers.met) == ("42.0 images/s", "0.84", False)
    memory = found["peak memory of a step, live teacher", PEER]
    assert (memory.limit, memory.ratio, memory.met) == ("100.0 MB", "0.50", True)
    assert found["peak memory of a step, live teacher", BARE_STUDENT].ratio == "2.00"
    growing = [found[f"{name}, 1,000 lines", "100 lines"].met for name in (LABELS, CACHE, CENTERS)]
    assert growing == [
        True,
        False,
        False,
    ]  # the cache takes 13 times the time, the centers 1.3 times the memory


@pytest.mark.parametrize("section", ["eval", "center", "data"])
def test_results_that_differ_are_no_agreement(section):
    found = measured()
    assert agrees([found])
    found[section]["agrees"] = False
    assert not agrees([found]) and "DISAGREE" in to_markdown([found])


@pytest.fixture
def answered(in_this_process, monkeypatch, tmp_path):
    """The processes answer at once; what they were asked for, by the worker."""
    asked = {}

    def worker(name, **answer):
        def work(**options):
            asked.setdefault(name, []).append(options)
            if name == "stepping":
                answer["seconds"] = {kind: [1.0] * options["rounds"] for kind in options["kinds"]}
            if name in ("passes", "measure_peer"):
                speeds = (
                    range(1, 1 + len(options["passes"])) if "passes" in options else [2.0] * options["rounds"]
                )
                answer["images_per_second"] = list(speeds)
            if name == "export_center_data":
                Path(options["folder"], "lines.txt").write_text("a.png\t1\nb.png\t2\n")
            for file in ("ours.npz", "peer.npz"):
                np.savez(Path(options["folder"]) / file, class_ids=np.array([1]), centers=np.ones((1, 2)))
            return answer

        return work

    def labels(lines, rounds):
        return LabelCosts("", [LabelCost(count, count, 1.0, 2.0, 1.0, 1, 2) for count in lines])

    answers = {
        "export_center_data": {},
        "step_data": {},
        "limits": ARITHMETIC,
        "stepping": {"peak": 5},
        "measure_peer": {"acc": 0.5},
        "passes": {"acc": 0.5},
        "measure_growth": {"seconds": 1.0, "peak": 7},
    }
    in_this_process(whole, **{name: worker(name, **answer) for name, answer in answers.items()})
    monkeypatch.setattr(whole, "measure_labels", labels)
    (tmp_path / "ppocr" / "modeling").mkdir(parents=True)
    return asked


def test_each_section_is_measured_and_the_first_passes_warm_up(answered, tmp_path, capsys):
    assert (
        main(
            ["all", "--rounds", "2", "--lines", "10", "100", "--peer", str(tmp_path), "--out", str(tmp_path)]
        )
        == 0
    )
    (found,) = json.loads((tmp_path / "performance.json").read_text())["runs"]
    assert set(found["step"]) >= {OPENVINO, BARE_STUDENT, CACHED, COMPILED, NETWORK, PEER, CACHED + APART}
    assert found["center"][COMPILED] == [4, 6] and found["center"][ENGINE] == [3, 5]
    ours = [BARE_STUDENT, CACHED, COMPILED, CACHED + RECOMPUTED, COMPILED + RECOMPUTED]
    assert found["memory"] == dict.fromkeys([*ours, PEER], 5)
    assert [len(work["kinds"]) for work in answered["stepping"][1:]] == 7 * [1]  # processes of their own
    assert found["data"][LABELS]["lines"] == [10, 100, 1000]
    assert found["data"][CACHE] == {"lines": [10, 100], "seconds": [1.0, 1.0], "peak": [7, 7]}
    assert [options["size"] for options in answered["export_center_data"]] == ["full", "tiny"]
    shown = capsys.readouterr()
    assert shown.out.count("| PaddleOCR: ") >= 8 and "s: center" in shown.err
    assert shown.out == (tmp_path / "performance.md").read_text()
    assert cv2.imread(str(tmp_path / "performance.png")).std() > 10  # not blank


def test_centers_of_other_classes_are_no_agreement(tmp_path):
    for name, ids in (("a", [0, 1]), ("b", [0, 2])):
        np.savez(tmp_path / f"{name}.npz", class_ids=np.array(ids), centers=np.ones((2, 3)))
    assert whole.difference(tmp_path / "a.npz", tmp_path / "b.npz") == float("inf")


def test_other_centers_than_paddleocr_s_are_no_agreement(answered, monkeypatch, tmp_path):
    plan = {"only": ["center"], "peer": str(tmp_path)}
    assert whole.measure_whole(**plan).agrees is True
    for error in (1e-4, float("nan")):
        monkeypatch.setattr(whole, "difference", lambda *_, error=error: error)
        assert whole.measure_whole(**plan).agrees is False


def test_what_cannot_be_measured_is_refused_first(answered, tmp_path):
    with raises_code(PPOCRExtError, "bad_value", "--batch 3"):
        whole.measure_whole(batch=3)
    with raises_code(HostError, "not_a_checkout"):
        whole.measure_whole(peer=str(tmp_path / "ppocr"))
    assert answered == {}


@pytest.mark.e2e
def test_a_cache_of_a_run_answers_for_a_batch_and_an_evaluation_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_models, "LEAST_SAMPLES", 4)
    export_center_data.prepare(str(tmp_path), "tiny", lines=4, batch=2)
    step_data.prepare(str(tmp_path), batch=2)
    kinds = [CACHED, COMPILED, CACHED + RECOMPUTED]  # the step with a cache fails if it lacks a sample
    found = stepping.measure(str(tmp_path), kinds, rounds=1, threads=1)
    assert [len(found["seconds"][kind]) for kind in kinds] == [1, 1, 1]
    assert passes.evaluate(str(tmp_path), rounds=1)["acc"] == pytest.approx(1.0, abs=1e-4)
    found = passes.make_centers(str(tmp_path), ["centers", "engine"])
    assert (found["correct"], len(found["images_per_second"])) == (found["lines"], 2)
    with np.load(tmp_path / "ours.npz") as ours:
        assert ours["counts"].sum() == found["lines"] * 16  # each frame of each line
