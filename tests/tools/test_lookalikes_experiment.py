"""The order of the experiment, what it chooses and what it tables; the runs themselves are stood in for."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from experiments import lookalikes
from experiments.lookalikes import Experiment, score, to_markdown

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.evaluation.predictions import Prediction


def lines(texts, label="未土"):
    return [Prediction(f"{i}.png", label, text, 1.0) for i, text in enumerate(texts)]


def write_centers(path, characters, centers):
    count = len(characters)
    CenterTable(
        np.arange(1, count + 1), tuple(characters), np.array(centers, "float32"), np.full(count, 10),
        np.ones(count), {},
    ).save(path)  # fmt: skip


def test_what_is_judged():
    seen = score(lines(["未土", "末土", "未上"]), lines(["未土", "未士"]), ["未末", "土士"])
    assert (seen.look_alikes.hits, seen.look_alikes.total) == (1, 6)
    assert seen.rich == (True, False, False)
    assert seen.general.value == 0.5


def test_the_table_compares_with_plain():
    def of(wrong):
        return score(lines(["末土"] * wrong + ["未土"] * (100 - wrong)), lines(["未土"]), ["未末", "土士"])

    plain = [replace(of(40), separations={"未": 1.0, "末": 3.0}), replace(of(20), separations={"未": 3.0})]
    table = to_markdown({"student": [of(50)], "plain": plain, "margin": [of(10), of(20)]}, "plain")
    rows = {
        row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]]
        for row in table.splitlines()
    }
    assert rows["student"][:3] == ["25.00 %", "", ""]
    assert rows["plain"][:3] == ["15.00 ± 7.07 %", "", ""]
    assert rows["margin"][:2] == ["7.50 ± 3.54 %", "-50%"]
    assert [rows[name][-1] for name in ("student", "plain", "margin")] == ["", "2.50 ± 0.71", ""]
    first, second = map(float, rows["margin"][2].split(", "))
    assert first < 1e-6
    assert second == 1.0


class Bench:
    """Stands in for the processes: notes what is trained, and lets a reading be as wrong as is said."""

    def __init__(self, monkeypatch, errors):
        self.trained, self.read, self.threads = [], [], {}
        self.errors = errors
        monkeypatch.setattr(Experiment, "draw_lines", lambda self: None)
        monkeypatch.setattr(lookalikes, "WEIGHTS", (0.1, 0.2))
        monkeypatch.setattr(lookalikes, "MARGINS", (0.5,))
        monkeypatch.setattr(lookalikes, "train", self.train)
        monkeypatch.setattr(lookalikes, "read_lines", self.read_lines)
        monkeypatch.setattr(lookalikes, "read_predictions", self.predictions)
        monkeypatch.setattr(lookalikes, "command", self.export)

    def train(self, run, threads=1):
        self.trained.append(run)
        self.threads[run.folder.name] = threads
        return run

    def read_lines(self, run, data, output):
        self.read.append((run.folder, data.name))
        return run.folder / output.name

    def predictions(self, path):
        wrong = next((n for name, n in self.errors.items() if path.parent.name.startswith(name)), 5)
        return lines(["末土"] * wrong + ["未土"] * (10 - wrong))

    def export(self, name, arguments, log):
        assert name == "export-center"
        log.parent.mkdir(parents=True, exist_ok=True)
        write_centers(Path(arguments[arguments.index("--output") + 1]), "未末", [[0, 0], [0, 2]])


@pytest.fixture
def bench(monkeypatch):
    return partial(Bench, monkeypatch)


def test_what_reads_the_fonts_of_val_best_is_tested_once_and_last(bench, tmp_path):
    stood_in = bench({"center_w0.2": 1, "aligned_w0.1": 2, "margin_w0.2_m2": 3, "plain": 4})
    table = Experiment(tmp_path / "out", [1, 2], at_once=1).run()
    tested = [folder.name for folder, data in stood_in.read if data == "test"]
    chosen = ["plain", "center_w0.2", "aligned_w0.1", "margin_w0.2_m2"]
    assert sorted(tested) == sorted(
        ["distilled", *(f"{key}_seed{seed}" for key in chosen for seed in (1, 2))]
    )
    names = [name.removesuffix("_general") for _, name in stood_in.read]
    assert names == sorted(names, reverse=True) and len(set(stood_in.read)) == len(names)
    assert len({run.folder for run in stood_in.trained}) == 2 + 7 + 8
    first, second = table.split("\n\n")
    for rows in (first.splitlines(), second.splitlines()):
        assert [row.split("|")[1].strip() for row in rows[2:]] == ["student", *chosen]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [seed["separation"] for seeds in results.values() for seed in seeds] == [2.0] * 9
