"""``Global.recompute`` in a run: the same weights bit for bit, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code
from tiny_runs import ONE_BRANCH

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train


class Blocks(Hook):
    """Count the blocks that compute their activations again, by sub-model."""

    def on_start(self, run, training):
        self.found = {
            name: sum(getattr(layer, "recomputes", False) for layer in model.sublayers())
            for name, model in run.network.models.items()
        }


@pytest.mark.e2e
def test_a_run_is_the_same(tiny, tmp_path):
    def trained(name, recompute):
        blocks = Blocks()
        values = {
            "Global.save_model_dir": str(tmp_path / name),
            "Global.recompute": recompute,
            "Global.accumulate": 2,
            "Global.ema": 0.9,
        }
        train(tiny("distill", **values), hooks=[blocks])
        return Checkpoint(tmp_path / name / "latest").weights(), blocks.found

    (ours, found), (plain, without) = trained("recomputed", True), trained("plain", False)
    # of the backbone 4, of the neck of CTC 1, of NRTR 1 (before_gtc has none)
    assert found == {"Teacher": 0, "Student": 6} and without == {"Teacher": 0, "Student": 0}
    assert ours.keys() == plain.keys()
    for name, value in plain.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.e2e
def test_a_network_without_such_blocks_is_refused(tiny, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    config = tiny("student", **{"Global.recompute": True, **ONE_BRANCH})
    monkeypatch.setattr("ppocr_ext.run.run.open_data", None)  # it is refused before any data are read
    with raises_code(InvalidConfigError, "unsupported_model", "Global.recompute", "BaseModel"):
        train(config)


def test_a_compiled_network_is_refused(tiny):
    with raises_code(InvalidConfigError, "conflicting_keys", "Global.recompute", "to_static"):
        train(tiny("student", **{"Global.recompute": True, "Global.to_static": True}))
