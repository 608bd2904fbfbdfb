#!/usr/bin/env python3
"""Measure whether center loss reduces the confusions of look-alikes: train, choose, test, print a table.

Draws Chinese lines rich in look-alikes (fonts of the package mplfonts), trains a teacher, distils a student, exports
its centers, and fine-tunes the student for equal steps: plain, with center loss as PaddleOCR defines it, with aligned
frames, and with a margin. Weight and margin are chosen on lines in another font. The test lines are read once, after
that. Ctrl-C stops; the same command continues.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from benchmarks.table import markdown, mean  # noqa: E402

from experiments.runs import (  # noqa: E402
    Training,
    command,
    experiment_parser,
    from_command_line,
    read_lines,
    side_by_side,
    train,
)
from ppocr_ext.centers.center_summary import look_alike_distance, look_alike_ratios  # noqa: E402
from ppocr_ext.characters.center_table import read_centers  # noqa: E402
from ppocr_ext.characters.look_alikes import read_groups, within  # noqa: E402
from ppocr_ext.charset import Charset  # noqa: E402
from ppocr_ext.errors import DataError  # noqa: E402
from ppocr_ext.evaluation.predictions import (  # noqa: E402
    Prediction,
    characters_in_groups,
    look_alike_errors,
    read_predictions,
)
from ppocr_ext.evaluation.uncertainty import Changes, Rate  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.io.resources import config_path  # noqa: E402
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder  # noqa: E402
from ppocr_ext.synth.lines import (  # noqa: E402
    FrequentCharacters,
    LineSource,
    LineSplit,
    LineStyle,
    RandomTexts,
    find_fonts,
)

_LOG = logging.getLogger("ppocr_ext")
PRESET = "experiments/lookalikes"
CENTER_KEY = "Loss.loss_config_list.CenterLoss"
# Noto and Source Han of mplfonts have two designs, sans and serif, and both are trained. The fonts of the test are
# other files with other Latin letters and metrics, but no third design.
FONTS = {
    "train": ("NotoSansCJKsc-Regular.otf", "NotoSerifCJKsc-Regular.otf"),
    "val": ("NotoSansMonoCJKsc-Regular.otf",),
    "test": ("SourceHanMonoSC-Regular.otf", "SourceHanSerifSC-Regular.otf"),
}
TRAIN_LINES, JUDGED_LINES = 6_000, 3_000  # the second of each list to choose on and to test on
SHARE = 0.5  # of the characters of a line rich in look-alikes
TEACHER_EPOCHS, EPOCHS, CHOICE_EPOCHS, TUNE_EPOCHS = 10, 16, 3, 12
WEIGHTS = (0.05, 0.2)  # of center loss, to choose from
MARGINS = (0.5, 1.0)  # to choose from, in units of the median squared distance of look-alikes' centers
STUDENT = "student"  # all fine-tunings start from this model
_PARTS = 3  # look-alikes are divided by the distance of their centers


@dataclass(frozen=True)
class Variant:
    """A way to fine-tune."""

    name: str
    frames: str | None = None  # ``argmax`` or ``aligned``; None: without center loss
    blank: bool = True  # whether frames of the blank count
    weight: float = 0.0
    margin: float = 0.0

    @property
    def key(self) -> str:
        """Name and numbers, for a folder and a table."""
        weight = f"_w{self.weight:g}" if self.weight else ""
        return f"{self.name}{weight}{f'_m{self.margin:.3g}' if self.margin else ''}"


@dataclass(frozen=True)
class Scores:
    """How a model reads the lines of one set of fonts."""

    look_alikes: Rate  # look-alikes that were read as another character of their group
    by_character: Mapping[str, Rate]  # the same for each character
    rich: tuple[bool, ...]  # for each line rich in look-alikes, whether it was read without error
    general: Rate  # general lines read without error
    # Distance of each look-alike's center to the nearest center of its group, in standard deviations, with the font
    # of validation.
    separations: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers."""
        return {
            "look_alike_error": self.look_alikes.value,
            "interval": list(self.look_alikes.interval),
            "accuracy": statistics.fmean(self.rich),
            "general_accuracy": self.general.value,
            "separation": statistics.median(self.separations.values()) if self.separations else None,
        }


Results = Mapping[str, Sequence[Scores]]  # the scores of each model, one for each seed


def score(rich: Sequence[Prediction], general: Sequence[Prediction], groups: Sequence[str]) -> Scores:
    """Score the predictions on lines rich in ``groups``, and on general lines."""
    pairs = [(line.label, line.text) for line in rich]
    wrong: dict[str, list[bool]] = {}
    for character, confused in characters_in_groups(pairs, groups):
        wrong.setdefault(character, []).append(any(confused.values()))
    return Scores(
        look_alike_errors(pairs, groups),
        {character: Rate(sum(each), len(each)) for character, each in wrong.items()},
        tuple(line.correct for line in rich),
        Rate(sum(line.correct for line in general), len(general)),
    )


class Experiment:
    """The experiment in a folder; parts that are finished there are kept. Weight and margin use the first seed."""

    def __init__(self, folder: Path, seeds: Sequence[int], at_once: int) -> None:
        self.folder, self.seeds, self.at_once = folder, list(dict.fromkeys(seeds)), at_once
        self.dictionary = config_path(f"{PRESET}/dict.txt")
        self.characters = Charset.from_file(self.dictionary).characters
        self.groups = within(read_groups(), self.characters)

    def run(self) -> str:
        """Do what is left to do; return the tables as Markdown."""
        self.draw_lines()
        for run in (self.teacher, self.distilled):
            _LOG.info("%s", run.folder)
            train(run, threads=min(self.at_once, os.cpu_count() or 1))  # nothing else runs yet
        for frames in ("argmax", "aligned"):
            export_centers(self.distilled, frames, self.centers(frames))
        variants = self.choose()
        results = self.test(variants)
        numbers = {name: [seed.to_json() for seed in seeds] for name, seeds in results.items()}
        write_text(self.folder / "results.json", json.dumps(numbers, indent=1) + "\n")
        before = look_alike_ratios(read_centers(self.centers("aligned")), self.groups)
        plain = variants[0].key
        tables = f"{to_markdown(results, plain)}\n\n{by_nearness(results, before, plain)}"
        write_text(self.folder / "results.md", tables + "\n")
        return tables

    def draw_lines(self) -> None:
        """Draw the lines to train on, to choose on and to test on; what exists is kept."""
        fonts = {Path(font.path).name: font for font in find_fonts(["mplfonts"])}
        missing = {name for names in FONTS.values() for name in names} - fonts.keys()
        if missing:
            raise DataError(
                f"The package mplfonts has no {', '.join(sorted(missing))}. Fix: pip install mplfonts==0.0.11",
                code="no_fonts",
            )
        characters = "".join(self.characters)
        alike = FrequentCharacters("".join(dict.fromkeys("".join(self.groups))), SHARE)
        # Short lines are trained too: without them CTC stays at its constant guess for thousands of steps.
        lists = [("train", TRAIN_LINES, (1, 6))]
        lists += [(name, JUDGED_LINES, (3, 6)) for name in ("val", "val_general", "test", "test_general")]
        for seed, (folder, count, length) in enumerate(lists, start=1):
            kind, _, general = folder.partition("_")
            split = "train" if kind == "train" else "val"
            frequent = None if general else alike
            texts = RandomTexts(characters, length, frequent)
            lines = LineSplit(texts, tuple(fonts[name] for name in FONTS[kind]))
            counts = {"train": 0, "val": 0, split: count}
            source = LineSource({split: lines}, LineStyle(height=32), seed)
            data = DatasetFolder(source, counts["train"], counts["val"], characters=characters)
            make_folder(self.folder / "data" / folder, data, self.at_once)

    def training(
        self, name: str, configs: Sequence[str], epochs: int, seed: int, values: Mapping[str, Any]
    ) -> Training:
        """Return a run; it need not have begun."""
        data = self.folder / "data"
        shared = {
            "Global.character_dict_path": str(self.dictionary),
            "Global.epoch_num": epochs,
            "Global.seed": seed,
            "Train.dataset.data_dir": str(data / "train"),
            "Train.dataset.label_file_list": [str(data / "train" / "train_list.txt")],
            "Eval.dataset.data_dir": str(data / "val"),
            "Eval.dataset.label_file_list": [str(data / "val" / "val_list.txt")],
        }
        files = tuple(config_path(f"{PRESET}/{config}.yml") for config in configs)
        return Training(self.folder / name, files, {**shared, **values})

    @property
    def teacher(self) -> Training:
        """The teacher."""
        return self.training("teacher", ["teacher"], TEACHER_EPOCHS, 1, {})

    @property
    def distilled(self) -> Training:
        """The student of the teacher."""
        weights = {"Architecture.Models.Teacher.pretrained": str(self.teacher.latest)}
        return self.training("distilled", ["distill"], EPOCHS, 1, weights)

    def tuning(self, stage: str, variant: Variant, seed: int) -> Training:
        """Return a fine-tuning of the student; ``stage`` is ``choice`` or ``tuned``."""
        values: dict[str, Any] = {"Global.pretrained_model": str(self.distilled.latest)}
        configs = ["student", "tune"]
        if variant.frames is not None:
            configs.append("center")
            values[f"{CENTER_KEY}.center_file_path"] = str(self.centers(variant.frames))
            for key in ("frames", "blank", "weight", "margin"):
                values[f"{CENTER_KEY}.{key}"] = getattr(variant, key)
        epochs = CHOICE_EPOCHS if stage == "choice" else TUNE_EPOCHS
        return self.training(f"{stage}/{variant.key}_seed{seed}", configs, epochs, seed, values)

    def centers(self, frames: str) -> Path:
        """Return the file of the student's centers."""
        return self.folder / f"centers_{frames}.npz"

    def score(self, run: Training, fonts: str) -> Scores:
        """Read both lists of ``fonts`` (``val`` or ``test``) with a run."""
        rich, general = (
            read_predictions(read_lines(run, self.folder / "data" / name, run.folder / f"{name}.tsv"))
            for name in (fonts, f"{fonts}_general")
        )
        return score(rich, general, self.groups)

    def choose(self) -> list[Variant]:
        """Return the four ways, with the weight and the margin that read the lines of ``val`` best."""
        unit = look_alike_distance(read_centers(self.centers("aligned")), self.groups) or 1.0
        variants = [Variant("plain")]
        variants += [Variant("center", "argmax", True, weight) for weight in WEIGHTS]
        variants += [Variant("aligned", "aligned", False, weight) for weight in WEIGHTS]
        variants += [
            Variant("margin", "aligned", False, weight, float(f"{margin * unit:.3g}"))
            for weight, margin in itertools.product(WEIGHTS, MARGINS)
        ]

        def judge(variant: Variant) -> Scores:
            scores = self.score(train(self.tuning("choice", variant, self.seeds[0])), "val")
            _LOG.info("on val, %-20s look-alike error %.2f %%", variant.key, 100 * scores.look_alikes.value)
            return scores

        scores = side_by_side([partial(judge, variant) for variant in variants], self.at_once)
        pairs = list(zip(variants, scores, strict=True))
        rows = [{"variant": variant.key, **each.to_json()} for variant, each in pairs]
        write_text(self.folder / "choice.json", json.dumps(rows, indent=1) + "\n")
        errors = {variant: each.look_alikes.value for variant, each in pairs}
        return [
            min((each for each in variants if each.name == name), key=errors.__getitem__)
            for name in dict.fromkeys(each.name for each in variants)
        ]

    def test(self, variants: Sequence[Variant]) -> dict[str, list[Scores]]:
        """Train each variant with each seed; then read the lines of ``test`` with all of them and the student."""
        runs = [
            (variant, self.tuning("tuned", variant, seed))
            for variant, seed in itertools.product(variants, self.seeds)
        ]
        _LOG.info("training %d students to test", len(runs))
        side_by_side([partial(train, run) for _, run in runs], self.at_once)
        jobs = [partial(self.score_test, run) for run in (self.distilled, *(run for _, run in runs))]
        student, *others = side_by_side(jobs, self.at_once)
        results: dict[str, list[Scores]] = {STUDENT: [student]}
        for (variant, _), scores in zip(runs, others, strict=True):
            results.setdefault(variant.key, []).append(scores)
        return results

    def score_test(self, run: Training) -> Scores:
        """Read the test lines, and measure the distances of centers in the font of validation."""
        centers = run.folder / "val_centers.npz"
        export_centers(run, "aligned", centers, "--split", "eval")
        separations = look_alike_ratios(read_centers(centers), self.groups)
        return replace(self.score(run, "test"), separations=separations)


def export_centers(run: Training, frames: str, output: Path, *options: str) -> None:
    """Write the centers of a run; a file that exists is kept."""
    if not output.is_file():
        words = [*run.options(), f"Global.checkpoints={run.latest}", *options]
        command(
            "export-center", [*words, "--frames", frames, "--output", str(output)], output.with_suffix(".log")
        )


def to_markdown(results: Results, plain: str) -> str:
    """Return a table: means over the seeds with standard deviations, and the change against the model ``plain``."""
    base = _mean_error(results[plain])
    head = ["model", "look-alike error", "against plain", "McNemar's p (lines), by seed", "lines right"]
    head += ["general lines right", "look-alikes' centers apart, in standard deviations (validation fonts)"]
    rows = []
    for name, seeds in results.items():
        tuned = name not in (STUDENT, plain)
        p_values = [Changes.of(a.rich, b.rich).p_value for a, b in zip(results[plain], seeds, strict=False)]
        apart = [statistics.median(seed.separations.values()) for seed in seeds if seed.separations]
        rows.append(
            [
                name,
                _percent([seed.look_alikes.value for seed in seeds], 2),
                _change(_mean_error(seeds), base) if tuned else "",
                ", ".join(f"{p:.2g}" for p in p_values) if tuned else "",
                _percent([statistics.fmean(seed.rich) for seed in seeds], 1),
                _percent([seed.general.value for seed in seeds], 1),
                mean(apart, 2) if apart else "",
            ]
        )
    return markdown(head, rows)


def by_nearness(results: Results, before: Mapping[str, float], plain: str) -> str:
    """Return a table of the look-alike error by the distance of the centers before the fine-tuning.

    Args:
        results: scores of each model.
        before: distance of each look-alike's center, on the training lines. A third of the characters goes into each
            column.
        plain: the model that the others are compared with.
    """
    ordered = sorted(before, key=lambda character: before[character])
    cuts = [round(len(ordered) * part / _PARTS) for part in range(_PARTS + 1)]
    parts = [ordered[begin:end] for begin, end in itertools.pairwise(cuts) if begin < end]
    limits = [f"{before[part[0]]:.2f} to {before[part[-1]]:.2f}" for part in parts]
    rows = []
    for name, seeds in results.items():
        cells = []
        for part in parts:
            error = _error_of(seeds, part)
            change = "" if name in (STUDENT, plain) else _change(error, _error_of(results[plain], part))
            cells.append(_percent([error], 2) + (f" ({change})" if change else ""))
        rows.append([name, *cells])
    return markdown(
        ["model", *(f"centers {limit} standard deviations apart before" for limit in limits)], rows
    )


def _change(value: float, base: float) -> str:
    return f"{value / base - 1:+.0%}" if base > 0 and not math.isnan(value) else ""


def _error_of(seeds: Sequence[Scores], characters: Sequence[str]) -> float:
    rates = [seed.by_character[c] for seed in seeds for c in characters if c in seed.by_character]
    return Rate(sum(rate.hits for rate in rates), sum(rate.total for rate in rates)).value


def _mean_error(seeds: Sequence[Scores]) -> float:
    return statistics.fmean(seed.look_alikes.value for seed in seeds)


def _percent(shares: Sequence[float], digits: int) -> str:
    return "" if any(map(math.isnan, shares)) else f"{mean([100 * share for share in shares], digits)} %"


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "lookalikes", "of the fine-tunings")
    return from_command_line(parser, lambda args: Experiment(args.out, args.seeds, args.at_once).run())


if __name__ == "__main__":
    sys.exit(main())
