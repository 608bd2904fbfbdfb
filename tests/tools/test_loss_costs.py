"""The benchmark of losses: a run of the tiny size with a peer, and its verdict by hand."""

import re
import sys

import pytest
from benchmark import main
from benchmarks import fresh, losses
from benchmarks.losses import OURS, LossCosts
from benchmarks.step import PEER

NAMES = ["DistillationDKDLoss", "DistillationCTCLoss", "DistillationNRTRLoss", "DistillCTCLogits"]


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose losses are ours, and change what they are given."""
    (tmp_path / "ppocr" / "modeling").mkdir(parents=True)
    package = tmp_path / "ppocr" / "losses"
    package.mkdir()
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text(
        "from ppocr_ext.losses import build_loss as ours\n"
        "def build_loss(config):\n"
        "    loss = ours(config)\n"
        "    def call(predicts, batch):\n"
        "        values = loss(predicts, batch)\n"
        "        predicts['Teacher']['head_out']['ctc'].scale_(-1.0)\n"
        "        return values\n"
        "    return call\n"
    )
    before = host_modules()
    yield tmp_path
    for name in host_modules():
        del sys.modules[name]
    sys.modules.update(before)  # other tests of this process have the host's


def host_modules():
    return {name: each for name, each in sys.modules.items() if name.partition(".")[0] in ("ppocr", "tools")}


def test_a_row_for_each_loss_and_one_for_all(in_this_process, checkout, capsys):
    in_this_process(fresh)
    command = ["losses", "--size", "tiny", "--batch", "2", "--rounds", "2", "--peer", str(checkout)]
    assert main(command) == 0  # what a loss does to its input reaches no other one
    shown = capsys.readouterr().out
    for name in [*NAMES, losses.ALL]:
        assert re.search(
            rf"^\| {name} \| [\d.]+ \| [\d.]+ \| [\d.]+ \([\d.]+–[\d.]+\) \| [\d.]+ \| [\d.]+ \|$",
            shown,
            re.MULTILINE,
        )


@pytest.mark.parametrize(("value", "agrees"), [(2.0001, True), (2.001, False), (float("nan"), False)])
def test_another_value_is_no_agreement(value, agrees):
    seconds, values, peaks = {OURS: [1.0], PEER: [4.0]}, {OURS: 2.0, PEER: value}, {OURS: 10**6, PEER: 10**7}
    costs = LossCosts("", *({"CTCLoss": each} for each in (seconds, values, peaks)))
    assert costs.agrees is agrees
    assert "| CTCLoss | 1000.0 | 4000.0 | 4.00 (4.00–4.00) | 1.0 | 10.0 |" in costs.to_markdown()
