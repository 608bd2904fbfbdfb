#!/usr/bin/env python3
"""What teacher caches and bfloat16 do to the student's accuracy, against the live teacher in float32.

Draws 2,000 CAPTCHAs to train on, trains the teacher of the quickstart, builds the caches, and distils its student
for each seed: with RecAug, as many steps each, taught live, by a live teacher in bfloat16, or from a cache of 1 or 4
views of each image. All of them read held-out images.

The folder then holds results.md (the table) and one folder for each run. Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from benchmarks.table import markdown, mean  # noqa: E402

from experiments.runs import (  # noqa: E402
    Training,
    command,
    draw_data_and_test,
    experiment_parser,
    from_command_line,
    read_lines,
    side_by_side,
    train,
)
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.evaluation.predictions import read_predictions  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_path  # noqa: E402

IMAGES = (2000, 200, 1000)  # to train, validate and test on
BFLOAT16 = "bfloat16"
VIEWS = {"live": None, BFLOAT16: None, "1 view": 1, "4 views": 4}


def training(folder: Path, kind: str, seed: int = 1) -> Training:
    """Return the run of ``teacher`` or of a key of ``VIEWS``, and a seed; it need not have begun."""
    data = folder / "data"
    file = config_path(f"quickstart/{'teacher' if kind == 'teacher' else 'distill'}.yml")
    values = {
        "Global.seed": seed,
        "Global.character_dict_path": str(data / "dict.txt"),
        "Eval.dataset.data_dir": str(data),
        "Eval.dataset.label_file_list": [str(data / "val_list.txt")],
    }
    if kind == "teacher":  # on images drawn without end, as in the quickstart
        return Training(folder / kind, (file,), values)
    transforms = load([file]).thaw()["Train"]["dataset"]["transforms"]
    transforms.insert(1, {"RecAug": None})
    values["Train.dataset"] = {
        "name": "SimpleDataSet",
        "data_dir": str(data),
        "label_file_list": [str(data / "train_list.txt")],
        "transforms": transforms,
    }
    values["Train.loader.shuffle"] = True
    if kind == BFLOAT16:
        values["Global.teacher_dtype"] = BFLOAT16
    values["Architecture.Models.Teacher.pretrained"] = str(training(folder, "teacher").latest)
    return Training(folder / f"{kind.replace(' ', '_')}_seed{seed}", (file,), values)


def build(folder: Path, kind: str) -> Path:
    """Build the cache of a key of ``VIEWS``, or go on; return its folder."""
    output = folder / f"cache_{kind.replace(' ', '_')}"
    options = ["--output", str(output), "--views", str(VIEWS[kind]), "--seed", "0"]
    command("cache-teacher", [*training(folder, kind).options(), *options], output.with_suffix(".log"))
    return output


def run_experiment(folder: Path, seeds: Sequence[int], at_once: int) -> str:
    """Run all that is left to do, and return the table as Markdown.

    Raises:
        RunFailedError: a run ended with an error.
        RunStopped: by a signal.
    """
    folder = folder.resolve()
    draw_data_and_test("captcha", folder, IMAGES)
    train(training(folder, "teacher"), at_once)
    runs = {kind: [training(folder, kind, seed) for seed in seeds] for kind in VIEWS}
    for kind, views in VIEWS.items():
        cache = None if views is None else str(build(folder, kind))
        for run in runs[kind]:
            run.values["Train.teacher_cache"] = cache
    side_by_side([partial(train, run) for found in runs.values() for run in found], at_once)
    shares = {kind: [_share_right(run, folder / "test") for run in found] for kind, found in runs.items()}
    table = to_markdown(shares)
    write_text(folder / "results.md", table + "\n")
    return table


def _share_right(run: Training, test: Path) -> float:
    read = read_predictions(read_lines(run, test, run.folder / "test.tsv"))
    return sum(line.correct for line in read) / len(read)


def to_markdown(shares: Mapping[str, Sequence[float]]) -> str:
    """Return the share of test images read without error as a table: mean, spread and each seed."""
    rows = []
    for name, found in shares.items():
        percents = [100 * share for share in found]
        against = [f"{share - 100 * live:+.1f}" for share, live in zip(percents, shares["live"], strict=True)]
        each = ", ".join(f"{share:.1f}" for share in percents)
        rows.append([name, f"{mean(percents, 1)} %", each, "" if name == "live" else ", ".join(against)])
    return markdown(["teacher", "test images right", "each seed", "against live, by seed"], rows)


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "teacher_cache_experiment", "of the students")
    return from_command_line(
        parser, lambda args: run_experiment(args.out, list(dict.fromkeys(args.seeds)), args.at_once)
    )


if __name__ == "__main__":
    sys.exit(main())
