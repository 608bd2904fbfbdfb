"""The order of the experiment, what it chooses and what it tables; the runs themselves are stood in for."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from error_codes import raises_code
from experiments import look_alikes, runs
from experiments.look_alike_lines import FONTS
from experiments.look_alike_results import by_nearness, score, to_markdown
from experiments.look_alikes import Experiment, Settings
from experiments.runs import RunFailedError, RunStopped, Training, command, side_by_side
from PIL import Image

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.predictions import Prediction

SMALL = Settings(
    lines=10,
    judged=4,
    epochs=1,
    choice_epochs=1,
    tune_epochs=1,
    seeds=(1, 2),
    weights=(0.1, 0.2),
    margins=(0.5,),
)


def lines(texts, label="未土"):
    return [Prediction(f"{i}.png", label, text, 1.0) for i, text in enumerate(texts)]


def write_centers(path, characters, centers):
    count = len(characters)
    CenterTable(
        np.arange(1, count + 1), tuple(characters), np.array(centers, "float32"), np.full(count, 10),
        np.ones(count), {},
    ).save(path)  # fmt: skip


def test_no_font_is_in_two_splits():
    names = [name for fonts in FONTS.values() for name in fonts]
    assert len(names) == len(set(names))
    assert all(name.startswith(("Noto", "SourceHan")) for name in names)


def test_what_is_judged():
    seen = score(lines(["未土", "末土", "未上"]), lines(["未土", "未士"]), ["未末", "土士"])
    assert (seen.look_alikes.hits, seen.look_alikes.total) == (1, 6)
    assert seen.right == (True, False, False)
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


def test_errors_are_tabled_by_how_near_the_centers_lay_before():
    before = {"未": 0.5, "末": 1.0, "土": 2.0, "士": 2.5, "己": 4.0, "已": 5.0}
    groups = ["未末", "土士", "己已"]

    def of(*texts):
        return score(lines(texts, "未土己"), lines(["未"], "未"), groups)

    plain = [of("末土己", "末土己"), of("未士己", "未土己")]
    margin = [of("未士己", "末土己"), of("未士己", "未土己")]
    rows = by_nearness({"student": plain[:1], "plain": plain, "margin": margin}, before, "plain").splitlines()
    assert rows[0].split("|")[2:5] == [
        " centers 0.50 to 1.00 standard deviations apart before ",
        " centers 2.00 to 2.50 standard deviations apart before ",
        " centers 4.00 to 5.00 standard deviations apart before ",
    ]
    assert rows[2:] == [
        "| student | 100.00 % | 0.00 % | 0.00 % |",
        "| plain | 50.00 % | 25.00 % | 0.00 % |",
        "| margin | 25.00 % (-50%) | 50.00 % (+100%) | 0.00 % |",
    ]


class Bench:
    """Stands in for the processes: notes what is trained, and lets a reading be as wrong as is said."""

    def __init__(self, monkeypatch, errors):
        self.trained, self.read, self.threads = [], [], {}
        self.errors = errors
        monkeypatch.setattr(look_alikes, "make_lines", lambda *args: None)
        monkeypatch.setattr(look_alikes, "train", self.train)
        monkeypatch.setattr(look_alikes, "read_lines", self.read_lines)
        monkeypatch.setattr(look_alikes, "read_predictions", self.predictions)
        monkeypatch.setattr(look_alikes, "command", self.export)

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
    table = Experiment(tmp_path / "out", SMALL).run(processes=1)
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
    with Image.open(tmp_path / "out" / "results.png") as picture:
        pixels = {color: count for count, color in picture.convert("RGB").getcolors(1 << 24)}
    assert pixels[158, 202, 225] > 10_000  # the bars


def test_fine_tunings_can_be_put_together_and_differ_in_the_loss_alone(bench, tmp_path):
    stood_in = bench({})
    Experiment(tmp_path / "out", SMALL).run(processes=1)
    others = []
    for run in stood_in.trained:
        config = load(list(run.configs), run.options()[run.options().index("-o") + 1 :])
        losses = [next(iter(loss)) for loss in config.at("Loss.loss_config_list")]
        assert ("CenterLoss" in losses) == run.folder.name.startswith(("center", "aligned", "margin"))
        if run.folder.parent.name == "tuned":
            others.append(
                {k: v for k, v in run.values.items() if "CenterLoss" not in k and k != "Global.seed"}
            )
    assert others and all(values == others[0] for values in others)


def test_a_folder_of_other_settings_is_refused(tmp_path):
    Experiment(tmp_path, SMALL)
    Experiment(tmp_path, SMALL)
    with raises_code(ConfigError, "other_options", tmp_path):
        Experiment(tmp_path, Settings())


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(runs, "command", lambda name, arguments, log, threads: called.append(arguments))
    run = Training(tmp_path / "run", (Path("a.yml"),), {"Global.seed": 1})
    runs.train(run)
    assert called[-1] == [
        "-c", "a.yml", "-o", "Global.seed=1", f'Global.save_model_dir="{tmp_path / "run"}"', "--overwrite"
    ]  # fmt: skip
    run.folder.mkdir()
    run.latest.with_suffix(".pdparams").write_bytes(b"")
    runs.train(run)
    assert called[-1][-1] == f"Global.checkpoints={run.latest}"
    (run.folder / "run.json").write_text('{"status": "finished"}')
    runs.train(run)
    assert len(called) == 2


def test_images_to_test_on_are_drawn_with_a_seed_of_their_own(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(runs, "command", lambda name, arguments, log: called.append([name, *arguments]))
    runs.draw_data_and_test("captcha", tmp_path, (30, 20, 10), ["--length", "4"])
    drawn = ["make-dataset", "captcha", "--out"]
    assert called == [
        [*drawn, f"{tmp_path}/data", "--train", "30", "--val", "20", "--seed", "1", "--length", "4"],
        [*drawn, f"{tmp_path}/test", "--train", "0", "--val", "10", "--seed", "2", "--length", "4"],
    ]


def test_a_command_that_fails_says_what_it_said(tmp_path):
    shown = f"ppocr-ext train -c '{tmp_path}/missing file.yml'\n"
    with raises_code(RunFailedError, "run_failed", shown):
        command("train", ["-c", str(tmp_path / "missing file.yml")], tmp_path / "logs" / "run.log")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (130, RunStopped), (143, RunStopped), (-2, RunStopped), (-15, RunStopped),
        (-9, RunFailedError), (137, RunFailedError), (-11, RunFailedError), (1, RunFailedError),
    ],
)  # fmt: skip
def test_a_stop_is_no_failure_and_a_kill_is(tmp_path, monkeypatch, code, error):
    monkeypatch.setattr(runs, "exit_code", lambda *args: code)
    with pytest.raises(error):
        command("train", [], tmp_path / "run.log")


@pytest.mark.parametrize("at_once", [1, 2])
def test_after_the_first_error_no_job_begins(at_once):
    begun = []

    def job(number):
        begun.append(number)
        if number == 1:
            raise ConfigError("no")

    with pytest.raises(ConfigError):
        side_by_side([partial(job, number) for number in range(50)], at_once)
    assert len(begun) <= 1 + at_once


def test_an_error_is_raised_rather_than_that_another_run_was_stopped(caplog):
    def stopped():
        time.sleep(0.2)
        raise RunStopped

    def failed():
        raise RunFailedError("the disk is full", code="disk_full")

    with raises_code(RunFailedError, "disk_full"):
        side_by_side([stopped, failed], 2)
    assert "the disk is full" in caplog.text


CHILD = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.6), pathlib.Path(sys.argv[1]).write_text("saved"), sys.exit(130)))
print(os.getpid(), flush=True)
time.sleep(900)
"""


def test_ctrl_c_waits_until_a_run_is_saved(tmp_path):
    log, saved = tmp_path / "log", tmp_path / "saved"

    def interrupt():
        while not log.read_text().endswith("\n"):
            time.sleep(0.02)
        os.kill(int(log.read_text()), signal.SIGINT)  # a terminal sends it to both
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    log.touch()
    threading.Thread(target=interrupt).start()
    with log.open("w") as stream, pytest.raises(KeyboardInterrupt):
        runs.exit_code([sys.executable, "-c", CHILD, str(saved)], stream, os.environ)
    assert saved.read_text() == "saved"


def test_after_ctrl_c_no_job_begins_and_those_that_run_come_to_their_end():
    begun, ended = [], []

    def job(number):
        begun.append(number)
        if number == 0:
            time.sleep(0.2)  # until all are submitted
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.2)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        side_by_side([partial(job, number) for number in range(5)], 1)
    assert begun == ended == [0]
