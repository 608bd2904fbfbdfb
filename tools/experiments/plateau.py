#!/usr/bin/env python3
"""Measure how long a training from random weights stays at the constant guess, by its neck and by its start.

`necks` trains a network of reduced width and depth with the head of configs/svtrv2: 384 channels before the neck, which
`svtr` narrows to 48, and the 6,625 classes of PaddleOCR's Chinese dictionary. The backbone learns from CTC too
(`use_guide: false`).

`starts` trains configs/lines/teacher.yml for one epoch on 15,000 lines, with different starts. The steps of a first
stage count.

All lines have 2 to 10 letters and digits. The folder then holds results.md (the table) and one folder for each run.
Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import paddle
import yaml

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
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

GUESS = 27.0  # CTC loss of the best constant guess for these lines
LINES, STEPS, BATCH = (2_000, 20_000), 1_250, 16  # of necks; the steps are one epoch of 20,000 lines
_SVTR: dict[str, Any] = yaml.safe_load(
    "{name: svtr, kernel_size: [1, 3], depth: 2, dims: 256, hidden_dims: 256, use_guide: false}"
)
NECKS: dict[str, dict[str, Any]] = {
    "svtr": _SVTR,
    "lightsvtr": {"name": "lightsvtr", "dims": 256, "depth": 2},
}
NETWORK: dict[str, Any] = yaml.safe_load("""
Architecture.Backbone:
  name: SVTRv2
  use_pos_embed: false
  dims: [24, 48, 384]
  num_heads: [1, 2, 12]
  depths: [1, 2, 1]
  mixer: [[Conv], [Conv, Global], [Global]]
  sub_k: [[4, 1], [2, 1], [-1, -1]]
  drop_path_rate: 0.0
  last_stage: false
  use_pool: true
Global.character_dict_path: ppocr/utils/ppocr_keys_v1.txt
Global.max_text_length: 12
Global.print_batch_step: 10
Train.loader.shuffle: true
Train.loader.num_workers: 0
""")
START_LINES, START_STEPS, FIRST_STEPS, START_BATCH = 15_000, 468, 156, 32
_FIRST = {"Global.epoch_num": 1, "Optimizer.lr.warmup_epoch": 1}
_SMALL_SVTR = {**_SVTR, "depth": 1, "dims": 64, "hidden_dims": 64}
STARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # values of a first stage, then of the run
    "as configs/lines/teacher.yml": ({}, {}),
    "warm-up of 31 steps in place of 156": ({}, {"Optimizer.lr.warmup_epoch": 31 / START_STEPS}),
    "lines of 1 to 3 characters first": (_FIRST, {}),
    "guidance (NRTR) first": ({**_FIRST, "Loss.weight_1": 0.0}, {}),
    "bias of blank: 5": ({}, {}),
    "NRTR without the places of the frames": ({}, {"Architecture.Head.use_pos": False}),
    "neck svtr": ({}, {"Architecture.Head.head_list.0.CTCHead.Neck": _SMALL_SVTR}),
}


def dataset(folder: Path, lines: int | None) -> dict[str, Any]:
    """Return a dataset of the first lines of ``folder``; None: the lines to validate on."""
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
            {"RecResizeImg": {"image_shape": [3, 32, 160]}},
            {"KeepKeys": {"keep_keys": ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]}},
        ],
    }


def neck_run(folder: Path, neck: str, lines: int, seed: int) -> Training:
    """Return the run of a neck on the first ``lines`` of the data; it need not have begun."""
    values = {
        **NETWORK,
        "Global.eval_batch_step": [0, STEPS],
        "Train.loader.batch_size_per_card": BATCH,
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
        "Train.dataset": dataset(folder / "data", lines),
        "Eval.dataset": dataset(folder / "data", None),
    }
    name = f"{neck}_{lines}_seed{seed}"
    return Training(folder / name, (config_path("quickstart/teacher.yml"),), values)


def start_runs(folder: Path, start: str, seed: int) -> tuple[Training, Training]:
    """Return the first stage of a start, and the run itself; they need not have begun."""
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
        "Train.dataset": dataset(folder / "data", START_LINES),
        "Eval.dataset": dataset(folder / "data", None),
    }
    lines = folder / ("short" if start.startswith("lines") else "data")
    few = FIRST_STEPS * START_BATCH if first else START_BATCH  # for a bias: one step with the rate 0
    before = {**common, "Train.dataset": dataset(lines, few), **first}
    if not first:
        before["Optimizer.lr"] = {"name": "Const", "learning_rate": 0.0, "warmup_epoch": 0}
    configs = (config_path("lines/teacher.yml"),)
    stage = Training(folder / f"{name}_seed{seed}_first", configs, before)
    if first or "bias" in start:
        values = {**values, "Global.pretrained_model": str(stage.latest), "Global.eval_at_start": False}
    return stage, Training(folder / f"{name}_seed{seed}", configs, {**common, **values})


def train_start(folder: Path, start: str, seed: int) -> None:
    """Train both stages, or continue."""
    stage, run = start_runs(folder, start, seed)
    if "Global.pretrained_model" in run.values and not stage.finished():
        train(stage)
        if "bias" in start:
            file = f"{stage.latest}.pdparams"
            weights = paddle.load(file)
            [bias] = [key for key in weights if key.endswith("ctc_head.fc.bias")]
            weights[bias][0] = float(start.rpartition(" ")[2])
            paddle.save(weights, file)
    train(run)


def draw(folder: Path, name: str, count: int, shortest: int, longest: int) -> None:
    """Draw lines of letters and digits into a folder, and 500 to validate on."""
    words = ["--train", str(count), "--val", "500", "--length", str(shortest), str(longest), "--height", "32"]
    command("make-dataset", ["lines", "--out", str(folder / name), *words], folder / f"{name}.log")


def run_experiment(args: argparse.Namespace) -> str:
    """Run what is left to do; return the table as Markdown."""
    folder, seeds = args.out.resolve(), list(dict.fromkeys(args.seeds))
    if args.what == "necks":
        draw(folder, "data", max(LINES), 2, 10)
        names = [(neck, lines) for lines in LINES for neck in NECKS]
        runs = [[neck_run(folder, *name, seed) for seed in seeds] for name in names]
        side_by_side([partial(train, run) for each in runs for run in each], args.at_once)
        rows = [
            [neck, f"{lines:,}", *_cells(each, 0)] for (neck, lines), each in zip(names, runs, strict=True)
        ]
        head = ["neck", "lines"]
    else:
        draw(folder, "data", START_LINES, 2, 10)
        draw(folder, "short", FIRST_STEPS * START_BATCH, 1, 3)
        jobs = [partial(train_start, folder, start, seed) for seed in seeds for start in STARTS]
        side_by_side(jobs, args.at_once)
        head, rows = ["start"], []
        for start, (first, _) in STARTS.items():
            each = [start_runs(folder, start, seed)[1] for seed in seeds]
            rows.append([start, *_cells(each, FIRST_STEPS if first else 0)])
    head += ["step at which the CTC loss is below half of the constant guess", "accuracy at the end"]
    table = markdown(head, rows)
    write_text(folder / "results.md", table + "\n")
    return table


def _cells(runs: Sequence[Training], before: int) -> tuple[str, str]:
    """Return two cells with a number for each run; ``before`` steps of a first stage are added."""
    steps, accuracies = [], []
    for run in runs:
        metrics = read_metrics(run.folder)
        low = (step for step, loss in metrics.loss_series("ctc") if loss < GUESS / 2)
        step = next(low, None)
        steps.append("never" if step is None else f"{step + before:,}")
        accuracies.append(f"{100 * metrics.evals[-1]['acc']:.1f} %")
    return ", ".join(steps), ", ".join(accuracies)


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "plateau", "of the runs")
    parser.add_argument("what", choices=("necks", "starts"), help="what to compare")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
