"""The benchmark as a command: ratios of one run, in a table."""

import os
import signal
import textwrap
import time
from pathlib import Path

import paddle
import paddle.distributed as dist
import pytest
from benchmark import main
from benchmarks import engine, labels
from benchmarks.fresh import in_fresh_process
from benchmarks.limits import multiply_adds
from benchmarks.stepping import stepping_processes
from benchmarks.table import Turns
from error_codes import raises_code
from paddle import nn
from waiting import HANG

from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.modeling.layers import Conv2D, Linear, attend


def test_ratios_are_of_the_same_round_and_have_a_spread():
    turns = Turns("", {"bare": [1.0, 2.0, 12.0], "ours": [2.0, 3.0, 3.0]}, "step", "bare")
    assert "| ours | 3.000 | 2.000 | 1.50 (0.25–2.00) |" in turns.to_markdown()


@pytest.mark.parametrize(
    "words",
    [
        "step --rounds 0",
        "step --batch -1",
        "step --image 0 32",
        "infer --images 0",
        "infer --threads 0",
        "labels --lines 0",
    ],
)
def test_what_cannot_be_measured_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert words.split()[1] in capsys.readouterr().err


def broken_steps(how):
    """What a process of the benchmark builds: only the second one fails, and the first one waits for it."""
    if dist.get_rank() == 0:
        return {"step": lambda: time.sleep(2 * HANG)}
    return {"step": (lambda: os.kill(os.getpid(), signal.SIGSEGV)) if how == "dies" else (lambda: 1 / 0)}


@pytest.mark.e2e
@pytest.mark.parametrize(("how", "reason"), [("dies", "SIGSEGV"), ("fails", "ZeroDivisionError: division")])
def test_the_reason_why_a_process_failed_is_said_at_once(how, reason):
    with (
        raises_code(PPOCRExtError, "process_failed", reason),
        stepping_processes(2, broken_steps, how) as step,
    ):
        began = time.monotonic()
        step("step")
    assert time.monotonic() - began < HANG


# The benchmark of compiled networks: its ratios by hand, and its verdict

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


# The benchmark of the label check: its table by hand, its verdict, and a small real run


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


# The arithmetic limit: multiply-adds of networks that are small enough to count by hand


class Attention(nn.Layer):
    def forward(self, tokens):
        return attend(tokens, tokens, tokens)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        # outputs x inputs that each output is a sum of; a bias is no product
        (nn.Conv2D(3, 8, (3, 5), stride=2, padding=(1, 2)), [2, 3, 8, 12], (2 * 8 * 4 * 6) * (3 * 3 * 5)),
        (Conv2D(6, 6, 3, padding=1, groups=6), [1, 6, 4, 5], (6 * 4 * 5) * 9),
        (Linear(7, 11), [2, 3, 7], (2 * 3 * 11) * 7),
        # a transposed convolution multiplies each input with each weight of its channel
        (nn.Conv2DTranspose(3, 5, 2, stride=2), [2, 3, 4, 4], (2 * 3 * 4 * 4) * (5 * 2 * 2)),
        # two heads of size 3 over 5 places: scores, and the sums of the values
        (Attention(), [4, 2, 3, 5], 2 * (4 * 2 * 3 * 5 * 5)),
    ],
)
def test_multiply_adds_of_one_layer(layer, shape, expected):
    assert multiply_adds([layer], lambda: layer(paddle.ones(shape))) == expected


def test_layers_count_each_time_that_they_are_called_and_not_afterwards():
    layer = nn.Linear(2, 3)
    network = nn.Sequential(layer, nn.ReLU())
    other = nn.Linear(2, 3)

    def twice():
        network(network(paddle.ones([1, 2]))[:, :2])
        other(paddle.ones([1, 2]))

    assert multiply_adds([network], twice) == 2 * 6
    assert multiply_adds([network, other], twice) == 3 * 6


# Work in a process of its own, and how its memory is measured


@pytest.fixture
def worker(tmp_path, monkeypatch):
    def write(body):
        text = f"""
            import os
            from ppocr_ext.errors import PPOCRExtError
            def measure(number):
                print("noise")
                {body}
        """
        (tmp_path / "one_worker.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(tmp_path)
        return "one_worker:measure"

    return write


def test_it_answers_whatever_it_prints(worker):
    module = worker("return {'twice': 2 * number, 'process': os.getpid()}")
    found = in_fresh_process(module, {"number": 21})
    assert found["twice"] == 42
    assert found["process"] != in_fresh_process(module, {"number": 21})["process"]


def test_its_errors_are_raised_here(worker):
    with raises_code(PPOCRExtError, "too_many", "21"):
        in_fresh_process(worker("raise PPOCRExtError(f'{number}', code='too_many')"), {"number": 21})


@pytest.mark.parametrize(
    ("number", "code", "name"), [(9, "process_killed", "killed"), (11, "process_failed", "SIGSEGV")]
)
def test_a_process_that_a_signal_ended_is_named_as_that(worker, number, code, name):
    with raises_code(PPOCRExtError, code, name):
        in_fresh_process(worker("os.kill(os.getpid(), number)"), {"number": number})
