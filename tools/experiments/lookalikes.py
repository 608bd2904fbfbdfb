#!/usr/bin/env python3
"""Measure whether center loss reduces the confusions of look-alikes that a released model is fine-tuned on.

Draws Chinese lines rich in look-alikes, some in the fonts to train with and others in fonts of other designs. For each
seed, `init --base` decides a training of a released model on the first ones, `export-center` writes the centers of the
model as it is, and each arm trains for equal steps. The last weights of all arms then read the lines in the other
fonts, and the lists of --general. Ctrl-C stops; the same command continues after the last finished command.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# The clone instead of this folder, and its tools last: these scripts must not hide other modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from benchmarks.table import markdown  # noqa: E402

from experiments.runs import experiment_parser, from_command_line  # noqa: E402
from experiments.use_it import run_command  # noqa: E402
from ppocr_ext.characters.look_alikes import read_groups  # noqa: E402
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.data.label_file import write_label_file  # noqa: E402
from ppocr_ext.errors import DataError  # noqa: E402
from ppocr_ext.evaluation.predictions import (  # noqa: E402
    Prediction,
    look_alikes_confused,
    read_predictions,
)
from ppocr_ext.evaluation.uncertainty import Changes  # noqa: E402
from ppocr_ext.io.atomic import write_text  # noqa: E402
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder  # noqa: E402
from ppocr_ext.synth.lines import (  # noqa: E402
    FrequentCharacters,
    LineSource,
    LineSplit,
    LineStyle,
    RandomTexts,
    find_fonts,
)

# Four designs (two of Noto, SimHei, Droid) are trained; the test has three others: Ming, and Kai by two foundries.
FONTS = {
    "train": (
        "NotoSansCJKsc-Regular.otf",
        "NotoSerifCJKsc-Regular.otf",
        "SimHei.ttf",
        "DroidSansFallbackFull.ttf",
    ),
    "test": ("uming.ttc", "ukai.ttc", "LXGWWenKai-Regular.ttf"),
}
LINES = {"train": 3_000, "test": 3_000}
LENGTH, SHARE = (3, 5), 0.5  # characters of a line, and the part of them that is from the groups
CENTER = "Loss.loss_config_list.CenterLoss"
OVERLAY = str(ROOT / "configs" / "overlays" / "center_loss.yml")
# name -> frames of the centers (None: without center loss), values over those of the overlay
ARMS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "plain": (None, {}),
    "PaddleOCR": ("argmax", {"frames": "argmax", "blank": True, "relative": False, "weight": 0.05}),
    "aligned": ("aligned", {}),
    "hard": (None, {}),
}
BASE = "as released"
_RESAMPLES = 4_000


def groups_of_letters() -> tuple[str, ...]:
    """Return the groups of the package, of Chinese characters, Latin letters and digits alone.

    Kana and punctuation differ from their look-alikes in nothing that a line without a meaning shows.
    """
    letters = (
        "".join(c for c in group if c.isalnum() and (c.isascii() or "一" <= c <= "鿿"))
        for group in read_groups()
    )
    return tuple(group for group in letters if len(group) > 1)


def draw_lines(folder: Path, places: Sequence[str]) -> None:
    """Draw the lines to train on and to test on; what exists is kept."""
    fonts = {
        Path(font.path).name: font for font in reversed(find_fonts(places))
    }  # the first face of each file
    missing = {name for names in FONTS.values() for name in names} - fonts.keys()
    if missing:
        raise DataError(f"--fonts: no {', '.join(sorted(missing))} there. Fix: see --help.", code="no_fonts")
    alike = "".join(dict.fromkeys("".join(groups_of_letters())))
    others = (ROOT / "tools" / "experiments" / "lookalikes_characters.txt").read_text(encoding="utf-8")
    characters = "".join(dict.fromkeys("".join(others.split()) + alike))
    for seed, (kind, names) in enumerate(FONTS.items(), start=1):
        texts = RandomTexts(characters, LENGTH, FrequentCharacters(alike, SHARE))
        lines = LineSplit(texts, tuple(fonts[name] for name in names))
        split = "train" if kind == "train" else "val"
        source = LineSource({split: lines}, LineStyle(height=48), seed)
        counts = (LINES[kind], 0) if kind == "train" else (0, LINES[kind])
        make_folder(folder / kind, DatasetFolder(source, *counts, characters=characters), 1)


def train_arms(here: Path, args: argparse.Namespace, seed: int) -> None:
    """Train all arms of a seed for equal steps; what is finished is kept."""
    words = ["init", str(here.parent / "train"), "--base", args.base, "--seed", str(seed)]
    run_command(here, "init", words)
    rate = load([here / "my" / "config.yml"]).at("Optimizer.lr.learning_rate")
    shared = [
        f"Global.seed={seed}",
        "Eval.general=null",
        "Train.mix=null",
        f"Optimizer.lr.learning_rate={rate}",
        *args.opt,
    ]
    for name in args.arms:
        frames, values = ARMS[name]
        configs = ["-c", "my/config.yml"]
        own = [f"Global.save_model_dir={name}"]
        if frames is not None:
            configs.append(OVERLAY)
            file = f"centers_{frames}.npz"
            words = ["export-center", "-c", "my/config.yml", "--frames", frames, "--output", file]
            run_command(here, file, words)
            chosen = {**values, "center_file_path": file}
            own += [f"{CENTER}.{key}={json.dumps(value)}" for key, value in chosen.items()]
        elif name == "hard":
            own.append(f"Train.mix={json.dumps(mix_of_hard_lines(here, args.base))}")
        run_command(here, name, ["train", *configs, "-o", *shared, *own])


def mix_of_hard_lines(here: Path, base: str) -> list[dict[str, Any]]:
    """Return a mix in which half of each batch is training lines that the released model reads wrongly."""
    folder = str(here.parent / "train")
    words = ["predict", base, "my/train.txt", "--data-dir", folder, "--output", "train.tsv"]
    run_command(here, "train.tsv", words)
    wrong = [(line.image, line.label) for line in read_predictions(here / "train.tsv") if not line.correct]
    write_label_file(here / "hard.txt", wrong)
    return [{"dataset": {"label_file_list": ["hard.txt"], "data_dir": folder}, "share": 0.5}]


def read(here: Path, name: str, file: Path, args: argparse.Namespace) -> list[Prediction]:
    """Read a list with the last weights of an arm, or with the released model."""
    rows = f"{name.replace(' ', '_')}_{file.parent.name}_{file.stem}.tsv"
    model = [args.base] if name == BASE else [name, "-o", f"Global.checkpoints={name}/latest"]
    run_command(here, rows, ["predict", model[0], str(file.resolve()), "--output", rows, *model[1:]])
    return read_predictions(here / rows)


def errors_by_line(lines: Sequence[Prediction], groups: Sequence[str]) -> np.ndarray:
    """Return for each line how many look-alikes it has, and how many were read as another of their group [N, 2]."""
    confused = [look_alikes_confused([(line.label, line.text)], groups) for line in lines]
    return np.array([(len(each), sum(each)) for each in confused])


def change_interval(plain: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the relative change of the look-alike errors, by drawing lines with all seeds.

    Args:
        plain: look-alikes and errors of each line of each seed [S, N, 2], as of :func:`errors_by_line`.
        other: the same of another arm.
    """
    rng = np.random.default_rng(0)
    errors = np.stack([each[..., 1].sum(0) for each in (plain, other)])  # [2, N]
    drawn = (errors[:, rng.integers(0, errors.shape[1], errors.shape[1])].sum(1) for _ in range(_RESAMPLES))
    changes = [after / before - 1 for before, after in drawn if before]
    low, high = np.quantile(changes, (0.025, 0.975))
    return float(low), float(high)


def to_markdown(
    results: Mapping[str, Sequence[Sequence[Prediction]]],
    general: Mapping[str, Sequence[Sequence[float]]],
    lists: Sequence[str],
) -> str:
    """Return the table of all arms.

    Args:
        results: what each arm read of the test lines, for each seed; ``plain`` is among them.
        general: accuracy of each arm on each list of ``lists``, for each seed.
        lists: names of the general lists.
    """
    groups = groups_of_letters()
    counts = {
        name: np.stack([errors_by_line(each, groups) for each in seeds]) for name, seeds in results.items()
    }
    rows = []
    for name, seeds in results.items():
        shares = counts[name][..., 1].sum(1) / counts[name][..., 0].sum(1)
        row = [name, ", ".join(map(str, counts[name][..., 1].sum(1))), _percents(shares)]
        if name in (BASE, "plain"):
            row += ["", ""]
        else:
            low, high = change_interval(counts["plain"], counts[name])
            change = counts[name][..., 1].sum() / counts["plain"][..., 1].sum() - 1
            row.append(f"{change:+.0%} ({low:+.0%} to {high:+.0%})")
            pairs = zip(results["plain"], seeds, strict=True)
            row.append(", ".join(f"{_changes(a, b).p_value:.2g}" for a, b in pairs))
        row.append(_percents([float(np.mean([line.correct for line in lines])) for lines in seeds]))
        rows.append(row + [_percents(values) for values in zip(*general[name], strict=True)])
    head = ["arm", "look-alike errors, by seed", "of the look-alikes", "against plain (95 %)"]
    return markdown([*head, "McNemar's p (lines)", "lines right", *lists], rows)


def _changes(before: Sequence[Prediction], after: Sequence[Prediction]) -> Changes:
    return Changes.of([line.correct for line in before], [line.correct for line in after])


def _percents(shares: Sequence[float] | np.ndarray) -> str:
    return ", ".join(f"{share:.1%}" for share in shares)


def run_experiment(args: argparse.Namespace) -> str:
    """Train all arms of all seeds, read the test lines, and return the table as Markdown."""
    out = args.out.resolve()
    draw_lines(out, args.fonts)
    places = [out / f"seed{seed}" for seed in args.seeds]
    for here, seed in zip(places, args.seeds, strict=True):
        train_arms(here, args, seed)
    models = {BASE: places[:1], **dict.fromkeys(args.arms, places)}
    results = {
        name: [read(here, name, out / "test" / "val_list.txt", args) for here in seeds]
        for name, seeds in models.items()
    }
    general = {
        name: [
            [float(np.mean([line.correct for line in read(here, name, file, args)])) for file in args.general]
            for here in seeds
        ]
        for name, seeds in models.items()
    }
    table = to_markdown(results, general, [file.stem for file in args.general])
    write_text(out / "results.md", table + "\n")
    return table


def main() -> int:
    """Run the experiment; return the exit code."""
    parser = experiment_parser(__doc__, "lookalikes", "of the trainings")
    parser.epilog = (
        "packages with the fonts: mplfonts 0.0.11 (pip); fonts-droid-fallback, fonts-arphic-uming, "
    )
    parser.epilog += "fonts-arphic-ukai, fonts-lxgw-wenkai (Debian, Ubuntu)"
    parser.add_argument("--fonts", nargs="+", default=["mplfonts", "/usr/share/fonts"], metavar="PLACE")
    parser.add_argument("--base", default="PP-OCRv6_small_rec", metavar="NAME", help="(PP-OCRv6_small_rec)")
    parser.add_argument("--general", nargs="*", type=Path, default=[], metavar="LIST", help="of other lines")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM")
    parser.add_argument(
        "-o", "--opt", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the trainings"
    )
    return from_command_line(parser, run_experiment)


if __name__ == "__main__":
    sys.exit(main())
