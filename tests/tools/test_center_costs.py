"""The benchmark of center loss: its rows, and that it does not pass over a wrong loss."""

import dataclasses
import re

import pytest
from benchmark import main
from benchmarks import center

SMALL = ["--batch", "2", "3", "--frames", "10", "--classes", "30", "--features", "8", "--rounds", "2"]


def rows(shown):
    return [line.strip("| ").split(" | ") for line in shown.splitlines() if re.match(r"\| \d", line)]


def test_a_row_for_each_formula_and_batch(in_this_process, capsys):
    in_this_process(center)
    assert main(["center", *SMALL, "--labels", "aligned", "--margin", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.match(r"C = 30, D = 8, \d+ threads, Paddle \S+ on cpu, \S+, 2 rounds", shown)
    found = rows(shown)
    formulas = ["dense float64", "CenterLoss", "CenterLoss, labels: aligned, margin: 1.0"]
    assert [row[:2] for row in found] == [[n, name] for n in ("20", "30") for name in formulas]
    assert all(len(row) == 7 and float(row[3]) <= float(row[2]) for row in found)
    assert [row[4] for row in found if row[1] == "dense float64"] == ["1.0", "1.0"]
    assert shown.count("CenterLoss and the dense formula agree") == 2


def test_the_limit_is_16_bytes_a_feature(in_this_process):
    in_this_process(center)
    costs = center.measure_center([4], rounds=1, frames=10, classes=30, features=8)
    assert costs.cases[0].limit == 16 * 40 * 8


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_a_loss_of_another_value_is_a_bad_verdict(factor, in_this_process, monkeypatch, capsys):
    in_this_process(center)
    ours = center._ours
    monkeypatch.setattr(center, "_ours", lambda *given: lambda *inputs: ours(*given)(*inputs) * factor)
    assert main(["center", *SMALL]) == 1
    assert "DISAGREE" in capsys.readouterr().out


def test_a_gradient_that_differs_is_a_bad_verdict(in_this_process):
    in_this_process(center)
    costs = center.measure_center([2], rounds=1, frames=10, classes=30, features=8)
    assert costs.agrees
    (case,) = costs.cases
    other = dataclasses.replace(case, gradient_error=2e-5)
    assert not dataclasses.replace(costs, cases=[case, other]).agrees


def test_an_option_that_center_loss_refuses_is_said(in_this_process, capsys):
    in_this_process(center)
    assert main(["center", *SMALL, "--margin", "-1"]) == 2
    assert "CenterLoss: margin" in capsys.readouterr().err
