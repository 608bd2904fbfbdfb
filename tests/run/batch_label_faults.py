"""Read the first epoch of loaders whose labels are wrong, in a process of its own: a fork beside threads may lock.

``python batch_label_faults.py IMAGES FOLDER``: the outcome of each fault as JSON, by dataset and number of workers.
"""

import json
import logging
import sys
import time
from pathlib import Path

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.host import open_host
from ppocr_ext.messages import error_text
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.host_config import host_config
from ppocr_ext.run.loader import Loader, loader_parts
from ppocr_ext.run.loader_setup import label_check

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]
from tiny_runs import tiny_config  # noqa: E402

IDS = {
    "healthy": [1, 2, 2, 3],
    "class too high": [1, 11, 3],
    "class below 0": [1, -1, 3],
    "blank inside": [1, 0, 3],
    "empty batch": [],
    "too long for frames": [1, 2, 3, 3, 4, 4],  # 8 frames
    "second label": [1, 2, 3],
}
FRAMES = 7


class PluginLabels:
    """A dataset of a user's own, that encodes its labels itself."""

    fault = "healthy"

    def __init__(self, config, mode, logger, seed=None):
        self.size = 24

    @classmethod
    def known_keys(cls):
        return ()

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        ids = IDS[self.fault]
        label, second = np.zeros(8, np.int64), np.zeros(8, np.int64)
        label[: len(ids)] = ids
        second[0] = 99 if self.fault == "second label" else 2
        return [np.zeros((3, 32, 128), np.float32), label, second, np.array(len(ids)), np.float64(1)]


def config_of(dataset, workers, images, folder):
    config = tiny_config(images, folder, "student", **{"Train.loader.num_workers": workers})
    if dataset == "PluginLabels":
        transforms = config.thaw()["Train"]["dataset"]["transforms"]
        kept = [entry for entry in transforms if "MultiLabelEncode" in entry or "KeepKeys" in entry]
        config = config.with_values({"Train.dataset": {"name": dataset, "transforms": kept}})
    return config


def inject(fault):
    """Let the dataset, and the host's encoders, give the labels of ``fault``."""
    from ppocr.data.imaug import label_ops

    PluginLabels.fault = fault
    ids = IDS[fault]

    def encode(self, data):
        return {**data, "label": np.array(ids + [0] * (8 - len(ids))), "length": np.array(len(ids))}

    label_ops.CTCLabelEncode.__call__ = encode
    second = (lambda self, text: [99]) if fault == "second label" else label_ops.BaseRecLabelEncode.encode
    label_ops.NRTRLabelEncode.encode = second


def outcome(dataset, workers, images, folder, fault):
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    host = open_host()
    config = config_of(dataset, workers, images, folder)
    charset = Charset.from_file(config.at("Global.character_dict_path"))
    check = label_check(config, charset, lambda height, width: FRAMES)
    inject(fault)
    loader = Loader(loader_parts(host, host_config(config), "Train", 1), check)
    logging.getLogger("ppocr_ext").addHandler(handler)
    try:
        reading = iter(loader)
        time.sleep(
            0.5 if workers else 0
        )  # a worker that fails at once has failed when its first batch is asked for
        batches = sum(1 for _ in reading)
    except Exception as error:
        return error_text(error), said
    finally:
        logging.getLogger("ppocr_ext").removeHandler(handler)
    return batches, said


if __name__ == "__main__":
    DATASETS.register()(PluginLabels)
    images, scratch = map(Path, sys.argv[1:])
    found = {
        f"{name} {workers}": {fault: outcome(name, workers, images, scratch, fault) for fault in IDS}
        for workers in (2, 0)  # forks first: beside the threads of another loader they may lock
        for name in ("SimpleDataSet", "PluginLabels")
    }
    print(json.dumps(found))
