#!/usr/bin/env python3
"""How long a training from nothing stays at the constant guess: by the neck, and by how it begins.

`necks` trains a network of reduced width and depth whose head is that of configs/svtrv2: 384 channels before the neck,
so that `svtr` narrows them to 48, and the 6,625 classes of PaddleOCR's Chinese dictionary. The backbone learns from
CTC too (`use_guide: false`).

`starts` trains configs/lines/teacher.yml for one epoch on 15,000 lines, begun in several ways. The steps of a first
stage count.

All lines have 2 to 10 letters and digits.

The folder then holds results.md (the table) and one folder for each run. Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import paddle

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from benchmarks.table import markdown  # noqa: E402

from experiments.runs import (  # noqa: E402
    Training,
    command,
    experiment_parser,
    from_command_line,
    side_by_side,
    train,
)
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_path  # noqa: E402
from ppocr_ext.report.run_folder import read_metrics  # noqa: E402

LINES = (2_000, 20_000)
STEPS = 1_250  # one epoch of 20,000
BATCH = 16
GUESS = 27.0  # CTC loss of the best constant guess for such lines
_SVTR = {
    "name": "svtr",
    "kernel_size": [1, 3],
    "depth": 2,
    "dims": 256,
    "hidden_dims": 256,
    "use_guide": False,
}
_SMALL_SVTR = {**_SVTR, "depth": 1, "dims": 64, "hidden_dims": 64}
NECKS: dict[str, dict[str, Any]] = {
    "svtr": _SVTR,
    "lightsvtr": {"name": "lightsvtr", "dims": 256, "depth": 2},
}
NETWORK = {
    "Architecture.Backbone": {
        "name": "SVTRv2",
        "use_pos_embed": False,
        "dims": [24, 48, 384],
        "num_heads": [1, 2, 12],
        "depths": [1, 2, 1],
        "mixer": [["Conv"], ["Conv", "Global"], ["Global"]],
        "sub_k": [[4, 1], [2, 1], [-1, -1]],
        "drop_path_rate": 0.0,
        "last_stage": False,
        "use_pool": True,
    },
    "Global.character_dict_path": "ppocr/utils/ppocr_keys_v1.txt",
    "Global.max_text_length": 12,
    "Train.loader.batch_size_per_card": BATCH,
}
START_LINES, START_STEPS, FIRST_STEPS, START_BATCH = 15_000, 468, 156, 32
_FIRST_EPOCH = {"Global.epoch_num": 1, "Optimizer.lr.warmup_epoch": 1}
STARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # a first stage, then other values of the run
    "as configs/lines/teacher.yml": ({}, {}),
    "warm-up of 31 steps in place of 156": ({}, {"Optimizer.lr.warmup_epoch": 31 / START_STEPS}),
    "lines of 1 to 3 characters first": (_FIRST_EPOCH, {}),
    "guidance (NRTR) first": ({**_FIRST_EPOCH, "Loss.weight_1": 0.0}, {}),
    "bias of blank: 5": ({}, {}),
    "NRTR without the places of the frames": ({}, {"Architecture.Head.use_pos": False}),
    "neck svtr": ({}, {"Architecture.Head.head_list.0.CTCHead.Neck": _SMALL_SVTR}),
}


def dataset(folder: Path, lines: int | None, shape: Sequence[int]) -> dict[str, Any]:
    """Return a dataset of the first lines of ``folder``, or of all that it holds to validate on."""
    name = "val_list.txt" if lines is None else f"train_{lines}.txt"
    if lines is not None:
        every = (folder / "train_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        write_text(folder / name, "".join(every[:lines]))
    return {
        "name": "SimpleDataSet",
        "data_dir": str(folder),
        "label_file_list": [str(folder / name)],
        "transforms": [
            {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
            {"MultiLabelEncode": {"gtc_encode": "NRTRLabelEncode"}},
            {"RecResizeImg": {"image_shape": list(shape)}},
            {"KeepKeys": {"keep_keys": ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]}},
        ],
    }


def neck_run(folder: Path, neck: str, lines: int, seed: int) -> Training:
    """Return the run of one of ``NECKS`` on the first ``lines`` of the data; it need not have begun."""
    shape = (3, 32, 160)
    values = {
        **NETWORK,
        "Architecture.Head": {
            "name": "MultiHead",
            "head_list": [
                {"CTCHead": {"Neck": NECKS[neck], "Head": {"fc_decay": 0.00001}}},
                {"NRTRHead": {"nrtr_dim": 128, "num_decoder_layers": 1}},
            ],
        },
        "Optimizer.lr": {"name": "Const", "learning_rate": 0.00065, "warmup_epoch": 125 * BATCH / lines},
        "Global.seed": seed,
        "Global.epoch_num": STEPS * BATCH // lines,
        "Global.print_batch_step": 10,
        "Global.eval_batch_step": [0, STEPS],
        "Train.loader.shuffle": True,
        "Train.loader.num_workers": 0,
        "Train.dataset": dataset(folder / "data", lines, shape),
        "Eval.dataset": dataset(folder / "data", None, shape),
    }
    name = f"{neck}_{lines}_seed{seed}"
    return Training(folder / name, (config_path("quickstart/teacher.yml"),), values)


def start_runs(folder: Path, start: str, seed: int) -> tuple[Training, Training]:
    """Return the first stage of one of ``STARTS``, and the run itself; they need not have begun."""
    shape = (3, 32, 160)
    first, values = STARTS[start]
    name = "".join(each if each.isalnum() or each == "-" else "_" for each in start)
    common = {
        "Global.seed": seed,
        "Global.epoch_num": 1,
        "Global.print_batch_step": 10,
        "Global.eval_batch_step": [0, START_STEPS],
        "Global.character_dict_path": str(folder / "data" / "dict.txt"),
        "Optimizer.lr.warmup_epoch": FIRST_STEPS / START_STEPS,
        "Train.loader.batch_size_per_card": START_BATCH,
        "Train.loader.drop_last": True,
        "Train.dataset": dataset(folder / "data", START_LINES, shape),
        "Eval.dataset": dataset(folder / "data", None, shape),
    }
    lines = folder / ("short" if start.startswith("lines") else "data")
    few = FIRST_STEPS * START_BATCH if first else START_BATCH  # for a bias: one step at rate 0
    before = {**common, "Train.dataset": dataset(lines, few, shape), **first}
    if not first:
        before |= {"Optimizer.lr": {"name": "Const", "learning_rate": 0.0, "warmup_epoch": 0}}
    configs = (config_path("lines/teacher.yml"),)
    stage = Training(folder / f"{name}_seed{seed}_first", configs, before)
    if first or "bias" in start:
        values = {**values, "Global.pretrained_model": str(stage.latest), "Global.eval_at_start": False}
    return stage, Training(folder / f"{name}_seed{seed}", configs, {**common, **values})


def train_start(folder: Path, start: str, seed: int) -> None:
    """Train both stages, or go on."""
    stage, run = start_runs(folder, start, seed)
    if "Global.pretrained_model" in run.values and not stage.finished():
        train(stage)
        if "bias" in start:
            file = f"{stage.latest}.pdparams"
            weights = paddle.load(file)
            [bias] = [key for key, value in weights.items() if key.endswith("ctc_head.fc.bias")]
            weights[bias][0] = float(start.rpartition(" ")[2])
            paddle.save(weights, file)
    train(run)


def draw(folder: Path, name: str, count: int, longest: int, shortest: int = 2) -> None:
    """Draw lines of letters and digits into a folder, and 500 to validate on."""
    words = ["--train", str(count), "--val", "500", "--length", str(shortest), str(longest), "--height", "32"]
    command("make-dataset", ["lines", "--out", str(folder / name), *words], folder / f"{name}.log")


def run_necks(folder: Path, seeds: Sequence[int], at_once: int) -> str:
    """Run all necks that are left to do, and return the table as Markdown.

    Raises:
        RunFailedError: a run ended with an error.
        RunStopped: by a signal.
    """
    draw(folder, "data", max(LINES), 10)
    runs = {
        (neck, f"{lines:,}"): [neck_run(folder, neck, lines, seed) for seed in seeds]
        for lines in LINES
        for neck in NECKS
    }
    side_by_side([partial(train, run) for found in runs.values() for run in found], at_once)
    return _table(("neck", "lines"), GUESS, {key: [(run, 0) for run in found] for key, found in runs.items()})


def run_starts(folder: Path, seeds: Sequence[int], at_once: int) -> str:
    """Run all ways to begin that are left to do, and return the table as Markdown.

    Raises:
        RunFailedError: a run ended with an error.
        RunStopped: by a signal.
    """
    draw(folder, "data", START_LINES, 10)
    draw(folder, "short", FIRST_STEPS * START_BATCH, 3, shortest=1)
    side_by_side([partial(train_start, folder, start, seed) for seed in seeds for start in STARTS], at_once)
    return _table(
        ("start",),
        GUESS,
        {
            (start,): [(start_runs(folder, start, seed)[1], FIRST_STEPS if first else 0) for seed in seeds]
            for start, (first, _) in STARTS.items()
        },
    )


def _table(
    names: Sequence[str], guess: float, runs: dict[tuple[str, ...], list[tuple[Training, int]]]
) -> str:
    """Return the table, in which each seed has a number; beside each run stand the steps before it."""
    head = [*names, "step at which the CTC loss is below half of the constant guess", "accuracy at the end"]
    rows = []
    for key, found in runs.items():
        metrics = [(read_metrics(run.folder), before) for run, before in found]
        halved = [_below(each.loss_series("ctc"), guess / 2, before) for each, before in metrics]
        accuracy = [f"{100 * each.evals[-1]['acc']:.1f} %" for each, _ in metrics]
        rows.append([*key, ", ".join(halved), ", ".join(accuracy)])
    return markdown(head, rows)


def _below(series: Sequence[tuple[int, float]], limit: float, before: int) -> str:
    """Return the first step whose loss is below a limit, with the steps before the run."""
    return next((f"{step + before:,}" for step, value in series if value < limit), "never")


def run_experiment(args: argparse.Namespace) -> str:
    """Run what is left of an experiment; return its table."""
    seeds = list(dict.fromkeys(args.seeds))
    job = run_necks if args.what == "necks" else run_starts
    table = job(args.out.resolve(), seeds, args.at_once)
    write_text(args.out / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "plateau", "of the runs")
    parser.add_argument("what", choices=("necks", "starts"), help="what to compare")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
