"""The benchmark of engines: its table by hand, its verdict, and a real run of the tiny networks."""

import re

import pytest
from benchmark import main
from benchmarks import infer

NETWORKS = {infer.TEACHER: 0.08, infer.UNFOLDED: 0.03, infer.STUDENT: 0.02}  # seconds an image
ENGINES = {infer.RUNTIME: 1.0, infer.ONEDNN: 1.5}


def calls(batches, threads):
    """What the process would answer: images take the same time whatever the batch and threads."""
    for batch in batches:
        for count in threads:
            for engine, factor in ENGINES.items():
                for what, seconds in NETWORKS.items():
                    times = [2 * batch * seconds * factor, batch * seconds * factor]
                    one = {"batch": batch, "threads": count, "what": what, "engine": engine, "images": batch}
                    yield one | {"seconds": times, "cpu_seconds": [count * times[0], count * times[1] / 2]}


@pytest.fixture
def answered(in_this_process):
    """``answered(difference)``: the processes answer at once."""

    def use(difference=1e-6):
        def worker(batches, threads, **_):
            return {"difference": difference, "calls": list(calls(batches, threads))}

        prepared = {"folders": {}, "setting": "tiny"}
        in_this_process(infer, prepare=lambda **_: prepared, measure_calls=worker)

    return use


def table_rows(shown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in shown if line.startswith("|")]


def test_a_row_for_each_kind_of_call(answered, capsys):
    answered()
    assert main(["infer", "--batch", "1", "4", "--threads", "2", "3"]) == 0
    rows = table_rows(capsys.readouterr().out.splitlines())
    # images/s of the fastest call, latencies of a call: half of the calls take 0.16 s, half 0.08 s
    assert ["2", "1", infer.TEACHER, infer.RUNTIME, "12.5", "120.0, 156.0", "80.00"] in rows
    assert ["3", "4", infer.TEACHER, infer.RUNTIME, "12.5", "480.0, 624.0", "120.00"] in rows
    assert len(rows) == 2 + 2 * 2 * len(NETWORKS) * len(ENGINES)


@pytest.mark.e2e
def test_each_network_is_measured_by_each_engine(in_this_process, monkeypatch, capsys):
    in_this_process(infer)
    monkeypatch.setattr(infer, "_TURN", 0)  # one call of each kind
    assert main(["infer", "--batch", "2", "--threads", "1", "--rounds", "1", "--images", "3"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^tiny: 32x128, 11 classes, 1 rounds, Paddle [\d.]+, ONNX Runtime", shown, re.MULTILINE)
    measured = [tuple(row[2:4]) for row in table_rows(shown.splitlines())[2:]]
    readings = [(what, engine) for engine in infer.READERS for what in (infer.BARE, infer.READ)]
    assert measured == [(network, engine) for network in NETWORKS for engine in infer.ENGINES] + readings
