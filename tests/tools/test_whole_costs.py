"""The benchmark of all that a run's speed rests on: its rows by hand, its order, its chart, and a small real run."""

import numpy as np
import pytest
from benchmarks import export_center_data, passes, step_data, stepping, whole
from benchmarks.step import BARE_STUDENT, CACHED, COMPILED, NETWORK, OPENVINO, PEER, RECOMPUTED
from benchmarks.stepping import APART
from benchmarks.whole_rows import CACHE, CENTERS, ENGINE, LABELS, agrees, rows, to_markdown

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


def test_centers_of_other_classes_are_no_agreement(tmp_path):
    for name, ids in (("a", [0, 1]), ("b", [0, 2])):
        np.savez(tmp_path / f"{name}.npz", class_ids=np.array(ids), centers=np.ones((2, 3)))
    assert whole.difference(tmp_path / "a.npz", tmp_path / "b.npz") == float("inf")


@pytest.mark.e2e
def test_a_cache_of_a_run_answers_for_a_batch_and_an_evaluation_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_models, "LEAST_WORK", 1)
    monkeypatch.setattr(export_center_data, "_LEAST", 4)
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
