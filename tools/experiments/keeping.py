#!/usr/bin/env python3
"""Measure what a fine-tuned released model forgets, and what keeps it (arms of one training).

For each seed and arm, `init --base MODEL` looks at a folder of labelled images, and `train` trains on it. Then the last
weights and the best ones read the lists of --test: the first has new lines of the same kind, the others have lines of
other kinds, which no training saw. `labels` and `lines` need --general, a list that has nothing in common with --test;
its labels teach in `labels`, and the weights before in `lines`. --lines takes that many images of the folder, chosen by
the seed, and --rates trains with other learning rates. --small takes fewer samples. Ctrl-C stops; the same command
continues after the last finished command.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import choose_images, experiment_parser, from_command_line  # noqa: E402
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.evaluation.predictions import read_predictions  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402

_PLAIN = ["Eval.general=null", "Train.mix=null"]
# name -> the values that differ from those of `init`, and whether it gets --general
ARMS: dict[str, tuple[list[str], bool]] = {
    "plain": (_PLAIN, False),
    # BatchNorm of the neck; that of the backbone is fused
    "held": ([*_PLAIN, "Global.freeze=[head.ctc_encoder.*conv*.norm.*]"], False),
    "drawn": ([], False),
    "labels": ([], True),
    "lines": (["Train.mix.0.labelled=false", "Global.cal_metric_during_train=false"], True),
}
WEIGHTS = ("latest", "best_accuracy")
_SMALL = ["Global.epoch_num=2", "Optimizer.lr.warmup_epoch=0.1"]


class Case(NamedTuple):
    """One training: its arm, seed, images of the folder (None: all), and the factor of the rate that `init` chose."""

    arm: str
    seed: int
    lines: int | None
    rate: float

    @property
    def folder(self) -> str:
        """The name of the folder in which `init` looks at the images."""
        return f"{self.arm}_{self.seed}" + (f"_{self.lines}" if self.lines else "")


def measure(args: argparse.Namespace, case: Case) -> list[str]:
    """Train once; return a row of the table for the last weights and for the best ones."""
    values, takes_general = ARMS[case.arm]
    here = args.out.resolve() / case.folder
    data = (
        choose_images(args.data, here / "data", case.lines, case.seed) if case.lines else args.data.resolve()
    )
    words = ["init", str(data), "--base", args.base, "--seed", str(case.seed)]
    words += ["--text-from-name", args.text] if args.text else []
    words += ["--general", str(args.general.resolve())] if takes_general else []
    run_command(here, "init", words)
    run = "my/run" if case.rate == 1 else f"my/run_{case.rate:g}"
    factor = json.dumps({"*": case.rate})
    chosen = [
        *values,
        *(_SMALL if args.small else []),
        f"Global.seed={case.seed}",
        f"Global.save_model_dir={run}",
    ]
    chosen += [f"Optimizer.lr_mult={factor}"] if case.rate != 1 else []
    seconds = run_command(
        here, run.replace("/", "_"), ["train", "-c", "my/config.yml", "-o", *chosen, *args.opt]
    )
    first = f"{case.arm}, {case.lines or 'all'} | {case.rate:g}"
    return [
        f"| {first} | {weights} | {case.seed} | {' | '.join(read(here, f'{run}/{weights}', args.test))} "
        f"| {seconds / 60:.1f} |"
        for weights in WEIGHTS
    ]


def read(here: Path, checkpoint: str, lists: list[Path]) -> list[str]:
    """Read all lists; return their accuracies, spaces ignored as in an evaluation."""
    found = []
    for number, file in enumerate(lists):
        rows = f"{checkpoint.replace('/', '_')}_{number}.tsv"
        # a name of released weights has no run folder
        model = checkpoint.rpartition("/")[0] or checkpoint
        chosen = ["-o", f"Global.checkpoints={checkpoint}"] if "/" in checkpoint else []
        run_command(here, rows, ["predict", model, str(file.resolve()), "--output", rows, *chosen])
        lines = read_predictions(here / rows)
        right = sum(each.label.replace(" ", "") == each.text.replace(" ", "") for each in lines)
        found.append(f"{right / len(lines):.1%} of {len(lines):,}")
    return found


def run_experiment(args: argparse.Namespace) -> str:
    """Run all arms, one after another, and return the table as Markdown."""
    names = [file.parent.name if file.name == "list.txt" else file.stem for file in args.test]
    rows = [
        f"| arm, lines | rate | weights | seed | {' | '.join(names)} | minutes |",
        f"|---|---|---|---|{'---|' * len(names)}---|",
        f"| as released | | | | {' | '.join(read(args.out.resolve(), args.base, args.test))} | |",
    ]
    for seed, arm, lines, rate in product(args.seeds, args.arms, args.lines, args.rates):
        rows += measure(args, Case(arm, seed, lines, rate))
        write_text(args.out / "results.md", "\n".join(rows) + "\n")
    return "\n".join(rows)


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "keeping", "of data and trainings")
    parser.add_argument("data", type=Path, help="folder with labelled images to train on")
    parser.add_argument("--text", metavar="REGEX", help="--text-from-name of init")
    parser.add_argument("--base", default="PP-OCRv6_small_rec", metavar="NAME", help="(PP-OCRv6_small_rec)")
    parser.add_argument("--test", nargs="+", type=Path, required=True, metavar="LIST")
    parser.add_argument("--general", type=Path, metavar="LIST")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["drawn"])
    parser.add_argument("--lines", nargs="+", type=int, default=[None], metavar="N", help="images (all)")
    parser.add_argument(
        "--rates", nargs="+", type=float, default=[1.0], metavar="X", help="times that of init (1)"
    )
    parser.add_argument("--small", action="store_true", help="two epochs")
    parser.add_argument(
        "-o", "--opt", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the trainings"
    )
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
