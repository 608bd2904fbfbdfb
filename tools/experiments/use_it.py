#!/usr/bin/env python3
"""Run README's section "Use it" and the guide that follows it; print minutes and how well the models read.

For each seed, in its own folder: runs them word by word (seeds other than 1 add `--seed` and `Global.seed`), and
counts the new lines that the teacher, the student and the student with center loss read without an error.
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

import numpy as np
from rapidfuzz.distance import Levenshtein

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import RunFailedError, experiment_parser, from_command_line  # noqa: E402
from ppocr_ext.evaluation.predictions import read_predictions  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402

BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW = "new"  # 200 lines like those of the folder that `init` looks at
MODELS = {  # name -> run, and the new lines that it reads
    "init, a released model": ("my/run", NEW),
    "init": ("alone/run", NEW),
    "student of init": ("student/run", NEW),
    "teacher": ("output/lines_teacher", "data/test"),
    "student, distilled": ("output/lines_distill", "data/test"),
    "with center loss": ("output/center_loss", "data/test"),
}


def use_it() -> list[str]:
    """Return the commands of the sections that a comment marks."""
    pages = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/distillation.md"))
    sections = [page.partition("<!-- use it -->")[2].split("\n## ")[1] for page in pages]
    return [
        re.sub(r"\s+#.*", "", line)
        for section in sections
        for body in BLOCK.findall(section)
        for line in body.splitlines()
    ]


def run_readme(folder: Path, seed: int) -> list[str]:
    """Run README's commands for small networks; return rows of a table."""
    commands = [line for line in use_it() if line.startswith("ppocr-ext") and "svtrv2" not in line.lower()]
    drawing = next(line for line in commands if "--out photos" in line)
    new = drawing.replace("photos", NEW).replace("--train 1300 --val 0", "--train 0 --val 200") + " --seed 2"
    minutes = {}
    for number, line in enumerate(commands):
        words = shlex.split(line)[1:]
        if seed != 1 and words[0] == "make-dataset":
            words += ["--seed", str(100 + seed if "data/test" in words else seed)]
        if seed != 1 and words[0] == "train":
            at = words.index("-o") if "-o" in words else len(words)
            words[at : at + 1] = ["-o", f"Global.seed={seed}"]
        minutes[line] = run_command(folder, f"{number:02d}_{words[0]}", words) / 60
    run_command(folder, "new", shlex.split(new)[1:])
    rows = [
        f"| {seed} | {name} | {accuracy(folder, run, f'{lines}/val_list.txt')} |"
        for name, (run, lines) in MODELS.items()
    ]
    return [*rows, f"| {seed} | all commands | {sum(minutes.values()):.1f} minutes | |"]


def run_command(folder: Path, name: str, words: Sequence[str]) -> float:
    """Run one command in the folder, and return its seconds; a command that has succeeded is not run again.

    A training that was interrupted begins anew, so that its seconds are those of the whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "seconds.json"
    seconds: dict[str, float] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if name in seconds:
        return seconds[name]
    before, log = time.monotonic(), folder / f"{name}.log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    again = ["--overwrite"] if words[0] == "train" and log.is_file() else []
    with log.open("w", encoding="utf-8") as stream:
        call = [sys.executable, "-m", "ppocr_ext.cli.main", *words, *again]
        code = subprocess.run(call, cwd=folder, stdout=stream, stderr=stream, env=environment).returncode
    if code:
        raise RunFailedError(f"exit code {code} of: {shlex.join(words)}\nSee {log}.", code="run_failed")
    seconds[name] = time.monotonic() - before
    write_text(file, json.dumps(seconds, indent=2))
    return seconds[name]


def accuracy(folder: Path, run: str, lines: str) -> str:
    """Read new lines with the best checkpoint of a run; return accuracy and 1 - NED, as cells of a table."""
    name = run.replace("/", "_")
    run_command(folder, f"test_{name}", ["predict", run, lines, "--output", f"test_{name}.tsv"])
    predictions = read_predictions(folder / f"test_{name}.tsv")
    right = np.mean([line.correct for line in predictions])
    similar = np.mean([Levenshtein.normalized_similarity(line.label, line.text) for line in predictions])
    return f"{100 * right:.1f} % | {similar:.4f}"


def run_experiment(args: argparse.Namespace) -> str:
    """Run all seeds, one after another; return the table as Markdown."""
    rows = [row for seed in args.seeds for row in run_readme(args.out.resolve() / f"seed{seed}", seed)]
    table = "\n".join(["| seed | model | new lines read | 1 - NED |", "|---|---|---|---|", *rows])
    write_text(args.out / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "use_it", "of data and trainings")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
