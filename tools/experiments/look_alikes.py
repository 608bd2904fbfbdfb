"""Whether center loss makes look-alikes be confused less: from nothing to a table.

Draws lines rich in look-alikes, trains a teacher, distils a student, exports its centers, and fine-tunes it for
equal steps in four ways. Weight and margin are chosen on fonts of their own; the fonts of testing are read once,
after that.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.look_alike_lines import folders, groups_in, make_lines
from experiments.look_alike_results import STUDENT, LookAlikeScores, by_nearness, score, to_markdown
from experiments.runs import Training, command, read_lines, side_by_side, train
from ppocr_ext.centers.center_summary import look_alike_distance, look_alike_ratios
from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import config_path

_LOG = logging.getLogger("ppocr_ext")
PRESET = "experiments/lookalikes"
CENTER_KEY = "Loss.loss_config_list.CenterLoss"


@dataclass(frozen=True)
class Settings:
    """What an experiment's folder was made with; another call must agree, or name another folder.

    Attributes:
        lines: to train on.
        judged: lines of each list to choose on and to test on.
        teacher_epochs: of the teacher.
        epochs: of the distillation.
        choice_epochs: of each fine-tuning by which weight and margin are chosen.
        tune_epochs: of each that is tested.
        seeds: of the fine-tunings that are tested; weight and margin are chosen with the first.
        weights: of the center loss, to choose from.
        margins: to choose from, in units of the median squared distance of look-alikes' centers.
    """

    lines: int = 6_000
    judged: int = 3_000
    teacher_epochs: int = 10
    epochs: int = 16
    choice_epochs: int = 3
    tune_epochs: int = 12
    seeds: tuple[int, ...] = (1, 2, 3)
    weights: tuple[float, ...] = (0.05, 0.2)
    margins: tuple[float, ...] = (0.5, 1.0)


@dataclass(frozen=True)
class Variant:
    """A way to fine-tune.

    Attributes:
        name: for folders and tables.
        frames: which centers and which class of a frame: ``argmax`` or ``aligned``; none without center loss.
        blank: whether frames of the blank count.
        weight: of the center loss.
        margin: of it.
    """

    name: str
    frames: str | None = None
    blank: bool = True
    weight: float = 0.0
    margin: float = 0.0

    @property
    def key(self) -> str:
        """Name and numbers, for a folder."""
        numbers = f"_w{self.weight:g}" if self.weight else ""
        return f"{self.name}{numbers}{f'_m{self.margin:.3g}' if self.margin else ''}"


class Experiment:
    """An experiment in a folder; each part that is finished there is kept.

    Raises:
        ConfigError: the folder was made with other settings.
    """

    def __init__(self, folder: Path, settings: Settings, at_once: int = 2) -> None:
        self.folder, self.settings, self.at_once = folder, settings, at_once
        self.dictionary = config_path(f"{PRESET}/dict.txt")
        self.groups = groups_in(Charset.from_file(self.dictionary).characters)
        self._agree()

    def _agree(self) -> None:
        file = self.folder / "settings.json"
        # runs of other weights, margins and seeds have folders of their own
        free = ("weights", "margins", "seeds")
        asked = {key: value for key, value in asdict(self.settings).items() if key not in free}
        asked["configs"] = _digest(config_path(PRESET))
        if file.is_file():
            before = json.loads(file.read_text(encoding="utf-8"))
            if before != asked:
                raise ConfigError(
                    f"{self.folder} was started with {before}, not {asked}. Fix: give the same options (and configs) "
                    f"to continue, or another folder with --out.",
                    code="other_options",
                )
        write_text(file, json.dumps(asked) + "\n")

    # What is run

    def _training(
        self, name: str, configs: Sequence[str], epochs: int, seed: int, values: Mapping[str, Any]
    ) -> Training:
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
        return self._training("teacher", ["teacher"], self.settings.teacher_epochs, 1, {})

    @property
    def distilled(self) -> Training:
        """The student, taught by it."""
        weights = {"Architecture.Models.Teacher.pretrained": str(self.teacher.latest)}
        return self._training("distilled", ["distill"], self.settings.epochs, 1, weights)

    def tuning(self, stage: str, variant: Variant, seed: int) -> Training:
        """A fine-tuning of the student alone, of the ``stage`` choice or tuned."""
        values: dict[str, Any] = {"Global.pretrained_model": str(self.distilled.latest)}
        configs = ["student", "tune"]
        if variant.frames is not None:
            configs.append("center")
            values |= {
                f"{CENTER_KEY}.center_file_path": str(self.centers(variant.frames)),
                f"{CENTER_KEY}.frames": variant.frames,
                f"{CENTER_KEY}.blank": variant.blank,
                f"{CENTER_KEY}.weight": variant.weight,
                f"{CENTER_KEY}.margin": variant.margin,
            }
        epochs = self.settings.choice_epochs if stage == "choice" else self.settings.tune_epochs
        return self._training(f"{stage}/{variant.key}_seed{seed}", configs, epochs, seed, values)

    def centers(self, frames: str) -> Path:
        """The student's centers."""
        return self.folder / f"centers_{frames}.npz"

    def export_centers(self, frames: str) -> None:
        """Write the student's centers."""
        if not self.centers(frames).is_file():
            arguments = [*self.distilled.options(), f"Global.checkpoints={self.distilled.latest}"]
            arguments += ["--frames", frames, "--output", str(self.centers(frames))]
            command("export-center", arguments, self.folder / f"centers_{frames}.log")

    def separations(self, run: Training) -> dict[str, float]:
        """How far apart the centers of look-alikes lie on the fonts of ``val``, in standard deviations."""
        output = run.folder / "val_centers.npz"
        if not output.is_file():
            arguments = [*run.options(), f"Global.checkpoints={run.latest}", "--split", "eval"]
            arguments += ["--frames", "aligned", "--output", str(output)]
            command("export-center", arguments, output.with_suffix(".log"))
        return look_alike_ratios(read_centers(output), self.groups)

    def score(self, run: Training, fonts: str) -> LookAlikeScores:
        """Read both lists of ``fonts`` (``val`` or ``test``)."""
        data = self.folder / "data"
        rich, general = (
            read_predictions(read_lines(run, data / name, run.folder / f"{name}.tsv"))
            for name in (fonts, f"{fonts}_general")
        )
        return score(rich, general, self.groups)

    # The order of things

    def run(self, processes: int) -> str:
        """All that is left to do; the tables, as Markdown.

        Args:
            processes: that draw lines.
        """
        self._prepare(processes)
        # matplotlib, which need not be there, comes with the fonts, which have been looked for by now
        from experiments.look_alike_picture import draw_results

        chosen = self._choose()
        results = self._test(chosen)
        numbers = {name: [seen.to_json() for seen in seeds] for name, seeds in results.items()}
        write_text(self.folder / "results.json", json.dumps(numbers, indent=1) + "\n")
        began = look_alike_ratios(read_centers(self.centers("aligned")), self.groups)
        tables = (to_markdown(results, chosen[0].key), by_nearness(results, began, chosen[0].key))
        table = "\n\n".join(filter(None, tables))
        write_text(self.folder / "results.md", table + "\n")
        draw_results(self.folder / "results.png", results)
        return table

    def _prepare(self, processes: int) -> None:
        """Lines, teacher, student and centers."""
        wanted = folders(self.settings.lines, self.settings.judged, seed=1)
        make_lines(self.folder / "data", self.dictionary, wanted, processes)
        for name, run in (("teacher", self.teacher), ("distilled student", self.distilled)):
            _LOG.info("%s: %s", name, "finished before" if run.finished() else f"training ({run.folder})")
            train(run, threads=min(self.at_once, os.cpu_count() or 1))  # nothing else runs yet
        side_by_side([partial(self.export_centers, frames) for frames in ("argmax", "aligned")], self.at_once)

    def _choose(self) -> list[Variant]:
        """The four ways, with the weight and the margin that read the fonts of ``val`` best."""
        unit = look_alike_distance(read_centers(self.centers("aligned")), self.groups) or 1.0
        plain = Variant("plain")
        tried = [
            plain,
            *(Variant("center", "argmax", True, weight) for weight in self.settings.weights),
            *(Variant("aligned", "aligned", False, weight) for weight in self.settings.weights),
            *(
                Variant("margin", "aligned", False, weight, float(f"{margin * unit:.3g}"))
                for weight, margin in itertools.product(self.settings.weights, self.settings.margins)
            ),
        ]
        tried = list(dict.fromkeys(tried))  # two that are equal would share a folder
        seen = dict(zip(tried, self._try(tried), strict=True))
        rows = [{"variant": variant.key, **scores.to_json()} for variant, scores in seen.items()]
        write_text(self.folder / "choice.json", json.dumps(rows, indent=1) + "\n")
        return [_best(name, seen) for name in ("plain", "center", "aligned", "margin")]

    def _try(self, variants: Sequence[Variant]) -> list[LookAlikeScores]:
        def job(variant: Variant) -> LookAlikeScores:
            seen = self.score(train(self.tuning("choice", variant, self.settings.seeds[0])), "val")
            _LOG.info("on val, %-20s look-alike error %.2f %%", variant.key, 100 * seen.look_alikes.value)
            return seen

        return side_by_side([partial(job, variant) for variant in variants], self.at_once)

    def _test(self, chosen: Sequence[Variant]) -> dict[str, list[LookAlikeScores]]:
        """Train each of ``chosen`` with each seed, then read the fonts of ``test`` with all and with the student."""
        runs = [
            (variant, self.tuning("tuned", variant, seed))
            for variant, seed in itertools.product(chosen, dict.fromkeys(self.settings.seeds))
        ]
        _LOG.info("training %d students to test", len(runs))
        side_by_side([partial(train, run) for _, run in runs], self.at_once)
        jobs = [partial(self._tested, run) for run in (self.distilled, *(run for _, run in runs))]
        before, *seen = side_by_side(jobs, self.at_once)
        results: dict[str, list[LookAlikeScores]] = {STUDENT: [before]}
        for (variant, _), scores in zip(runs, seen, strict=True):
            results.setdefault(variant.key, []).append(scores)
        return results

    def _tested(self, run: Training) -> LookAlikeScores:
        return replace(self.score(run, "test"), separations=self.separations(run))


def _digest(folder: Path) -> str:
    """SHA-256 of the names and contents of the files in a folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _best(name: str, seen: Mapping[Variant, LookAlikeScores]) -> Variant:
    """Of the variants of a name, the one with the least look-alike error."""
    return min((v for v in seen if v.name == name), key=lambda variant: seen[variant].look_alikes.value)
