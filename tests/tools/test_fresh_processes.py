"""Work in a process of its own, and how its memory is measured."""

import sys
import textwrap

import pytest
from benchmark import main
from benchmarks.fresh import in_fresh_process
from error_codes import raises_code

from ppocr_ext.errors import PPOCRExtError


@pytest.fixture
def worker(tmp_path, monkeypatch):
    def write(body):
        text = f"""
            import os
            from ppocr_ext.errors import PPOCRExtError
            def growth_of_64_megabytes():
                import numpy as np
                from benchmarks.memory import PeakGrowth, peak_memory
                passing = np.ones(8_000_000)
                del passing
                growth = PeakGrowth()
                before = growth.bytes
                passing = np.ones(8_000_000)
                del passing
                return dict(exact=growth.exact, before=before, after=growth.bytes, peak=peak_memory())
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


def test_of_a_failure_the_last_lines_are_said(worker):
    with raises_code(PPOCRExtError, "process_failed", "noise", "ZeroDivisionError"):
        in_fresh_process(worker("return {'share': number / 0}"), {"number": 21})


@pytest.mark.parametrize(
    ("number", "code", "name"), [(9, "process_killed", "killed"), (11, "process_failed", "SIGSEGV")]
)
def test_a_process_that_a_signal_ended_is_named_as_that(worker, number, code, name):
    with raises_code(PPOCRExtError, code, name):
        in_fresh_process(worker("os.kill(os.getpid(), number)"), {"number": number})


def test_a_command_whose_process_dies_says_so(monkeypatch, capsys):
    """All arithmetic of a command is in processes of its own: if one dies, the command is there to say it."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert main(["step", "--rounds", "1"]) == 2
    assert "exit code 1" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak cannot be set back")
def test_growth_is_what_comes_after_and_not_what_was_freed_before(worker):
    """In a process of its own: one that has trained keeps what is freed, and does not grow again."""
    found = in_fresh_process(worker("return growth_of_64_megabytes()"), {"number": 0})
    if not found["exact"]:
        pytest.skip("this system does not let the peak be set back")
    assert found["before"] < 16_000_000
    assert 60_000_000 < found["after"] < 80_000_000
    assert found["peak"] > found["after"]
