"""The comparison of ways to train a released model: equal time, the same lines, schedules of that length."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest
from experiments import begin_from, runs
from experiments.begin_from import ARMS, PROBED, Stage
from experiments.runs import Training

from ppocr_ext.evaluation.predictions import Prediction, write_predictions
from ppocr_ext.io.resources import config_root

LINES = 10
CONFIG = """\
_BASE_: {base}
Global: {{epoch_num: 20, pretrained_model: released}}
Optimizer: {{lr: {{warmup_epoch: 2}}}}
Train: {{sampler: null, loader: {{batch_size_per_card: 4}}}}
"""
SECONDS = {"slow": 2.0, "first": 0.5, "then": 1.0}  # of a step, by the mark of the arm


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict]:
    """Replace `init`, trainings and readings; return the values of each training, by its folder."""
    values: dict[str, dict] = {}
    spent = [0.0]  # by all trainings so far

    def run_command(folder: Path, name: str, words: list[str]) -> float:
        my = Path(words[words.index("--out") + 1])
        my.mkdir()
        (my / "config.yml").write_text(CONFIG.format(base=config_root() / "pp-ocr/v6_small.yml"))
        names = sorted(each.name for each in (my.parent / "data").iterdir())
        (my / "train.txt").write_text("".join(f"{name}\t{name[0]}\n" for name in names))
        return 0.0

    def train(run: Training) -> Training:
        values[f"{run.folder.parent.name}/{run.folder.name}"] = run.values
        run.folder.mkdir()
        steps = run.values["Global.eval_batch_step"][1]
        spent[0] += 12 + steps * SECONDS.get(str(run.values.get("mark")), 1.0)
        record = {"parameters": {"trained": 1_000_000}, "global_step": steps}
        (run.folder / "run.json").write_text(json.dumps(record))
        return run

    def read_lines(run: Training, data: Path, output: Path) -> Path:
        write_predictions(output, [Prediction("a", "1", "1" if run.values.get("mark") else "7", 1.0)] * 4)
        return output

    times = Namespace(times=lambda: Namespace(children_user=spent[0], children_system=1.0))
    monkeypatch.setattr(begin_from, "os", times)
    monkeypatch.setattr(begin_from, "run_command", run_command)
    monkeypatch.setattr(begin_from, "train", train)
    monkeypatch.setattr(runs, "read_lines", read_lines)
    monkeypatch.setitem(ARMS, "slow", [Stage(1, {"mark": "slow"})])
    monkeypatch.setitem(ARMS, "two", [Stage(0.25, {"mark": "first"}), Stage(0.75, {"mark": "then"})])
    return values


def test_arms_train_in_equal_time_on_the_lines_of_their_seed(
    trained: dict[str, dict], tmp_path: Path
) -> None:
    data = tmp_path / "images"
    data.mkdir()
    for number in range(LINES + 5):
        (data / f"{number:02d}.png").touch()
    (data / "list.txt").write_text("a.png\ta\n")
    words = {"data": data, "text": "(.)", "test": data / "list.txt", "base": "released", "seconds": 20.0}
    args = Namespace(out=tmp_path / "out", arms=["slow", "two"], seeds=[1, 2], lines=LINES, **words)
    table = begin_from.run_experiment(args)

    steps = {name: each["Global.eval_batch_step"][1] for name, each in trained.items()}
    assert {name.partition("/")[0] for name in steps if "probe" in name} == {"seed1"}
    assert sum("probe" in name for name in steps) == 4 * len(PROBED)
    counts = {"defaults_0": 20, "slow_0": 10, "two_0": 10, "two_1": 15}  # seconds * share / those of a step
    assert {name: steps[f"seed2/{name}"] for name in counts} == counts
    assert trained["seed2/two_1"]["Global.pretrained_model"] == str(tmp_path / "out/seed2/two_0/latest")

    lists = {name: Path(each["Train.dataset.label_file_list"][0]) for name, each in trained.items()}
    order = {name: path.read_text().splitlines() for name, path in lists.items()}
    assert len(order["seed1/slow_0"]) == 10 * 4
    assert order["seed1/slow_0"] == order["seed1/defaults_0"][: 10 * 4]
    passes = [order["seed1/slow_0"][at : at + LINES] for at in (0, LINES)]
    assert sorted(passes[0]) == sorted(passes[1]) and passes[0] != passes[1]
    assert set(order["seed1/slow_0"]) != set(order["seed2/slow_0"])
    for values in trained.values():
        assert (values["Global.epoch_num"], values["Optimizer.lr.warmup_epoch"]) == (1, 0.1)

    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    assert [row[0].partition(",")[0] for row in rows] == ["defaults", "slow", "two"]
    assert [row[2] for row in rows] == ["20", "10", "15"]
    assert rows[1][4:] == ["100.0, 100.0", "+100.0, +100.0", "0.12, 0.12"]
    assert (tmp_path / "out/test/val_list.txt").read_text() == f"{data.resolve()}/a.png\ta\n"
