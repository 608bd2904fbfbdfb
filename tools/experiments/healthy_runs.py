#!/usr/bin/env python3
"""Record healthy runs of the shipped recipes, and write the ranges of values that a healthy training has.

`record` trains the recipes one after another on a CPU, at reduced size: drawn CAPTCHAs, small batches, few steps, from
random weights. A frozen teacher keeps its random weights. `ranges` reads `metrics.jsonl` of these runs, and of further
healthy runs, and adds them to `ppocr_ext/loop/hooks/healthy_runs.json`.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from ppocr_ext.config import Config, load  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_path, config_root  # noqa: E402
from ppocr_ext.loop.events import Hook, StepDone  # noqa: E402
from ppocr_ext.loop.hooks.collapse_rules import ALL_BLANK, HEALTHY_RUNS, IN_A_ROW, LEARNT  # noqa: E402
from ppocr_ext.loop.hooks.collapse_watch import CollapseWatch  # noqa: E402
from ppocr_ext.loop.session import train  # noqa: E402
from ppocr_ext.report.run_folder import Metrics, read_metrics  # noqa: E402
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource  # noqa: E402
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder  # noqa: E402

_LOG = logging.getLogger("ppocr_ext")
# parts of other configs, or overlays with files that an experiment makes
_NO_RECIPES = [
    "base",
    "single",
    "data",
    "heads",
    "pairs",
    "v3_data",
    "run",
    "distill_teacher",
    "tune",
    "center",
]
_LOADER = {"shuffle": False, "batch_size_per_card": 12, "drop_last": False, "num_workers": 0}
_KEPT = ("first_loss", "blank_share", "blank_probability", "text_length", "distinct_texts", "nrtr_end_share")
_KEPT_EVAL = ("acc", "nrtr_empty")
Columns = Mapping[str, Sequence[float | None]]  # `step` and each value, by name


@dataclass(frozen=True)
class Size:
    """How a recipe is reduced."""

    steps: int
    every: int  # steps between two measurements
    batch: int
    shape: list[int] | None  # of an image; None: as in the recipe
    length: tuple[int, int]  # of a label


def recipes() -> list[str]:
    """Return the shipped recipes that can be trained, small networks first."""
    root = config_root()
    files = [path for path in sorted(root.rglob("*.yml")) if path.stem not in _NO_RECIPES]
    names = [str(path.relative_to(root)) for path in files if path.parent.name != "overlays"]
    order = ["quickstart", "lines", "captcha", "pp-ocr", "svtrv2"]
    return sorted(names, key=lambda name: next(n for n, start in enumerate(order) if name.startswith(start)))


def size_of(recipe: str, steps: int) -> Size:
    """Return the reduced size of a recipe; full-size networks take a sixth of the steps, measured more often."""
    if recipe.startswith(("pp-ocr/", "svtrv2/")):
        height = 32 if recipe == "pp-ocr/v2_mobile.yml" else 48
        return Size(max(steps // 6, 6), 2, 4, [3, height, 48], (1, 1 if height == 32 else 2))
    return Size(steps, 10, 8, None, (4, 5))


class _StopAfter(Hook):
    """Stop after a step; its evaluation still comes, but no checkpoint."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_step(self, step: StepDone) -> None:
        """Ask for the stop."""
        if step.position.global_step == self._steps:
            self.loop.request_stop("recorded", save_latest=False)


def record(recipe: str, folder: Path, steps: int) -> None:
    """Train a recipe at reduced size in ``folder``, without a checkpoint at its end."""
    size = size_of(recipe, steps)
    data = folder / f"data_{size.length[0]}_{size.length[1]}_{steps}"
    source = CaptchaSource(CaptchaOptions(length=size.length), seed=1)
    make_folder(data, DatasetFolder(source, train=8 * steps, val=12))
    config = load([config_path(recipe)])
    values: dict[str, Any] = {
        "Global.use_gpu": False,
        "Global.pretrained_model": None,
        "Global.allow_untrained_teacher": True,
        "Global.character_dict_path": str(data / "dict.txt"),
        "Global.use_space_char": False,
        "Global.max_text_length": 8,
        "Global.epoch_num": 1,
        "Global.eval_batch_step": [0, size.steps // 2 if size.shape is None else size.steps],
        "Global.print_batch_step": size.every,
        "Global.save_model_dir": str(run_folder(folder, recipe)),
        "Global.report": False,
        "Global.dry_step": False,
        "Global.seed": 1,
        "Optimizer.lr.warmup_epoch": 0.1,
        "Train.sampler": None,
        "Train.dataset": _dataset(config, data, "train_list.txt", size, size.steps * size.batch),
        "Train.loader": _LOADER | {"shuffle": True, "drop_last": True, "batch_size_per_card": size.batch},
        "Eval.dataset": _dataset(config, data, "val_list.txt", size, 12),
        "Eval.loader": _LOADER,
    }
    for name in config.at("Architecture.Models", default=None) or ():
        values[f"Architecture.Models.{name}.pretrained"] = None
    often = CollapseWatch(size.every, lambda key, value: None)  # the run's own watch writes run.json
    often.every = size.every  # more often than the constructor allows
    train(config.with_values(values), overwrite=True, hooks=[often, _StopAfter(size.steps)])


def _dataset(config: Config, data: Path, labels: str, size: Size, count: int) -> dict[str, Any]:
    """Return a dataset of the first ``count`` lines, prepared as the recipe's ``Eval`` does."""
    lines = (data / labels).read_text(encoding="utf-8").splitlines(keepends=True)[:count]
    part = data / f"{count}_{labels}"
    write_text(part, "".join(lines))
    transforms = config.thaw()["Eval"]["dataset"]["transforms"]
    for entry in transforms:
        if size.shape is not None and "RecResizeImg" in entry:
            entry["RecResizeImg"]["image_shape"] = size.shape
    files = {"data_dir": str(data), "label_file_list": [str(part)]}
    return {"name": "SimpleDataSet", **files, "transforms": transforms}


def record_all(folder: Path, steps: int, only: str) -> list[str]:
    """Train all recipes with ``only`` in their name, and return those that failed; finished ones are kept."""
    failed = []
    for recipe in (name for name in recipes() if only in name):
        mark = run_folder(folder, recipe) / "healthy"
        if mark.is_file():
            continue
        try:
            record(recipe, folder, steps)
            mark.touch()
        except Exception as error:  # the other recipes are still worth recording
            _LOG.error("%s: %s", recipe, error)
            failed.append(recipe)
    return failed


def run_folder(folder: Path, recipe: str) -> Path:
    """Return the run folder of a recipe."""
    return folder / recipe.removesuffix(".yml").replace("/", "_")


def write_ranges(folder: Path, others: Sequence[Path], file: Path = HEALTHY_RUNS) -> None:
    """Add the runs recorded in ``folder``, and other healthy runs, to those of ``file``, and write the ranges."""
    recorded = {name: run_folder(folder, name) for name in recipes()}
    folders = {name: path for name, path in recorded.items() if (path / "healthy").is_file()}
    folders |= {str(path): path for path in others}
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    runs |= {name: columns_of(read_metrics(path)) for name, path in folders.items()}
    text = json.dumps({"ranges": ranges_of(runs), "runs": runs}, separators=(",", ":"))
    write_text(file, text.replace('},"', '},\n"') + "\n")


def columns_of(metrics: Metrics) -> dict[str, dict[str, list[float | None]]]:
    """Return the values of a run that a healthy range is made of: ``train`` and ``eval``, a list for each name."""
    columns: dict[str, dict[str, list[float | None]]] = {}
    for kind, lines, keys in (("train", metrics.train, _KEPT), ("eval", metrics.evals, _KEPT_EVAL)):
        plain = [{key.removesuffix("_Student"): value for key, value in line.items()} for line in lines]
        measured = [line for line in plain if any(key in line for key in keys)]
        columns[kind] = {
            key: [_rounded(line.get(key)) for line in measured]
            for key in ("step", *keys)
            if any(key in line for line in measured)
        }
    return columns


def _rounded(value: Any) -> float | None:
    return None if value is None else value if isinstance(value, int) else float(f"{value:.6g}")


def ranges_of(runs: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return for each range the extreme value of the healthy runs (``recorded``), and the ``limit``, with a margin."""

    def largest(key: str) -> float:
        return max(value for run in runs.values() for value in run["train"].get(key, ()) if value is not None)

    def longest(state: Callable[[Mapping[str, float | None]], bool]) -> float:
        return max(_longest(run["train"], state) for run in runs.values())

    learnt = [_after_learning(run) for run in runs.values()]
    ends = [min(part) for run in learnt for part in _in_a_row(run["nrtr_end_share"])]
    drops = [
        max(run["eval"]["acc"][: place + 1]) - value
        for run in runs.values()
        for place, value in enumerate(run["eval"].get("acc", ()))
    ]
    recorded = {
        "first_loss": largest("first_loss"),
        "blank_probability": largest("blank_probability"),
        "blank_steps": longest(lambda row: (row.get("blank_share") or 0) >= ALL_BLANK),
        "same_text_steps": longest(
            lambda row: row.get("distinct_texts") == 1 and (row.get("text_length") or 0) > 0
        ),
        "nrtr_steps": longest(lambda row: (row.get("nrtr_end_share") or 0) > 0.5),
        "nrtr_end_share": max(ends, default=0.0),
        "nrtr_empty": max((value for run in learnt for value in run["nrtr_empty"]), default=0.0),
        "accuracy_drop": max(drops),
    }
    limits = {
        "first_loss": max(2.0, 2 * recorded["first_loss"]),
        "blank_probability": max(0.9999, 1 - (1 - recorded["blank_probability"]) / 10),
        # full-size runs on large data need more steps than these short runs
        "blank_steps": max(2000, 4 * recorded["blank_steps"]),
        "same_text_steps": max(2000, 4 * recorded["same_text_steps"]),
        "nrtr_steps": max(2000, 4 * recorded["nrtr_steps"]),
        "nrtr_end_share": max(0.5, (1 + recorded["nrtr_end_share"]) / 2),
        "nrtr_empty": max(0.5, (1 + recorded["nrtr_empty"]) / 2),
        "accuracy_drop": max(0.4, 2 * recorded["accuracy_drop"]),
    }
    return {name: {"recorded": recorded[name], "limit": round(limits[name], 6)} for name in limits}


def _in_a_row(values: Sequence[float]) -> Iterator[Sequence[float]]:
    yield from (values[start : start + IN_A_ROW] for start in range(len(values) - IN_A_ROW + 1))


def _after_learning(run: Mapping[str, Columns]) -> dict[str, list[float]]:
    """Return the NRTR values from the first evaluation with the accuracy of a run that has learnt."""
    evaluations = zip(run["eval"].get("step", ()), run["eval"].get("acc", ()), strict=True)
    first = next((step or 0 for step, accuracy in evaluations if (accuracy or 0) >= LEARNT), math.inf)
    values = {}
    for kind, key in (("train", "nrtr_end_share"), ("eval", "nrtr_empty")):
        points = zip(run[kind].get("step", ()), run[kind].get(key, ()), strict=False)
        values[key] = [value for step, value in points if value is not None and (step or 0) >= first]
    return values


def _longest(columns: Columns, state: Callable[[Mapping[str, float | None]], bool]) -> float:
    """Return for how many steps a run was in a state."""
    longest, since = 0.0, None
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        step = row["step"] or 0.0
        if not state(row):
            since = None
        else:
            since = step if since is None else since
            longest = max(longest, step - since)
    return longest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train recipes at reduced size")
    recording.add_argument("--only", default="", help="recipes whose path contains this text")
    recording.add_argument("--steps", type=int, default=40, help="of small networks; others take a sixth")
    ranges = commands.add_parser("ranges", help="write the ranges of all that is recorded")
    ranges.add_argument("runs", nargs="*", type=Path, help="further run folders, of healthy runs")
    for each in (recording, ranges):
        each.add_argument("--folder", type=Path, default=Path("output/healthy_runs"), help="of recorded runs")
    chosen = parser.parse_args(arguments)
    if chosen.command == "ranges":
        write_ranges(chosen.folder.resolve(), chosen.runs)
        print(HEALTHY_RUNS)
        return 0
    failed = record_all(chosen.folder.resolve(), chosen.steps, chosen.only)
    print(f"failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
