"""Exceptions of a dataset reach who reads the batches, with and without worker processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG

BROKEN = ["DataError", "Train: list.txt:6: broken", "failed_sample"]


@pytest.fixture(scope="module")
def found():
    """What each case leads to, by the number of workers."""
    script = Path(__file__).with_name("failing_loaders.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=[0, 1])
def outcomes(request, found):
    """The number of workers, and what each case leads to."""
    return request.param, found[str(request.param)]


def test_a_loader_without_an_error_gives_every_batch(outcomes):
    assert outcomes[1]["numbers"] == [list(range(8))] * 2


def test_an_exception_of_a_dataset_is_raised_after_the_batches_before_it(outcomes):
    """With Paddle's own loader this would wait for ever, or raise another exception."""
    workers, found = outcomes
    for epoch in found["failing"]:
        assert epoch[:4] == [2, *BROKEN]
        assert ("__getitem__" in epoch[4]) == bool(workers)  # the traceback of the worker process


def test_an_exception_that_cannot_be_sent_is_named(outcomes):
    workers, found = outcomes
    sent = (
        ["RuntimeError", "UnsendableError: of two parts"] if workers else ["UnsendableError", "of two parts"]
    )
    assert found["unsendable"][:3] == [0, *sent]


def test_samples_of_different_sizes_are_an_exception(outcomes):
    assert outcomes[1]["uneven"][:2] == [0, "ValueError"]


def test_loaders_that_are_read_in_turns_keep_their_own_exceptions(outcomes):
    """A prefetched batch of Train fails; an evaluation is read before that is known, and fails too."""
    evaluated, trained = outcomes[1]["in turns"]
    assert "of two parts" in evaluated[2]
    assert trained[:4] == [1, *BROKEN]


def test_no_hook_of_the_process_is_changed(outcomes):
    assert outcomes[1]["hook is as before"]
