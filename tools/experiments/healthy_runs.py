#!/usr/bin/env python3
"""Record healthy runs of the shipped recipes, and write the ranges that the monitors of a training take from them.

`record` trains recipes one after the other on a CPU, at reduced size: drawn CAPTCHAs, small batches, few steps, from
nothing. A frozen teacher keeps its initial weights. `ranges` reads `metrics.jsonl` of all recorded runs and of others
that are given, and adds them to `ppocr_ext/loop/hooks/healthy_runs.json`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.healthy_ranges import columns_of, ranges_of  # noqa: E402
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_path, config_root  # noqa: E402
from ppocr_ext.loop.events import Hook, StepDone  # noqa: E402
from ppocr_ext.loop.hooks.collapse_rules import HEALTHY_RUNS  # noqa: E402
from ppocr_ext.loop.hooks.collapse_watch import CollapseWatch  # noqa: E402
from ppocr_ext.loop.session import train  # noqa: E402
from ppocr_ext.report.run_folder import read_metrics  # noqa: E402

_LOG = logging.getLogger("ppocr_ext")
# no runs of their own: parts of others, or laid over others with files that an experiment makes
_SHARED = {
    "base.yml",
    "single.yml",
    "data.yml",
    "heads.yml",
    "pairs.yml",
    "v3_data.yml",
    "run.yml",
    "distill_teacher.yml",
}
_LAID_OVER = {"experiments/lookalikes/tune.yml", "experiments/lookalikes/center.yml"}


@dataclass(frozen=True)
class Size:
    """How a recipe is reduced.

    Attributes:
        steps: of the run.
        every: steps between two measurements.
        batch: images in a step.
        shape: of an image; None keeps the recipe's.
        length: characters of a label.
    """

    steps: int
    every: int
    batch: int
    shape: list[int] | None
    length: tuple[int, int]


def recipes() -> list[str]:
    """Return the shipped recipes that can be trained, small networks first."""
    root = config_root()
    names = [str(path.relative_to(root)) for path in sorted(root.rglob("*.yml")) if path.name not in _SHARED]
    names = [name for name in names if not name.startswith("overlays/") and name not in _LAID_OVER]
    order = ["quickstart", "lines", "captcha", "experiments/lookalikes", "experiments", "pp-ocr", "svtrv2"]
    return sorted(
        names, key=lambda name: next(place for place, start in enumerate(order) if name.startswith(start))
    )


def size_of(recipe: str, steps: int) -> Size:
    """Return the reduced size of a recipe; full-size networks take a sixth of the steps, measured more often."""
    if recipe.startswith(("pp-ocr/", "svtrv2/", "experiments/pp_ocr")):
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
    from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
    from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

    size = size_of(recipe, steps)
    data = folder / f"data_{size.length[0]}_{size.length[1]}_{steps}"
    source = CaptchaSource(CaptchaOptions(length=size.length), seed=1)
    make_folder(data, DatasetFolder(source, train=8 * steps, val=12))
    config = load([config_path(recipe)])
    run = folder / recipe.removesuffix(".yml").replace("/", "_")
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
        "Global.save_model_dir": str(run),
        "Global.report": False,
        "Global.dry_step": False,
        "Global.seed": 1,
        "Optimizer.lr.warmup_epoch": 0.1,
        "Train.sampler": None,
        "Train.dataset": _dataset(config, data, "train_list.txt", size, size.steps * size.batch),
        "Train.loader": {
            "shuffle": True,
            "batch_size_per_card": size.batch,
            "drop_last": True,
            "num_workers": 0,
        },
        "Eval.dataset": _dataset(config, data, "val_list.txt", size, 12),
        "Eval.loader": {"shuffle": False, "batch_size_per_card": 12, "drop_last": False, "num_workers": 0},
    }
    for name in config.at("Architecture.Models", default=None) or ():
        values[f"Architecture.Models.{name}.pretrained"] = None
    often = CollapseWatch(size.every, lambda key, value: None)  # run.json has it from the run's own
    often.every = size.every  # more often than a run would
    train(config.with_values(values), overwrite=True, hooks=[often, _StopAfter(size.steps)])


def _dataset(config: Any, data: Path, labels: str, size: Size, count: int) -> dict[str, Any]:
    """Return a dataset of the first ``count`` lines, prepared as the recipe's ``Eval`` does."""
    lines = (data / labels).read_text(encoding="utf-8").splitlines(keepends=True)[:count]
    part = data / f"{count}_{labels}"
    write_text(part, "".join(lines))
    transforms = config.thaw()["Eval"]["dataset"]["transforms"]
    for entry in transforms:
        if size.shape is not None and "RecResizeImg" in entry:
            entry["RecResizeImg"]["image_shape"] = size.shape
    return {
        "name": "SimpleDataSet",
        "data_dir": str(data),
        "label_file_list": [str(part)],
        "transforms": transforms,
    }


def record_all(folder: Path, steps: int, only: str) -> list[str]:
    """Train all recipes whose name contains ``only``, and return those that failed; finished ones are kept."""
    failed = []
    for recipe in (name for name in recipes() if only in name):
        began = time.monotonic()
        if (run_folder(folder, recipe) / "healthy").is_file():
            continue
        try:
            record(recipe, folder, steps)
        except Exception as error:  # the others are still worth recording
            _LOG.error("%s: %s", recipe, error)
            failed.append(recipe)
        else:
            (run_folder(folder, recipe) / "healthy").touch()
            _LOG.info("%s: %.0f s", recipe, time.monotonic() - began)
    return failed


def run_folder(folder: Path, recipe: str) -> Path:
    """Return the run folder of a recipe."""
    return folder / recipe.removesuffix(".yml").replace("/", "_")


def write_ranges(folder: Path, others: Sequence[Path], file: Path = HEALTHY_RUNS) -> None:
    """Add the runs recorded in ``folder``, and other healthy runs, to those of ``file``, and write its ranges anew."""
    found = {name: run_folder(folder, name) for name in recipes()}
    found = {name: path for name, path in found.items() if (path / "healthy").is_file()}
    found |= {str(path): path for path in others}
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    runs |= {name: columns_of(read_metrics(path)) for name, path in found.items()}
    text = json.dumps({"ranges": ranges_of(runs), "runs": runs}, separators=(",", ":"))
    write_text(file, text.replace('},"', '},\n"') + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="train recipes at reduced size")
    recording.add_argument("--only", default="", help="recipes whose path contains this text")
    recording.add_argument(
        "--steps", type=int, default=40, help="of small networks; full-size ones take a sixth"
    )
    ranges = commands.add_parser("ranges", help="write the ranges of all that is recorded")
    ranges.add_argument("runs", nargs="*", type=Path, help="further run folders, of healthy runs")
    for each in (recording, ranges):
        each.add_argument(
            "--folder", type=Path, default=Path("output/healthy_runs"), help="of the recorded runs"
        )
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
