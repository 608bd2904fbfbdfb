#!/usr/bin/env python3
"""Measure what a teacher is worth to a small student where few of the images have a text.

For each seed, --labelled images of a folder keep their texts, which their names hold, and the others lose them. A
released model is trained on the first ones (`init --base`) and reads the others. A student of 0.32 M parameters then
begins from nothing, beside drawn lines: alone; with the readings of its teacher as labels (`init --more`); or taught
by it frame by frame (`init --distill`), also on the other images, without labels; or with readings alone, none of
whose texts a person wrote. Each arm has a part of the epochs that `init` writes, so that all take about the same
processor time. The last weights of each read the list --test. Ctrl-C stops; the same command continues after the last
finished command.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
from pathlib import Path

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import experiment_parser, from_command_line  # noqa: E402
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.evaluation.predictions import read_predictions  # noqa: E402
from ppocr_ext.evaluation.uncertainty import Changes  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.recognition.images import SUFFIXES  # noqa: E402

_MIX = (
    "[{dataset: {data_dir: taught/drawn, label_file_list: [taught/drawn.txt]}, share: 0.6}, "
    "{dataset: {data_dir: '.', label_file_list: [others.txt]}, share: 0.2, labelled: false}]"
)
_READINGS = "others/readings.txt"
# name -> words of `init`, values of `train`, part of the epochs: about equal processor time
ARMS: dict[str, tuple[list[str], list[str], float]] = {
    "alone": (["labelled", "--base", "small"], [], 1.0),
    "readings": (["labelled", "--base", "small", "--more", _READINGS], [], 0.8),
    "unlabelled": (["others", "--base", "small"], [], 1.0),
    "taught": (
        ["labelled", "--distill", "teacher/run", "small"],
        [f"Train.mix={_MIX}", "Global.cal_metric_during_train=false"],
        0.4,
    ),
}


def set_up(here: Path, args: argparse.Namespace, seed: int) -> None:
    """Copy the images, train the teacher, and let it read the other images."""
    found = (each for each in args.data.iterdir() if each.suffix.lower() in SUFFIXES)
    images = sorted(each for each in found if re.search(args.text, each.stem))
    random.Random(seed).shuffle(images)
    folders = {"labelled": images[: args.labelled], "others": images[args.labelled :]}
    for name, files in folders.items():
        (here / name).mkdir(parents=True, exist_ok=True)
        for each in files:
            shutil.copy(each, here / name)
    names = ["--text-from-name", args.text, "--seed", str(seed)]
    run_command(here, "init", ["init", "labelled", "--base", args.base, "--out", "teacher", *names])
    run_command(here, "train", ["train", "-c", "teacher/config.yml", "-o", f"Global.seed={seed}"])
    labels = ["--format", "labels", "--output", _READINGS]
    run_command(here, "read", ["predict", "teacher/run", "others", *labels])
    write_text(here / "others.txt", "".join(f"others/{each.name}\n" for each in folders["others"]))


def right_ones(here: Path, model: str, args: argparse.Namespace) -> list[bool]:
    """Read the test lines with a model; return which it reads without an error."""
    last = f"Global.checkpoints={model}/latest"
    rows = f"{model.replace('/', '_')}.tsv"
    run_command(here, rows, ["predict", model, str(args.test.resolve()), "--output", rows, "-o", last])
    return [each.correct for each in read_predictions(here / rows)]


def run_experiment(args: argparse.Namespace) -> str:
    """Run all arms of all seeds, one after another, and return the table as Markdown."""
    rows = [
        "| seed | model | epochs | minutes | test lines right | against `alone`, p |",
        "|---|---|---|---|---|---|",
    ]
    for seed in args.seeds:
        here = args.out.resolve() / f"seed{seed}"
        set_up(here, args, seed)
        right = {"teacher": right_ones(here, "teacher/run", args)}
        for name in args.arms:
            words, values, part = ARMS[name]
            names = ["--seed", str(seed), "--out", name]
            names += ["--text-from-name", args.text] if words[0] == "labelled" else []
            run_command(here, f"init_{name}", ["init", *words, *names])
            epochs = round(part * load(here / name / "config.yml").at("Global.epoch_num"))
            own = [f"Global.epoch_num={epochs}", f"Global.seed={seed}", *values]
            seconds = run_command(here, f"train_{name}", ["train", "-c", f"{name}/config.yml", "-o", *own])
            right[name] = right_ones(here, f"{name}/run", args)
            changes = Changes.of(right["alone"], right[name]) if "alone" in right else None
            against = f"{changes.gain:+.1%}, {changes.p_value:.2g}" if changes and name != "alone" else ""
            share = sum(right[name]) / len(right[name])
            rows.append(f"| {seed} | {name} | {epochs} | {seconds / 60:.1f} | {share:.1%} | {against} |")
        rows.append(f"| {seed} | teacher | | | {sum(right['teacher']) / len(right['teacher']):.1%} | |")
        write_text(args.out / "results.md", "\n".join(rows) + "\n")
    return "\n".join(rows)


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "few_labels", "of data and trainings")
    parser.add_argument("data", type=Path, help="folder of images")
    parser.add_argument(
        "--text", default="^(.+)$", metavar="REGEX", help="what of a name is its text (^(.+)$)"
    )
    parser.add_argument(
        "--labelled", type=int, default=100, metavar="N", help="images that keep their texts (100)"
    )
    parser.add_argument("--base", default="PP-OCRv6_small_rec", metavar="NAME", help="(PP-OCRv6_small_rec)")
    parser.add_argument("--test", type=Path, required=True, metavar="LIST", help="label file of other images")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
