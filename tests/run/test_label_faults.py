"""Labels that would train to a wrong number end the run before they reach the model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from batch_label_faults import IDS
from waiting import HANG

from ppocr_ext.charset import Charset
from ppocr_ext.run.loader_setup import label_check

# what the message has to name: the sample's own ids, and the number that is wrong or its limit
NAMED = {
    "class too high": ("[1, 11, 3]", "1 to 10"),
    "class below 0": ("[1, -1, 3]", "1 to 10"),
    "blank inside": ("[1, 0, 3]", "class 0"),
    "empty batch": ("no label of the batch",),
    "too long for frames": ("[1, 2, 3, 3, 4, 4]", "8 frames", "7"),
    "second label": ("99", "0 to 14"),
}


@pytest.fixture(scope="module")
def outcomes(captchas, tmp_path_factory):
    """What each fault leads to, by dataset and number of workers."""
    script = Path(__file__).with_name("batch_label_faults.py")
    command = [sys.executable, str(script), str(captchas), str(tmp_path_factory.mktemp("faults"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", ["SimpleDataSet", "PluginLabels"])
def test_each_fault_ends_the_run_and_a_healthy_one_goes_on(outcomes, dataset, workers):
    found = outcomes[f"{dataset} {workers}"]
    assert found["healthy"] == [3, []]  # 24 samples in batches of 8, and nothing logged
    for fault, named in NAMED.items():
        message = found[fault][0]
        assert str(message).startswith("Train.dataset.transforms: "), f"{fault}: {message}"
        for part in named:
            assert part in message, fault
    assert set(NAMED) | {"healthy"} == set(IDS)


def test_labels_are_checked_where_something_trains_with_ctc(tiny):
    charset = Charset(tuple("0123456789"))
    for kind in ("student", "distill"):
        assert label_check(tiny(kind), charset, None) is not None
    assert label_check(tiny("student", Loss={"name": "NRTRLoss"}), charset, None) is None
    kept = {"Train.dataset.transforms": [{"KeepKeys": {"keep_keys": ["image", "text"]}}]}
    assert label_check(tiny("student", **kept), charset, None) is None
