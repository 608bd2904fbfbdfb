"""Work done in several processes: its order, and its end where one of them is killed or stumbles."""

import os
import signal
import time

import pytest

from ppocr_ext.errors import DataError
from ppocr_ext.synth.dataset_folder import map_in_processes


class Doubles:
    def __call__(self, task):
        if task == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "stumbles":
            raise DataError("no font", code="bad_font")
        time.sleep(0.01 * (5 - task))
        return 2 * task


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_tasks(processes):
    with map_in_processes(Doubles(), [0, 1, 2, 3, 4], processes) as results:
        assert list(results) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(("task", "code"), [("killed", "process_killed"), ("stumbles", "bad_font")])
def test_a_process_that_fails_ends_the_work(task, code):
    with pytest.raises(DataError) as error, map_in_processes(Doubles(), [task, 1, 2], 2) as results:
        list(results)
    assert error.value.code == code
