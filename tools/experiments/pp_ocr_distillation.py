#!/usr/bin/env python3
"""Whether PP-OCRv6 tiny learns more from PP-OCRv6 medium than alone: trains both, compares, prints a table.

Draws text lines of digits, and trains from nothing, on a CPU and without any official weights:
  teacher     PP-OCRv6 medium
  alone       PP-OCRv6 tiny, once for each seed
  distilled   the same networks with the same seeds, data and number of steps, taught by the teacher
Then all of them read held-out lines, and the feature centers of the first distilled student are exported.

The folder then holds results.md (the table), results.json, curves.png (accuracy on the validation lines over the
steps), centers.npz and one folder for each run. Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import json
import logging
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from ppocr_ext.errors import ConfigError  # noqa: E402
from ppocr_ext.evaluation.predictions import McNemar, read_predictions  # noqa: E402
from ppocr_ext.io.atomic import atomic_writer, write_text  # noqa: E402
from ppocr_ext.io.resources import config_path  # noqa: E402
from ppocr_ext.report.run_folder import Series, read_metrics  # noqa: E402

_LOG = logging.getLogger("ppocr_ext")
PRESET = "experiments/pp_ocr_distillation"
FONTS = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")  # of matplotlib
LOOK = (
    "--characters 0123456789 --length 1 2 --width 48 --sizes 34 40 --margin 0.05 0.15 --inverted 0 --shrink 0 --jpeg 0 "
    "--blur 0 0.5 --contrast 140 240 --background-kinds plain gradient"
)
TRAIN_LINES, VALIDATION_LINES, TEST_LINES = 3200, 200, 1000
STUDENT_LINES = 1200  # the first of those that the teacher is trained with
STUDENT_LIST = "student_list.txt"
CONFIGS = {"teacher": "teacher", "alone": "student", "distilled": "distill"}
NAMES = {
    "teacher": "teacher (PP-OCRv6 medium)",
    "alone": "student alone (PP-OCRv6 tiny)",
    "distilled": "student, distilled",
}
_COLORS = {"teacher": "#666666", "alone": "#D55E00", "distilled": "#0072B2"}


@dataclass(frozen=True)
class Result:
    """What one run reached.

    Attributes:
        seed: of weights and shuffling.
        parameters: trained ones, both heads included.
        curve: (step, share of the validation lines read without error) for each evaluation.
        right: for each test line, whether it was read without error.
    """

    seed: int
    parameters: int
    curve: Series
    right: tuple[bool, ...]

    @property
    def accuracy(self) -> float:
        """Share of the test lines that were read without error."""
        return sum(self.right) / len(self.right)


def draw_data(folder: Path) -> None:
    """Draw the text lines to train, validate and test on; what exists is kept."""
    from ppocr_ext.synth.lines.fonts import package_folder

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


def run_experiment(folder: Path, seeds: Sequence[int], at_once: int) -> str:
    """Run all that is left to do, and return the table as Markdown.

    Args:
        folder: of all files.
        seeds: of the students.
        at_once: runs at a time, one thread each.

    Raises:
        ConfigError: there are no fonts.
        RunFailedError: a run ended with an error.
        RunStopped: by a signal.
    """
    folder = folder.resolve()
    draw_data(folder)
    alone = [training(folder, "alone", seed) for seed in seeds]
    distilled = [training(folder, "distilled", seed) for seed in seeds]
    # those that learn alone need no teacher
    for runs in ([training(folder, "teacher"), *alone], distilled):
        side_by_side([partial(_train, run) for run in runs], at_once)
    results = {
        kind: [result_of(training(folder, kind, seed), folder / "test", seed) for seed in chosen]
        for kind, chosen in (("teacher", (1,)), ("alone", seeds), ("distilled", seeds))
    }
    export_centers(distilled[0], folder / "centers.npz")
    table = to_markdown(results)
    write_text(folder / "results.md", table + "\n")
    numbers = {
        kind: [{"seed": r.seed, "accuracy": r.accuracy, "curve": r.curve} for r in found]
        for kind, found in results.items()
    }
    write_text(folder / "results.json", json.dumps(numbers, indent=1) + "\n")
    draw_curves(folder / "curves.png", results)
    return table


def _train(run: Training) -> None:
    name = run.folder.name
    if run.finished():
        _LOG.info("%s: finished before", name)
        return
    _LOG.info("%s: training, see %s.log", name, run.folder)
    train(run)
    _LOG.info("%s: finished", name)


def result_of(run: Training, test: Path, seed: int) -> Result:
    """Read the test lines with a finished run, and return what it reached."""
    output = run.folder / "test.tsv"
    if not output.is_file():
        _LOG.info("%s reads the test lines", run.folder.name)
    predictions = read_predictions(read_lines(run, test, output))
    record = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    curve = read_metrics(run.folder / "metrics.jsonl").series("eval", "acc")
    return Result(seed, record["parameters"]["trained"], curve, tuple(line.correct for line in predictions))


def export_centers(run: Training, output: Path) -> None:
    """Write the feature centers of a distilled student; a file that exists is kept."""
    if not output.is_file():
        arguments = [*run.options(), f"Global.checkpoints={run.latest}", "--output", str(output)]
        command("export-center", arguments, output.with_suffix(".log"))


def to_markdown(results: Mapping[str, Sequence[Result]]) -> str:
    """Return the table as Markdown: the mean of each kind, its seeds, and the difference that the teacher makes."""
    head = ["model", "trained parameters", "steps", "test lines right", "each seed", "against alone, by seed"]
    rows = []
    for kind, found in results.items():
        shares = [100 * result.accuracy for result in found]
        differences = ""
        p_values = ""
        if kind == "distilled":
            pairs = list(zip(results["alone"], found, strict=True))
            differences = ", ".join(f"{100 * (b.accuracy - a.accuracy):+.1f}" for a, b in pairs)
            p_values = ", ".join(f"{McNemar.of(a.right, b.right).p_value:.2g}" for a, b in pairs)
        size = [f"{found[0].parameters / 1e6:.2f} M", str(found[0].curve[-1][0])]
        each = ", ".join(f"{share:.1f}" for share in shares)
        rows.append([NAMES[kind], *size, f"{mean(shares, 1)} %", each, differences, p_values])
    return markdown([*head, "McNemar's p, by seed"], rows)


def draw_curves(path: Path, results: Mapping[str, Sequence[Result]]) -> None:
    """Draw the curve of each run as a thin line, and the mean of the seeds as a thick one; a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for kind in ("alone", "distilled"):
        curves = [result.curve for result in results[kind]]
        for curve in curves:
            axes.plot(*zip(*curve, strict=True), color=_COLORS[kind], linewidth=0.8, alpha=0.5)
        means = [
            (points[0][0], statistics.fmean(share for _, share in points))
            for points in zip(*curves, strict=True)
        ]
        label = f"{NAMES[kind]}, mean of {len(curves)}"
        axes.plot(*zip(*means, strict=True), color=_COLORS[kind], linewidth=2.4, marker="o", label=label)
    best = results["teacher"][0].curve[-1][1]
    axes.axhline(best, color=_COLORS["teacher"], linestyle="--", label=f"{NAMES['teacher']}, at its end")
    axes.set_xlabel("step")
    axes.set_ylabel("validation lines right")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    with atomic_writer(path) as stream:
        figure.savefig(stream, format="png")


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "pp_ocr_distillation", "of the students")
    return from_command_line(
        parser, lambda args: run_experiment(args.out, list(dict.fromkeys(args.seeds)), args.at_once)
    )


if __name__ == "__main__":
    sys.exit(main())
