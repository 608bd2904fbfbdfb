"""Training on two hosts, which are namespaces of this machine; see two_hosts.py."""

import numpy as np
import pytest
from two_hosts import finish, launch, two_hosts

from ppocr_ext.checkpoint.files import read_state

pytestmark = pytest.mark.e2e


@pytest.fixture
def hosts(tmp_path):
    with two_hosts(tmp_path) as both:
        yield both


def test_two_hosts_train_as_two_processes_of_one(hosts, captchas):
    for host in hosts:
        host.furnish(captchas)
    jobs = [launch(host, "train", "-c", "train.yml") for host in hosts]
    finish(jobs, 0, 0)

    one, two = hosts
    alone = one.ppocr_ext("train", "-c", "train.yml", "--processes", 2, "-o", "Global.save_model_dir=alone")
    finish([alone], 0)
    for checkpoint in ("latest", "best_accuracy"):
        expected = read_state(one.folder / "alone" / f"{checkpoint}.pdparams")
        trained = read_state(one.folder / "run" / f"{checkpoint}.pdparams")
        assert trained.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(trained[name], value, err_msg=name)
    assert not list(two.folder.glob("run/*"))  # process 0 alone writes
