#!/usr/bin/env python3
"""Run README's section "Use it" word by word; print how many minutes it takes and how well the models read.

For each seed, in its own folder: runs the printed commands (seeds other than 1 add `--seed` and `Global.seed`), and
counts the new lines that the teacher, the student and the student with center loss read without an error. With
--plates it then trains teacher and student on 1,300 plates of ten characters, drawn here, with README's `data.yml`.
Ctrl-C stops; the same command continues after the last finished step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from rapidfuzz.distance import Levenshtein

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import RunFailedError, experiment_parser, from_command_line  # noqa: E402
from ppocr_ext.evaluation.predictions import read_predictions  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402

BLOCK = re.compile(r"^```(yaml|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODELS = {
    "teacher": "output/lines_teacher",
    "student, distilled": "output/lines_distill",
    "with center loss": "output/center_loss",
}
OWN = {"teacher, plates": "output/my_teacher", "student, plates": "output/my_student"}
PLATES = (1_300, 200, 200)  # to train, validate and test on
CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"  # no I and O, as on many plates


def use_it(page: str = "README.md") -> tuple[dict[str, str], list[str]]:
    """Return the files (by the name in their first comment) and the commands of the section."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition("<!-- use it -->")[2], flags=re.MULTILINE)[1]
    files, commands = {}, []
    for kind, body in BLOCK.findall(section):
        if kind == "yaml":
            named = re.match(r"# ([\w.]+\.yml)", body)
            files[named[1] if named else "data.yml"] = body
        else:
            commands += [re.sub(r"\s+#.*", "", line) for line in body.splitlines()]
    return files, commands


def run_readme(folder: Path, seed: int) -> list[str]:
    """Run README's commands for small networks; return rows of a table."""
    commands = [line for line in use_it()[1] if line.startswith("ppocr-ext") and "data.yml" not in line]
    minutes = {}
    for number, line in enumerate(commands):
        words = shlex.split(line)[1:]
        if seed != 1 and words[0] == "make-dataset":
            words += ["--seed", str(seed if "data/lines" in words else 100 + seed)]
        if seed != 1 and words[0] == "train":
            at = words.index("-o") if "-o" in words else len(words)
            words[at : at + 1] = ["-o", f"Global.seed={seed}"]
        minutes[line] = _run(folder, f"{number:02d}_{words[0]}", words) / 60
    rows = [
        f"| {seed} | {name} | {_accuracy(folder, run, 'data/test/val')} |" for name, run in MODELS.items()
    ]
    return [*rows, f"| {seed} | all commands | {sum(minutes.values()):.1f} minutes | |"]


def plates(folder: Path, seed: int) -> list[str]:
    """Continue with plates, as README does for your own lines; return rows of a table."""
    rows = run_readme(folder, seed)
    if not (folder / "my" / "dict.txt").is_file():
        draw_plates(folder, seed)
    files, commands = use_it()
    write_text(folder / "data.yml", files["data.yml"])
    own = [shlex.split(line)[1:] for line in commands if "data.yml" in line and "svtrv2" not in line]
    seconds = sum(_run(folder, f"own{number}_train", words) for number, words in enumerate(own))
    rows += [f"| {seed} | {name} | {_accuracy(folder, run, 'my/test')} |" for name, run in OWN.items()]
    return [*rows, f"| {seed} | both trainings on plates | {seconds / 60:.1f} minutes | |"]


def _run(folder: Path, name: str, words: Sequence[str]) -> float:
    """Run one command in the folder, and return its seconds; a command that has succeeded is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "seconds.json"
    seconds: dict[str, float] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if name in seconds:
        return seconds[name]
    before, log = time.monotonic(), folder / f"{name}.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("w", encoding="utf-8") as stream:
        call = [sys.executable, "-m", "ppocr_ext.cli.main", *words]
        code = subprocess.run(call, cwd=folder, stdout=stream, stderr=stream, env=environment).returncode
    if code:
        raise RunFailedError(f"exit code {code} of: {shlex.join(words)}\nSee {log}.", code="run_failed")
    seconds[name] = time.monotonic() - before
    write_text(file, json.dumps(seconds, indent=2))
    return seconds[name]


def _accuracy(folder: Path, run: str, lines: str) -> str:
    """Read new lines with the best checkpoint of a run; return accuracy and 1 - NED, as cells of a table."""
    name = Path(run).name
    _run(folder, f"test_{name}", ["predict", run, f"{lines}_list.txt", "--output", f"test_{name}.tsv"])
    predictions = read_predictions(folder / f"test_{name}.tsv")
    right = np.mean([line.correct for line in predictions])
    similar = np.mean([Levenshtein.normalized_similarity(line.label, line.text) for line in predictions])
    return f"{100 * right:.1f} % | {similar:.4f}"


def draw_plates(folder: Path, seed: int) -> None:
    """Draw the plates into ``my``, with label files and dictionary."""
    random = np.random.default_rng(seed)
    train, validation, test = PLATES
    for stem, count in {"my/train": train, "my/val": validation, "my/test": test}.items():
        images = folder / stem
        images.mkdir(parents=True, exist_ok=True)
        lines = []
        for number in range(count):
            text = "".join(random.choice(list(CHARACTERS), 10))
            name = f"{images.name}/{number:06d}.png"
            cv2.imwrite(str(images.parent / name), plate(text, random))
            lines.append(f"{name}\t{text}\n")
        write_text(folder / f"{stem}_list.txt", "".join(lines))
    write_text(folder / "my" / "dict.txt", "".join(f"{each}\n" for each in sorted(CHARACTERS)))


def plate(text: str, random: np.random.Generator) -> np.ndarray:
    """Draw a plate, uint8 [56, 260, 3]: a frame, letters of an OpenCV font, a slight turn, blur and noise."""
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
    return np.clip(noisy, 0, 255).astype(np.uint8)


def run_experiment(args: argparse.Namespace) -> str:
    """Run all seeds, one after another; return the table as Markdown."""
    job = plates if args.plates else run_readme
    rows = [row for seed in args.seeds for row in job(args.out.resolve() / f"seed{seed}", seed)]
    table = "\n".join(["| seed | model | new lines read | 1 - NED |", "|---|---|---|---|", *rows])
    write_text(args.out / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "use_it", "of data and trainings")
    parser.add_argument("--plates", action="store_true", help="plates of ten characters, drawn here")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
