"""A tiny distillation on a handful of CAPTCHAs: everything a run has, in seconds."""

import pytest
from tiny_runs import captchas, tiny, tiny_config

from ppocr_ext.loop.session import train

__all__ = ["captchas", "tiny"]


@pytest.fixture(scope="session")
def weights(captchas, tmp_path_factory):
    """The checkpoint of one network after an epoch, without the suffix."""
    folder = tmp_path_factory.mktemp("weights")
    train(tiny_config(captchas, folder, "student", **{"Global.epoch_num": 1}))
    return folder / "run" / "latest"
