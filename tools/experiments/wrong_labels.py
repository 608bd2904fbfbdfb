#!/usr/bin/env python3
"""Plant wrong labels in a list, and measure how many of them `ppocr-ext doubtful` finds.

A wrong label is another line's, or has one other character. Precision: how many of the suspects were planted; recall:
how many of the planted ones are suspects; first K: how many of the first K of the ranking (K: the number planted) were
planted. Labels that were wrong before count as falsely found. With --test, a released model is then trained on the
list, and on what `doubtful --suspects drop` keeps of it; the last weights read lines that no training saw.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import numpy as np

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import experiment_parser, from_command_line  # noqa: E402
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.data.label_file import read_label_file, write_label_file  # noqa: E402
from ppocr_ext.evaluation.predictions import read_predictions  # noqa: E402

WAYS = ("another line", "one character")


def plant(texts: list[str], share: float, way: str, seed: int) -> dict[int, str]:
    """Return wrong labels by the number of the line."""
    random = np.random.default_rng(seed)
    known = sorted(set("".join(texts)))
    wrong = {}
    for number in random.choice(len(texts), round(share * len(texts)), replace=False).tolist():
        text = texts[number]
        if way == "another line":
            wrong[number] = str(random.choice([each for each in texts if each != text]))
        else:
            at = int(random.integers(len(text)))
            other = str(random.choice([each for each in known if each != text[at]]))
            wrong[number] = text[:at] + other + text[at + 1 :]
    return wrong


def images_in(file: Path) -> list[str]:
    """Return the first column of a file without its header."""
    rows = [line.split("\t")[0] for line in file.read_text("utf-8").splitlines()]
    return rows[file.suffix == ".tsv" :]


def trained_on(here: Path, file: Path, data: Path, args: argparse.Namespace, seed: int) -> str:
    """Train on a list, whose paths start from ``data``; return how many of the test lines its last weights read."""
    rows = [(line.images[0], line.label) for line in read_label_file(file)]
    for image, _ in rows:
        (copied := here / "data" / image).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / image, copied)
    write_label_file(here / "data" / "labels.txt", rows)
    run_command(here, "init", ["init", "data", "--base", args.base, "--seed", str(seed)])
    own = [f"Global.seed={seed}", "Eval.general=null", "Train.mix=null", *args.opt]
    run_command(here, "train", ["train", "-c", "my/config.yml", "-o", *own])
    last = ["--output", "test.tsv", "-o", "Global.checkpoints=my/run/latest"]
    run_command(here, "test", ["predict", "my/run", str(args.test.resolve()), *last])
    read = [each.correct for each in read_predictions(here / "test.tsv")]
    return f"{np.mean(read):.1%} of {len(read):,}"


def run_experiment(args: argparse.Namespace) -> str:
    """Judge each planted list, and return the table as Markdown."""
    data = (args.data_dir or args.list.parent).resolve()
    here = args.out.resolve()
    here.mkdir(parents=True, exist_ok=True)
    rows = [(line.images[0], line.label) for line in read_label_file(args.list) if line.issue is None]
    images, texts = [image for image, _ in rows], [text for _, text in rows]
    table = ["| wrong | planted | suspects | precision | recall | first K | read |", f"|{'---|' * 7}"]
    for share in args.shares:
        for way in args.ways:
            for seed in args.seeds:
                wrong = plant(texts, share, way, seed)
                name = f"{way.split()[0]}_{share:g}_{seed}"
                listed = [(image, wrong.get(number, text)) for number, (image, text) in enumerate(rows)]
                write_label_file(here / f"{name}.list", listed)
                words = ["doubtful", f"{name}.list", "--data-dir", str(data), "--out", name, "--strong"]
                words += [args.strong, f"--ignore={args.ignore}", "--times", str(args.times)]
                run_command(here, name, [*words, "--suspects", "drop"])
                planted = {images[number] for number in wrong}
                suspects = images_in(here / f"{name}_suspect.txt")
                found = len(planted.intersection(suspects))
                first = len(planted.intersection(images_in(here / f"{name}.tsv")[: len(wrong)]))
                shares = [found / max(1, len(suspects)), found / len(wrong), first / len(wrong)]
                cells = [f"{way}, seed {seed}", f"{len(wrong)} ({share:.0%})", str(len(suspects))]
                cells += map("{:.1%}".format, shares)
                lists = {"trained": f"{name}.list", "cleaned": f"{name}_kept.txt"} if args.test else {}
                found_by = [
                    trained_on(here / f"{name}_{kind}", here / file, data, args, seed)
                    for kind, file in lists.items()
                ]
                table.append(f"| {' | '.join([*cells, ', without suspects '.join(found_by)])} |")
    return "\n".join(table)


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "wrong_labels", "of lists and pages")
    parser.add_argument("list", type=Path, metavar="LIST", help="label file with right labels")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="folder that its paths start from")
    parser.add_argument("--strong", required=True, metavar="MODEL")
    parser.add_argument("--ignore", default="", metavar="TEXT", help="as the option of `doubtful`")
    parser.add_argument("--times", type=float, default=1000, help="as the option of `doubtful`")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.05, 0.2])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--test", type=Path, metavar="LIST", help="train, too, and read this list")
    parser.add_argument("--base", default="PP-OCRv6_small_rec", metavar="NAME", help="(PP-OCRv6_small_rec)")
    parser.add_argument(
        "-o", "--opt", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the trainings"
    )
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
