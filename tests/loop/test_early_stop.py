"""Finish a run that no longer gets better, and refuse to resume it unasked."""

import json
from types import SimpleNamespace

import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import ConfigError
from ppocr_ext.loop.events import EvalDone, Position
from ppocr_ext.loop.hooks.early_stop import EarlyStop
from ppocr_ext.loop.session import train


def stop_after(accuracies, patience, min_delta=None):
    """After how many evaluations the hook asks for the end; None if it does not."""
    hook, asked = EarlyStop(patience, min_delta), []
    hook.loop = SimpleNamespace(request_stop=lambda reason, status: asked.append(status))
    metric = SimpleNamespace(main_indicator="acc")
    hook.on_start(SimpleNamespace(metric=metric), SimpleNamespace(hook_states={}, best={}, start=Position()))
    for number, accuracy in enumerate(accuracies, 1):
        hook.on_eval(EvalDone(Position(), {"acc": accuracy}, False, {}))
        if asked:
            assert asked == ["finished"]
            return number
    return None


@pytest.mark.parametrize(
    ("accuracies", "patience", "min_delta", "expected"),
    [
        ([0.1, 0.2, 0.3, 0.4], 1, None, None),
        ([0.1, 0.1, 0.2, 0.2, 0.2], 2, None, 5),  # a better one in between counts anew
        ([0.0, 0.0, 0.0], 2, None, 3),
        ([0.5, 0.505, 0.509, 0.52], 3, 0.01, None),  # 0.52 exceeds 0.5, not only the one before
        ([0.5, 0.505, 0.51, 0.52], 2, 0.01, 3),
    ],
)
def test_patience_counts_evaluations_without_a_better_one(accuracies, patience, min_delta, expected):
    assert stop_after(accuracies, patience, min_delta) == expected


@pytest.mark.e2e
def test_a_run_that_gets_no_better_finishes_and_goes_on_only_if_told(tiny, tmp_path):
    """Its accuracy stays 0: the first evaluation is the best."""
    run, latest = tmp_path / "run", str(tmp_path / "run" / "latest")
    often = {"Global.eval_batch_step": [0, 1], "Global.early_stop": {"patience": 1}}
    outcome = train(tiny("student", **often))
    assert (outcome.status, outcome.position.global_step) == ("finished", 2)
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["global_step"]) == ("finished", 2)
    assert "early stop" in record["reason"]
    assert Checkpoint(latest).train_state().position.global_step == 2
    again = {**often, "Global.checkpoints": latest}
    with raises_code(ConfigError, "nothing_left", "Global.early_stop.patience"):
        train(tiny("student", **again))
    assert json.loads((run / "run.json").read_text()) == record
    outcome = train(tiny("student", **again, **{"Global.early_stop.patience": 3}))
    assert (outcome.status, outcome.position.global_step) == ("finished", 4)  # it has gone on counting
