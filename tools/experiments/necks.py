#!/usr/bin/env python3
"""How long the necks of full-size networks keep a training from nothing at the constant guess.

Draws Chinese text lines of 2 to 5 characters (fonts of the package mplfonts), and trains a network of reduced width
and depth whose head is that of configs/svtrv2: 384 channels before the neck, so that `svtr` narrows them to 48, and
the 6,625 classes of PaddleOCR's Chinese dictionary. `svtr` is tried as the full-size configs have it, with
`use_guide: true` (the backbone learns from NRTR alone), and without.

The folder then holds results.md (the table) and one folder for each run. Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
sys.path[:] = [
    str(Path(__file__).resolve().parents[2]),
    *sys.path[1:],
    str(Path(__file__).resolve().parents[1]),
]

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
BATCH = 16
_SVTR = {"name": "svtr", "kernel_size": [1, 3], "depth": 2, "dims": 256, "hidden_dims": 256}
NECKS: dict[str, dict[str, Any]] = {
    "svtr, use_guide: true": {**_SVTR, "use_guide": True},
    "svtr": {**_SVTR, "use_guide": False},
    "lightsvtr": {"name": "lightsvtr", "dims": 256, "depth": 2},
}
NETWORK = {
    "Architecture.Backbone": {
        "name": "SVTRv2",
        "use_pos_embed": False,
        "dims": [32, 64, 384],
        "num_heads": [1, 2, 12],
        "depths": [1, 2, 1],
        "mixer": [["Conv"], ["Conv", "Global"], ["Global"]],
        "sub_k": [[4, 1], [2, 1], [-1, -1]],
        "drop_path_rate": 0.0,
        "last_stage": False,
        "use_pool": True,
    },
    "Global.character_dict_path": "ppocr/utils/ppocr_keys_v1.txt",
    "Global.max_text_length": 7,
    "Global.print_batch_step": 10,
    "Optimizer.lr": {"name": "Cosine", "learning_rate": 0.001, "warmup_epoch": 0},
    "Train.loader": {"shuffle": True, "batch_size_per_card": BATCH, "drop_last": True, "num_workers": 0},
}


def training(folder: Path, neck: str, lines: int, seed: int, steps: int) -> Training:
    """Return the run of one of ``NECKS`` on the first ``lines`` of the data; it need not have begun."""
    data = folder / "data"
    transforms = [
        {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
        {"MultiLabelEncode": {"gtc_encode": "NRTRLabelEncode"}},
        {"RecResizeImg": {"image_shape": [3, 32, 128]}},
        {"KeepKeys": {"keep_keys": ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]}},
    ]

    def dataset(file: str) -> dict[str, Any]:
        listed = [str(data / file)]
        return {
            "name": "SimpleDataSet",
            "data_dir": str(data),
            "label_file_list": listed,
            "transforms": transforms,
        }

    epochs = max(1, steps * BATCH // lines)
    values = {
        **NETWORK,
        "Architecture.Head": {
            "name": "MultiHead",
            "head_list": [
                {"CTCHead": {"Neck": NECKS[neck], "Head": {"fc_decay": 0.00001}}},
                {"NRTRHead": {"nrtr_dim": 128, "num_decoder_layers": 1}},
            ],
        },
        "Global.seed": seed,
        "Global.epoch_num": epochs,
        "Global.eval_batch_step": [0, epochs * (lines // BATCH)],  # once, after the last step
        "Train.dataset": dataset(f"train_{lines}.txt"),
        "Eval.dataset": dataset("val_list.txt"),
    }
    name = neck.replace(", use_guide: true", "_guided")
    return Training(folder / f"{name}_{lines}_seed{seed}", (config_path("quickstart/teacher.yml"),), values)


def draw(folder: Path) -> None:
    """Draw the lines, and write a label file of the first ones for each size."""
    listed = config_path("experiments/lookalikes/dict.txt").read_text(encoding="utf-8").split()
    characters = "".join(listed).replace("伧", "")  # which the dictionary lacks
    words = ["--train", str(max(LINES)), "--val", "500", "--length", "2", "5", "--height", "32"]
    options = ["--characters", characters, "--fonts", "mplfonts"]
    command("make-dataset", ["lines", "--out", str(folder / "data"), *words, *options], folder / "data.log")
    every = (folder / "data" / "train_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    for lines in LINES:
        write_text(folder / "data" / f"train_{lines}.txt", "".join(every[:lines]))


def run_experiment(folder: Path, seeds: Sequence[int], at_once: int, steps: int) -> str:
    """Run all that is left to do, and return the table as Markdown.

    Raises:
        RunFailedError: a run ended with an error.
        RunStopped: by a signal.
    """
    folder = folder.resolve()
    draw(folder)
    runs = {
        (neck, lines): [training(folder, neck, lines, seed, steps) for seed in seeds]
        for lines in LINES
        for neck in NECKS
    }
    side_by_side([partial(train, run) for found in runs.values() for run in found], at_once)
    rows = [_row(neck, lines, [run.folder for run in found]) for (neck, lines), found in runs.items()]
    head = (
        "| neck | lines | step at which the CTC loss has halved, each seed | CTC loss at the end | accuracy |"
    )
    table = "\n".join([head, "|---|---|---|---|---|", *rows])
    write_text(folder / "results.md", table + "\n")
    return table


def _row(neck: str, lines: int, folders: Sequence[Path]) -> str:
    found = [read_metrics(folder) for folder in folders]
    losses = [each.loss_series("ctc") for each in found]
    halved = [_half(series) for series in losses]
    accuracies = [each.evals[-1]["acc"] for each in found]
    return (
        f"| `{neck}` | {lines:,} | {', '.join(halved)} | {fmean(series[-1][1] for series in losses):.2f} "
        f"| {100 * fmean(accuracies):.1f} % |"
    )


def _half(series: Sequence[tuple[int, float]]) -> str:
    """Return the first step at which the loss is below half of its mean over steps 50 to 100, the constant guess."""
    guess = fmean(value for step, value in series if 50 <= step <= 100)
    return next((f"{step:,}" for step, value in series if step > 100 and value < guess / 2), "never")


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "necks", "of the runs")
    parser.add_argument("--steps", type=int, default=1_000, metavar="N", help="of each run (1,000)")
    return from_command_line(
        parser,
        lambda args: run_experiment(args.out, list(dict.fromkeys(args.seeds)), args.at_once, args.steps),
    )


if __name__ == "__main__":
    sys.exit(main())
