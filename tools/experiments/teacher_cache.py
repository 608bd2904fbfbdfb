#!/usr/bin/env python3
"""Compare students of a live teacher, of a teacher in bfloat16, and of teacher caches.

Draws 2,000 CAPTCHAs to train on, trains the teacher of the quickstart, builds the caches, and distils its student for
each seed, with RecAug and equal steps: with a live teacher, a live teacher in bfloat16, or a cache of 1 or 4 views of
each image. All students read 1,000 other images.

The folder then holds results.md (the table) and one folder for each run. Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.runs import (  # noqa: E402
    Training,
    command,
    compare,
    draw_data_and_test,
    experiment_parser,
    from_command_line,
    side_by_side,
    train,
)
from ppocr_ext.config import load  # noqa: E402
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


def run_experiment(args: argparse.Namespace) -> str:
    """Run what is left to do; return the table as Markdown."""
    folder = args.out.resolve()
    draw_data_and_test("captcha", folder, IMAGES)
    train(training(folder, "teacher"), args.at_once)
    runs = {kind: [training(folder, kind, seed) for seed in dict.fromkeys(args.seeds)] for kind in VIEWS}
    for kind, views in VIEWS.items():
        cache = None
        if views is not None:
            cache = str(folder / f"cache_{kind.replace(' ', '_')}")
            words = [
                *training(folder, kind).options(),
                "--output",
                cache,
                "--views",
                str(views),
                "--seed",
                "0",
            ]
            command("cache-teacher", words, Path(f"{cache}.log"))
        for run in runs[kind]:
            run.values["Train.teacher_cache"] = cache
    side_by_side([partial(train, run) for seeds in runs.values() for run in seeds], args.at_once)
    table = compare(runs, folder / "test", "live")
    write_text(folder / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "teacher_cache_experiment", "of the students")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
