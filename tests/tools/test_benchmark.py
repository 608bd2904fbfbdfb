"""The benchmark as a command: ratios of one run, in a table."""

import os
import signal
import time

import paddle.distributed as dist
import pytest
from benchmark import main
from benchmarks.step import measure_step
from benchmarks.stepping import stepping_processes
from benchmarks.table import Turns
from error_codes import raises_code
from waiting import HANG

from ppocr_ext.errors import HostError, PPOCRExtError


def test_ratios_are_of_the_same_round_and_have_a_spread():
    turns = Turns("", {"bare": [1.0, 2.0, 12.0], "ours": [2.0, 3.0, 3.0]}, "step", "bare")
    assert "| ours | 3.000 | 2.000 | 1.50 (0.25–2.00) |" in turns.to_markdown()


def test_a_peer_that_is_no_checkout_is_named(tmp_path):
    with raises_code(HostError, "not_a_checkout", tmp_path):
        measure_step("tiny", 1, rounds=1, peer=str(tmp_path))


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
