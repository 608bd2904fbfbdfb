"""Going back to the last good state; whole rollbacks are in test_nonfinite_runs.py."""

from types import SimpleNamespace

import pytest
from error_codes import raises_code

from ppocr_ext.errors import WeightsError
from ppocr_ext.loop import last_good
from ppocr_ext.loop.accumulation import Group
from ppocr_ext.loop.last_good import LastGood


@pytest.mark.parametrize("seen_here", [True, False])
def test_processes_that_see_different_checkpoints_do_not_go_back(tmp_path, monkeypatch, seen_here):
    state = LastGood(SimpleNamespace(folder=tmp_path), dict, Group(1, {}))
    if seen_here:
        (tmp_path / "latest.states").write_bytes(b"")
    other = int(not seen_here)
    answers = iter([other, 1 - other])  # of the other process, to the two questions
    monkeypatch.setattr(
        last_good, "team", lambda: SimpleNamespace(highest=lambda mine: max(mine, next(answers)))
    )
    with raises_code(WeightsError, "missing_file", "latest.states", "Global.nonfinite: skip"):
        state.restore()
