#!/usr/bin/env python3
"""Compare ways (arms) to train a released model further, in equal time on one core.

For each seed, `init --base MODEL` looks at --lines images of a folder, chosen by the seed. A few steps of each arm are
timed; then each arm trains as many steps as fit into --seconds, with a schedule of that length, and the last weights
read the test lines. The folder holds results.md. Bind it to one core (`taskset -c 0`) that nobody else uses.
Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import (  # noqa: E402
    Training,
    choose_images,
    compare,
    experiment_parser,
    from_command_line,
    train,
)
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.data.batches import batch_size  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_root  # noqa: E402

Values = dict[str, Any]
DEFAULTS = "defaults"
PROBED = (4, 24)  # steps of the two runs that time a step


class Stage(NamedTuple):
    """A training: its share of the time, and the values that differ from those of `init`."""

    share: float
    values: Values


def _frozen(*parts: str) -> Values:
    return {"Global.freeze": [f"{part}.*" for part in parts]}


V4_MOBILE = load([config_root() / "pp-ocr/v4_mobile.yml"]).thaw()
NRTR = {  # a new head beside that of CTC, which then does not train the backbone
    "Architecture.Head.head_list": V4_MOBILE["Architecture"]["Head"]["head_list"],
    "Loss.loss_config_list": V4_MOBILE["Loss"]["loss_config_list"],
    "Global.pretrained_partial": True,
}
ARMS = {
    DEFAULTS: [Stage(1, {})],
    "BatchNorm trained": [Stage(1, {"Global.freeze": None})],
    "half the rate": [Stage(1, {"Optimizer.lr_mult": {"*": 0.5}})],
    "twice the rate": [Stage(1, {"Optimizer.lr_mult": {"*": 2.0}})],
    "backbone frozen": [Stage(1, _frozen("backbone"))],
    "NRTR beside": [Stage(1, NRTR)],
    "NRTR first": [
        Stage(1 / 3, {**NRTR, **_frozen("backbone", "head.ctc_encoder", "head.ctc_head")}),
        Stage(2 / 3, NRTR),
    ],
}


def look(args: argparse.Namespace, seed: int) -> Path:
    """Choose the images of a seed and run `init` on them; return the folder of its config."""
    here = args.out.resolve() / f"seed{seed}"
    data = choose_images(args.data, here / "data", args.lines, seed)
    words = ["init", str(data), "--base", args.base, "--text-from-name", args.text]
    # from another folder, so that the paths in the config are absolute
    run_command(here / "init", "init", [*words, "--out", str(here / "my"), "--seed", str(seed), "--force"])
    return here / "my"


def training(my: Path, name: str, seed: int, steps: int, values: Values) -> Training:
    """Return the run of so many steps, one epoch: whole passes over the lines, each in another order."""
    config = load([my / "config.yml"])
    lines = (my / "train.txt").read_text("utf-8").splitlines(keepends=True)
    batch = batch_size(config) or 1
    random = np.random.default_rng(seed)
    order = [
        lines[at] for _ in range(1 + steps * batch // len(lines)) for at in random.permutation(len(lines))
    ]
    run, order_file = my.parent / name, my.parent / f"{name}.txt"
    write_text(order_file, "".join(order[: steps * batch]))
    warm_up = config.at("Optimizer.lr.warmup_epoch") / config.at("Global.epoch_num")
    of_run = {
        "Global.seed": seed,
        "Global.epoch_num": 1,
        "Global.eval_batch_step": [0, steps],
        "Optimizer.lr.warmup_epoch": warm_up,  # as much of the run as `init` gives it
        "Train.dataset.label_file_list": [str(order_file)],
        "Global.allow_outside_data_dir": True,  # the test lines are where they are
        "Train.loader.shuffle": False,
        "Train.loader.num_workers": 0,
        # what is kept of other lines is measured by keeping.py
        "Train.mix": None,
        "Eval.general": None,
    }
    return Training(run, (my / "config.yml",), {**of_run, **values})


def seconds_of_step(my: Path, values: Values) -> float:
    """Return the processor time of a step, reading included: of two short runs, the difference."""
    computed = {key: value for key, value in values.items() if not key.startswith("Optimizer.")}
    name = f"probe_{sha256(json.dumps(computed).encode()).hexdigest()[:8]}"
    seconds = [processor_seconds(training(my, f"{name}_{steps}", 0, steps, computed)) for steps in PROBED]
    return (seconds[1] - seconds[0]) / (PROBED[1] - PROBED[0])


def processor_seconds(run: Training) -> float:
    """Train, and return the processor time of the whole command; it is measured once."""
    file = run.folder.with_suffix(".seconds")
    if not file.is_file():
        shutil.rmtree(run.folder, ignore_errors=True)  # of an interrupted one only the rest could be measured
        before = os.times()
        train(run)
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        write_text(file, f"{spent:.2f}\n")
    return float(file.read_text("utf-8"))


def run_arm(my: Path, arm: str, seed: int, costs: list[float], seconds: float) -> Training:
    """Train the stages of an arm, each from the last; return the last run."""
    begin: Values = {}
    name = arm.replace(" ", "_")
    for number, (stage, cost) in enumerate(zip(ARMS[arm], costs, strict=True)):
        steps = max(2, round(stage.share * seconds / cost))
        run = train(training(my, f"{name}_{number}", seed, steps, {**begin, **stage.values}))
        begin = {"Global.pretrained_model": str(run.latest)}
    return run


def run_experiment(args: argparse.Namespace) -> str:
    """Run what is left to do, one training after another; return the table as Markdown."""
    out, arms = args.out.resolve(), list(dict.fromkeys([DEFAULTS, *args.arms]))
    lines = [f"{args.test.resolve().parent}/{line}" for line in args.test.read_text("utf-8").splitlines()]
    write_text(out / "test" / "val_list.txt", "".join(f"{line}\n" for line in lines))
    folders = {seed: look(args, seed) for seed in args.seeds}
    first = folders[args.seeds[0]]
    costs = {arm: [seconds_of_step(first, stage.values) for stage in ARMS[arm]] for arm in arms}
    runs: dict[str, list[Training]] = {arm: [] for arm in arms}
    for seed, my in folders.items():
        for arm in arms:
            runs[arm].append(run_arm(my, arm, seed, costs[arm], args.seconds))
    named = {f"{arm}, {' and '.join(f'{cost:.2f}' for cost in costs[arm])} s": runs[arm] for arm in arms}
    table = compare(named, out / "test", next(iter(named)))
    write_text(out / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "begin_from", "of lines and trainings")
    add = parser.add_argument
    add("data", type=Path, help="folder of images whose names have the texts")
    add("--text", required=True, metavar="REGEX", help="as --text-from-name of init")
    add("--test", type=Path, required=True, metavar="LIST", help="label file beside its images")
    add("--base", default="PP-OCRv6_small_rec", metavar="NAME", help="released model (PP-OCRv6_small_rec)")
    add("--arms", nargs="+", choices=ARMS, default=list(ARMS)[:5], help=f"compared with {DEFAULTS}")
    add("--lines", type=int, default=100, metavar="N", help="images that init looks at (100)")
    add("--seconds", type=float, default=60, metavar="S", help="of the steps of a training (60)")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
