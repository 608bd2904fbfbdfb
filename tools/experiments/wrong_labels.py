#!/usr/bin/env python3
"""Plant wrong labels in a list, and measure how many of them `ppocr-ext doubtful` finds.

A wrong label is another line's, or has one other character. Precision: how many of the suspects were planted; recall:
how many of the planted ones are suspects; first K: how many of the first K of the ranking (K: the number planted) were
planted. Labels that were wrong before count as falsely found.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import experiment_parser, from_command_line  # noqa: E402
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.data.label_file import read_label_file, write_label_file  # noqa: E402

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


def run_experiment(args: argparse.Namespace) -> str:
    """Judge each planted list, and return the table as Markdown."""
    here = args.out.resolve()
    here.mkdir(parents=True, exist_ok=True)
    rows = [(line.images[0], line.label) for line in read_label_file(args.list) if line.issue is None]
    images, texts = [image for image, _ in rows], [text for _, text in rows]
    table = ["| wrong | planted | suspects | precision | recall | first K |", "|---|---|---|---|---|---|"]
    for share in args.shares:
        for way in WAYS:
            for seed in args.seeds:
                wrong = plant(texts, share, way, seed)
                name = f"{way.split()[0]}_{share:g}_{seed}"
                listed = [(image, wrong.get(number, text)) for number, (image, text) in enumerate(rows)]
                write_label_file(here / f"{name}.list", listed)
                data = ["--data-dir", str((args.data_dir or args.list.parent).resolve())]
                words = ["doubtful", f"{name}.list", *data, "--out", name, "--strong", args.strong]
                run_command(here, name, [*words, f"--ignore={args.ignore}", "--times", str(args.times)])
                planted = {images[number] for number in wrong}
                suspects = images_in(here / f"{name}_suspect.txt")
                found = len(planted.intersection(suspects))
                first = len(planted.intersection(images_in(here / f"{name}.tsv")[: len(wrong)]))
                shares = [found / max(1, len(suspects)), found / len(wrong), first / len(wrong)]
                cells = [f"{way}, seed {seed}", f"{len(wrong)} ({share:.0%})", str(len(suspects))]
                table.append(f"| {' | '.join([*cells, *map('{:.1%}'.format, shares)])} |")
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
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
