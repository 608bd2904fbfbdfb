"""The benchmark of compiled networks: its ratios by hand, and its verdict."""

import pytest
from benchmark import main
from benchmarks import engine

SECONDS = {
    (engine.TEACHER, engine.NETWORK): [9.0, 4.0, 6.0, 8.0],
    (engine.TEACHER, engine.COMPILED): [5.5, 2.0, 2.0, 2.0],
    (engine.TEACHER, engine.BFLOAT16): [5.0, 1.0, 1.0, 1.0],
    (engine.STUDENT, engine.NETWORK): [1.0, 0.5, 0.5, 0.5],
    (engine.STUDENT, engine.COMPILED): [1.5, 0.5, 0.25, 0.5],
}


@pytest.mark.parametrize(
    ("difference", "bfloat16", "code"),
    [(2e-6, 0.01, 0), (2e-4, 0.01, 1), (float("nan"), 0.01, 1), (2e-6, 0.06, 1), (2e-6, float("nan"), 1)],
)
def test_ratios_are_of_passes_in_the_same_round_and_the_first_round_warms_up(
    in_this_process, capsys, monkeypatch, difference, bfloat16, code
):
    def worker(passes, **_):
        left = {kind: iter(times) for kind, times in SECONDS.items()}
        return {
            "seconds": [next(left[kind]) for kind in passes],
            "peak": 1_500_000 * len(passes),
            "difference": difference,
            "bfloat16_difference": bfloat16,
        }

    in_this_process(engine, measure_passes=worker)
    monkeypatch.setattr(engine.runners, "has_bfloat16", lambda: True)
    monkeypatch.setattr(engine.runners, "other_engines", lambda dtype: {})
    assert main(["engine", "--size", "tiny", "--batch", "3", "--rounds", "3"]) == code
    shown = capsys.readouterr().out
    assert "tiny: batch 3, 32x128" in shown
    assert f"| {engine.TEACHER} | compiled | 2.000 | 2.000 | 3.00 (2.00–4.00) | 1.5 | 5.5 |" in shown
    assert (
        f"| {engine.TEACHER} | compiled, bfloat16 | 1.000 | 1.000 | 6.00 (4.00–8.00) | 1.5 | 5.0 |" in shown
    )
    assert f"| {engine.STUDENT} | network | 0.500 | 0.500 | 1.00 (1.00–1.00) | 1.5 |  |" in shown
