#!/usr/bin/env python3
"""Measure what `ppocr-ext init` promises: the accuracy on new lines by the number of labelled lines.

For each kind of drawn data, number of lines and seed: `init` and `train` from nothing, and with the run of --base (the
teacher of README's drawn lines). Then 200 new lines are read. Plates have ten characters, meters five to eight digits,
CAPTCHAs three to eight letters. Ctrl-C stops; the same command goes on after the last finished training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import experiment_parser, from_command_line  # noqa: E402
from experiments.use_it import accuracy, run_command  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource  # noqa: E402

CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"  # no I and O, as on many plates
NEW = 200  # lines that are read at the end
Draw = Callable[[int, np.random.Generator], tuple[str, np.ndarray]]


def draw_plate(number: int, random: np.random.Generator) -> tuple[str, np.ndarray]:
    """Draw a plate, uint8 [56, 260, 3]: a frame, letters of OpenCV's fonts, a slight turn, blur and noise."""
    text = "".join(random.choice(list(CHARACTERS), 10))
    dark, light = random.integers(0, 90, 3), random.integers(150, 256, 3)
    ink, ground = (dark, light) if random.random() < 0.7 else (light, dark)
    image = np.full((56, 260, 3), ground, np.uint8)
    color = tuple(int(each) for each in ink)
    cv2.rectangle(image, (3, 3), (256, 52), color, 2)
    font = int(random.choice([cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX]))
    (width, height), _ = cv2.getTextSize(text, font, 1.0, 2)
    scale = min(225 / width, 30 / height) * random.uniform(0.85, 1.0)
    at = (int((260 - width * scale) / 2), int((56 + height * scale) / 2))
    cv2.putText(image, text, at, font, scale, color, int(random.integers(1, 3)), cv2.LINE_AA)
    turn = cv2.getRotationMatrix2D((130, 28), random.uniform(-3, 3), 1.0)
    image = cv2.warpAffine(image, turn, (260, 56), borderMode=cv2.BORDER_REPLICATE)
    image = cv2.GaussianBlur(image, (0, 0), random.uniform(0.3, 1.2))
    noisy = image + random.normal(0, random.uniform(2, 14), image.shape)
    return text, np.clip(noisy, 0, 255).astype(np.uint8)


def draw_meter(number: int, random: np.random.Generator) -> tuple[str, np.ndarray]:
    """Draw the digits of a meter, each in a box of its own: uint8 [40, 30 n, 3]."""
    text = "".join(random.choice(list("0123456789"), random.integers(5, 9)))
    image = np.full((40, 30 * len(text), 3), random.integers(90, 200), np.uint8)
    for place, digit in enumerate(text):
        ink, ground = random.integers(180, 256), random.integers(0, 70)
        cv2.rectangle(image, (30 * place + 2, 3), (30 * place + 27, 36), (int(ground),) * 3, -1)
        at = (30 * place + 5 + int(random.integers(-2, 3)), 30 + int(random.integers(-3, 4)))
        font = int(random.choice([cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX]))
        cv2.putText(image, digit, at, font, random.uniform(0.8, 1.0), (int(ink),) * 3, 2, cv2.LINE_AA)
    image = cv2.GaussianBlur(image, (0, 0), random.uniform(0.4, 1.4))
    noisy = image + random.normal(0, random.uniform(2, 14), image.shape)
    return text, np.clip(noisy, 0, 255).astype(np.uint8)


def captcha_drawer(seed: int) -> Draw:
    letters = "abcdefghijklmnopqrstuvwxyz"
    source = CaptchaSource(CaptchaOptions(characters=letters, length=(3, 8), painter="fast"), seed)
    return lambda number, random: source.image("train", number)


KINDS: dict[str, Callable[[int], Draw]] = {
    "plates": lambda seed: draw_plate,
    "meters": lambda seed: draw_meter,
    "captchas": captcha_drawer,
}


def draw(folder: Path, make: Draw, count: int, seed: int) -> None:
    """Draw a folder as a labelling tool leaves it: images, and a CSV with a header."""
    random = np.random.default_rng(seed)
    rows = ["image,text"]
    for number in range(count):
        text, image = make(number, random)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / "images" / f"{number:06d}.png"), image)
        rows.append(f"images/{number:06d}.png,{text}")
    write_text(folder / "labels.csv", "\n".join(rows) + "\n")
    lines = (f"{image}\t{text}\n" for image, _, text in (row.partition(",") for row in rows[1:]))
    write_text(folder / "list.txt", "".join(lines))


def measure(folder: Path, kind: str, lines: int, seed: int, base: Path | None, options: list[str]) -> str:
    """Train on one folder; return the row of the table."""
    here = folder / f"{kind}_{lines}_{seed}_{'base' if base else 'nothing'}"
    if not (here / "test" / "list.txt").is_file():
        draw(here / "data", KINDS[kind](seed), lines, seed)
        draw(here / "test", KINDS[kind](1_000 + seed), NEW, 1_000 + seed)
    begin = ["--base", str(base)] if base else []
    init = run_command(here, "init", ["init", "data", "--labels", "labels.csv", "--seed", str(seed), *begin])
    chosen = ["-o", *options] if options else []
    train = run_command(here, "train", ["train", "-c", "my/config.yml", *chosen])
    read = accuracy(here, "my/run", "test/list.txt")
    start = "a trained run" if base else "nothing"
    return f"| {kind} | {lines:,} | {start} | {seed} | {read} | {(init + train) / 60:.1f} |"


def find_wrong_labels(folder: Path, base: Path) -> str:
    """Make 3 % of the labels of new drawn lines wrong; return how many stand in the first 8 % of doubtful.tsv."""
    here = folder / "wrong_labels"
    lines = ["make-dataset", "lines", "--out", "new", "--train", "1500", "--val", "0", "--length", "2", "10"]
    run_command(here, "draw", [*lines, "--seed", "5"])
    right = [line.split("\t") for line in (here / "new/train_list.txt").read_text("utf-8").splitlines()]
    known = sorted(set("".join(text for _, text in right)))
    rows = []
    for way in ("exchanged", "one character"):
        random = np.random.default_rng(1)
        wrong = random.choice(len(right), round(0.03 * len(right)), replace=False)
        texts = {number: right[other][1] for number, other in zip(wrong, np.roll(wrong, 1), strict=True)}
        for number in wrong if way == "one character" else ():
            text = list(right[number][1])
            at = random.integers(len(text))
            text[at] = str(random.choice([each for each in known if each != text[at]]))
            texts[number] = "".join(text)
        planted = [(image, texts.get(number, text)) for number, (image, text) in enumerate(right)]
        name = way.replace(" ", "_")
        write_text(here / f"new/{name}.txt", "".join(f"{image}\t{text}\n" for image, text in planted))
        words = ["init", "new", "--labels", f"{name}.txt", "--out", name, "--base", str(base), "--force"]
        run_command(here, name, words)
        doubtful = (here / name / "doubtful.tsv").read_text("utf-8").splitlines()[1:]
        first = {line.split("\t")[0] for line in doubtful[: round(0.08 * len(doubtful))]}
        found = sum(right[number][0] in first for number in wrong)
        rows.append(f"| {way} | {found} of {len(wrong)} |")
    return "\n".join(["| wrong labels | in the first 8 % |", "|---|---|", *rows])


def run_experiment(args: argparse.Namespace) -> str:
    """Run all trainings, one after another, and return the table as Markdown."""
    if args.wrong_labels:
        return find_wrong_labels(args.out.resolve(), args.base.resolve())
    starts = {"base": [args.base.resolve()] if args.base else [], "nothing": [None]}
    rows = [
        measure(args.out.resolve(), kind, lines, seed, base, args.opt)
        for lines in args.lines
        for seed in args.seeds
        for kind in args.kinds
        for start in args.starts
        for base in starts[start]
    ]
    head = "| data | lines | begins with | seed | new lines read | 1 - NED | minutes |\n|---|---|---|---|---|---|---|\n"
    write_text(args.out / "results.md", head + "\n".join(rows) + "\n")
    return head + "\n".join(rows)


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "first_runs", "of data and trainings")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--lines", nargs="+", type=int, default=[100, 1_300, 5_000, 20_000])
    parser.add_argument("--starts", nargs="+", choices=("base", "nothing"), default=["base", "nothing"])
    parser.add_argument("--wrong-labels", action="store_true", help="only: how well wrong labels are found")
    parser.add_argument("--base", type=Path, metavar="RUN", help="such as output/lines_teacher of README")
    parser.add_argument(
        "-o", "--opt", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the training"
    )
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
