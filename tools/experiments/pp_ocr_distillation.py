#!/usr/bin/env python3
"""Compare PP-OCRv6 tiny taught by PP-OCRv6 medium with PP-OCRv6 tiny alone.

Draws text lines of digits, and trains on a CPU without official weights:
  teacher     PP-OCRv6 medium
  alone       PP-OCRv6 tiny, once for each seed
  distilled   PP-OCRv6 tiny with the same seeds, data and steps, taught by the teacher
Then all of them read test lines.

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
    compare,
    draw_data_and_test,
    experiment_parser,
    from_command_line,
    side_by_side,
    train,
)
from ppocr_ext.errors import ConfigError  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_path, package_folder  # noqa: E402

PRESET = "experiments/pp_ocr_distillation"
FONTS = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")  # of matplotlib
LOOK = (
    "--characters 0123456789 --length 1 2 --width 48 --sizes 34 40 --margin 0.05 0.15 --inverted 0 --shrink 0 --jpeg 0 "
    "--blur 0 0.5 --contrast 140 240 --background-kinds plain gradient"
)
TRAIN_LINES, VALIDATION_LINES, TEST_LINES = 3200, 200, 1000
STUDENT_LINES = 1200  # the first of the teacher's lines
STUDENT_LIST = "student_list.txt"
CONFIGS = {"teacher": "teacher", "alone": "student", "distilled": "distill"}
NAMES = {
    "teacher": "teacher (PP-OCRv6 medium)",
    "alone": "student alone (PP-OCRv6 tiny)",
    "distilled": "student, distilled",
}


def draw_data(folder: Path) -> None:
    """Draw the text lines to train, validate and test on; what exists is kept."""
    package = package_folder("matplotlib")
    if package is None:
        raise ConfigError(
            "The fonts of the package matplotlib are missing. Fix: pip install matplotlib", code="no_fonts"
        )
    fonts = [str(next(package.rglob(name))) for name in FONTS]
    look = [*LOOK.split(), "--fonts", *fonts]
    draw_data_and_test("lines", folder, (TRAIN_LINES, VALIDATION_LINES, TEST_LINES), look)
    lines = (folder / "data" / "train_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    write_text(folder / STUDENT_LIST, "".join(lines[:STUDENT_LINES]))


def training(folder: Path, kind: str, seed: int = 1) -> Training:
    """Return the run of a kind (key of ``CONFIGS``) and a seed; it need not have begun."""
    data = folder / "data"
    labels = data / "train_list.txt" if kind == "teacher" else folder / STUDENT_LIST
    values = {
        "Global.character_dict_path": str(data / "dict.txt"),
        "Global.seed": seed,
        "Train.dataset.data_dir": str(data),
        "Train.dataset.label_file_list": [str(labels)],
        "Eval.dataset.data_dir": str(data),
        "Eval.dataset.label_file_list": [str(data / "val_list.txt")],
    }
    if kind == "distilled":
        values["Architecture.Models.Teacher.pretrained"] = str(training(folder, "teacher").latest)
    name = kind if kind == "teacher" else f"{kind}_seed{seed}"
    return Training(folder / name, (config_path(f"{PRESET}/{CONFIGS[kind]}.yml"),), values)


def run_experiment(args: argparse.Namespace) -> str:
    """Run what is left to do; return the table as Markdown."""
    folder, seeds = args.out.resolve(), list(dict.fromkeys(args.seeds))
    draw_data(folder)
    teacher = training(folder, "teacher")
    alone = [training(folder, "alone", seed) for seed in seeds]
    distilled = [training(folder, "distilled", seed) for seed in seeds]
    for runs in ([teacher, *alone], distilled):  # the distilled ones need the teacher
        side_by_side([partial(train, run) for run in runs], args.at_once)
    models = {NAMES["teacher"]: [teacher], NAMES["alone"]: alone, NAMES["distilled"]: distilled}
    table = compare(models, folder / "test", NAMES["alone"])
    write_text(folder / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "pp_ocr_distillation", "of the students")
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
