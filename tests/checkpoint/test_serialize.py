import os
import pickle

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.files import read_plain_pickle, read_state
from ppocr_ext.errors import WeightsError


def test_reads_what_paddle_saves(tmp_path):
    layer = paddle.nn.Linear(3, 2)
    paddle.save(layer.state_dict(), str(tmp_path / "a.pdparams"))
    state = read_state(tmp_path / "a.pdparams")
    assert sorted(state) == ["bias", "weight"]
    np.testing.assert_array_equal(state["weight"], layer.weight.numpy())


def test_reads_tensors_that_paddle_wraps_with_their_name(tmp_path):
    paddle.save({"a": paddle.ones([2])}, str(tmp_path / "a.pdparams"))
    np.testing.assert_array_equal(read_state(tmp_path / "a.pdparams")["a"], np.ones(2, "float32"))


def test_reads_old_pickle_protocols_and_numpy_scalars(tmp_path):
    content = {"epoch": 3, "best_model_dict": {"acc": np.float64(0.5), "ids": np.arange(3)}}
    (tmp_path / "a.states").write_bytes(pickle.dumps(content, protocol=2))
    found = read_plain_pickle(tmp_path / "a.states")
    assert found["epoch"] == 3
    assert found["best_model_dict"]["acc"] == 0.5


class _Shout:
    def __reduce__(self):
        return os.system, ("echo ran > /dev/null",)


def test_refuses_to_run_code_from_a_file(tmp_path):
    (tmp_path / "evil.pdparams").write_bytes(pickle.dumps({"a": _Shout()}))
    with raises_code(WeightsError, "damaged_file", "posix.system"):
        read_state(tmp_path / "evil.pdparams")


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x80\x04"])
def test_names_a_damaged_file(tmp_path, content):
    path = tmp_path / "bad.pdparams"
    path.write_bytes(content)
    with raises_code(WeightsError, "damaged_file", str(path)):
        read_state(path)


def test_names_a_truncated_checkpoint(tmp_path):
    path = tmp_path / "cut.pdparams"
    paddle.save(paddle.nn.Linear(30, 20).state_dict(), str(path))
    path.write_bytes(path.read_bytes()[:-200])
    with raises_code(WeightsError, "damaged_file", str(path)):
        read_state(path)


def test_missing_file_is_named(tmp_path):
    with raises_code(WeightsError, "missing_file", "nowhere.pdparams"):
        read_state(tmp_path / "nowhere.pdparams")
