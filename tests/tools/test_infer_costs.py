"""The benchmark of engines: its tables by hand, its verdict, and a real run of the tiny networks."""

import re

import cv2
import pytest
from benchmark import main
from benchmarks import infer, infer_worker

NETWORKS = {infer.TEACHER: 0.08, infer.UNFOLDED: 0.03, infer.STUDENT: 0.02}  # seconds an image
ENGINES = {infer.RUNTIME: 1.0, infer.ONEDNN: 1.5}


def calls(batches, threads):
    """What a worker would answer: images take the same time whatever the batch and threads."""
    for batch in batches:
        for count in threads:
            shared = {"batch": batch, "threads": count}
            for engine, factor in ENGINES.items():
                for what, seconds in NETWORKS.items():
                    times = [2 * batch * seconds * factor, batch * seconds * factor]
                    one = {**shared, "what": what, "engine": engine, "images": batch}
                    yield one | {"seconds": times, "cpu_seconds": [count * times[0], count * times[1] / 2]}
                for what, seconds in ((infer.BARE, 0.1), (infer.READ, 0.125)):
                    one = {**shared, "what": what, "engine": engine, "images": 4}
                    yield one | {"seconds": [seconds, 1.0], "cpu_seconds": [2 * seconds]}


@pytest.fixture
def answered(in_this_process):
    """``answered(difference)``: the processes answer at once."""

    def use(difference=1e-6):
        def worker(batches, threads, **_):
            found = {"difference": difference, "versions": "Paddle 9.9"}
            return found | {"calls": list(calls(batches, threads))}

        written = {"folders": {}, "setting": "tiny"}
        in_this_process(infer, infer_data=lambda **_: written, infer_worker=worker)

    return use


def table_rows(shown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in shown if line.startswith("|")]


def test_a_table_for_each_number_of_threads_and_ratios_to_the_student(answered, capsys, tmp_path):
    answered()
    picture = tmp_path / "speed.png"
    assert main(["infer", "--batch", "1", "4", "--threads", "2", "3", "--chart", str(picture)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("Threads:")] == ["Threads: 2", "Threads: 3"]
    rows = table_rows(shown)
    # images/s of the fastest call, latencies of a batch: half of the calls take 0.16 s, half 0.08 s
    expected = ["12.5", "120.0, 156.0", "80.00", "4.00, 4.00", "12.5", "480.0, 624.0", "80.00", "4.00, 4.00"]
    assert rows.count([infer.TEACHER, infer.RUNTIME, *expected]) == 1  # of 2 threads
    assert sum(row[:2] == [infer.UNFOLDED, infer.ONEDNN] and row[5] == "1.50, 1.50" for row in rows) == 2
    assert ["3", "4", infer.ONEDNN, "40.0", "32.0", "0.80", "1.25"] in rows
    assert cv2.imread(str(picture)).std() > 10  # not blank


@pytest.mark.parametrize(
    ("difference", "code", "verdict"), [(1e-6, 0, "agree"), (float("nan"), 1, "DISAGREE")]
)
def test_engines_that_compute_something_else_are_no_result(answered, capsys, difference, code, verdict):
    answered(difference)
    assert main(["infer", "--batch", "1", "--threads", "1"]) == code
    assert f"engines {verdict}:" in capsys.readouterr().out


@pytest.mark.e2e
def test_each_network_is_measured_by_each_engine(in_this_process, monkeypatch, capsys):
    in_this_process(infer)
    monkeypatch.setattr(infer_worker, "_TURN", 0)  # one call of each kind
    assert main(["infer", "--batch", "2", "--threads", "1", "--rounds", "1", "--images", "3"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^tiny: 32x128, 11 classes, 1 rounds, Paddle [\d.]+, ONNX Runtime", shown, re.MULTILINE)
    rows = table_rows(shown.splitlines())
    measured = [tuple(row[:2]) for row in rows[2:11]]
    engines = (infer.RUNTIME, infer.ONEDNN, infer.PLAIN)
    assert measured == [(network, engine) for network in NETWORKS for engine in engines]
    assert [row[:3] for row in rows[13:]] == [["1", "2", infer.RUNTIME], ["1", "2", infer.ONEDNN]]
