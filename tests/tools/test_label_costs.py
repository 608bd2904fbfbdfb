"""The benchmark of the label check: its table by hand, its verdict, and a small real run."""

import os
from pathlib import Path

import pytest
from benchmark import main
from benchmarks import labels


def table_rows(shown):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in shown if line.startswith("|")]


@pytest.mark.parametrize(("refused", "code"), [(0, 0), (1, 1)])
def test_speeds_are_those_of_the_best_round_and_each_line_must_be_usable(
    in_this_process, capsys, refused, code
):
    def worker(folder, rounds):
        lines = Path(folder, "list.txt").read_bytes().count(b"\n")
        times = {"seconds": lines / 50_000, "cpu_seconds": lines / 100_000, "bare_seconds": lines / 250_000}
        return {**times, "usable": lines - refused, "growth": 3_000_000, "peak": 70_000_000}

    in_this_process(labels, check_repeatedly=worker)
    assert main(["labels", "--lines", "30", "70", "--rounds", "2"]) == code
    rows = table_rows(capsys.readouterr().out.splitlines())
    speeds = ["50,000", "100,000", "250,000", "2.50", "3.0", "70.0"]
    assert rows[2:] == [["30", *speeds], ["70", *speeds]]


def test_drawn_label_files_are_checked(in_this_process, monkeypatch, capsys):
    in_this_process(labels)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)  # this process keeps its cores
    monkeypatch.setattr(labels, "IMAGES", 40)
    assert main(["labels", "--lines", "25", "90", "--rounds", "1"]) == 0
    rows = table_rows(capsys.readouterr().out.splitlines())
    assert [row[0] for row in rows[2:]] == ["25", "90"]
    assert all(float(cell.replace(",", "")) > 0 for row in rows[2:] for cell in row[1:5])
