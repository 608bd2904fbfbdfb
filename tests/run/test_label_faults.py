"""Labels that would train to a wrong number end the run before they reach the model."""

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.host import open_host
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.host_config import host_config
from ppocr_ext.run.loader import Loader, loader_parts
from ppocr_ext.run.loader_setup import label_check

DIGITS = Charset(tuple("0123456789"))


class PluginLabels:
    """A dataset of a user's own, which encodes its labels itself."""

    def __init__(self, config, mode, logger, seed=None):
        pass

    @classmethod
    def known_keys(cls):
        return ()

    def __len__(self):
        return 24

    def __getitem__(self, index):
        ctc, nrtr = np.zeros(8, np.int64), np.zeros(8, np.int64)
        ctc[: len(self.ids)], nrtr[0] = self.ids, self.second
        return [np.zeros((3, 32, 128), np.float32), ctc, nrtr, np.array(len(self.ids)), np.float64(1)]


@pytest.fixture
def loader(tiny, monkeypatch):
    """``loader(ids, second)``: a loader of these labels for CTC, which has 7 frames, and for NRTR."""
    monkeypatch.setitem(DATASETS._own, "PluginLabels", PluginLabels)
    transforms = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    kept = [entry for entry in transforms if "MultiLabelEncode" in entry or "KeepKeys" in entry]
    config = tiny("student", **{"Train.dataset": {"name": "PluginLabels", "transforms": kept}})

    def build(ids, second=2):
        monkeypatch.setattr(PluginLabels, "ids", ids, raising=False)
        monkeypatch.setattr(PluginLabels, "second", second, raising=False)
        check = label_check(config, DIGITS, lambda height, width: 7)
        return Loader(loader_parts(open_host(), host_config(config), "Train", 1), check)

    return build


@pytest.mark.parametrize(
    ("ids", "second", "code", "facts"),  # the sample's own ids, and the number that is wrong or its limit
    [
        ([1, 11, 3], 2, "bad_label", ("[1, 11, 3]", "1 to 10")),
        ([1, -1, 3], 2, "bad_label", ("[1, -1, 3]", "1 to 10")),
        ([1, 0, 3], 2, "bad_label", ("[1, 0, 3]", "class 0")),
        ([], 2, "bad_label", ("no label of the batch",)),
        ([1, 2, 3, 3, 4, 4], 2, "too_long_for_frames", ("[1, 2, 3, 3, 4, 4]", "8 frames", "7")),
        ([1, 2, 3], 99, "bad_label", ("99", "0 to 14")),
    ],
    ids=["too high", "below 0", "blank inside", "empty", "too long for frames", "second label"],
)
def test_each_fault_ends_the_run(loader, ids, second, code, facts):
    with raises_code(DataError, code, "Train.dataset.transforms: ", *facts):
        list(loader(ids, second))


def test_right_labels_are_read_and_nothing_is_said(loader, caplog):
    assert len(list(loader([1, 2, 2, 3]))) == 3  # 24 samples in batches of 8
    assert caplog.messages == []


def test_labels_are_checked_where_something_trains_with_ctc(tiny):
    for kind in ("student", "distill"):
        assert label_check(tiny(kind), DIGITS, None) is not None
    assert label_check(tiny("student", Loss={"name": "NRTRLoss"}), DIGITS, None) is None
    kept = {"Train.dataset.transforms": [{"KeepKeys": {"keep_keys": ["image", "text"]}}]}
    assert label_check(tiny("student", **kept), DIGITS, None) is None
