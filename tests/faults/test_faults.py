"""Planted faults that show in a whole run only: each is named with what to do, and its twin raises nothing.

A twin is the same change with a right value. What one check finds alone is tested in the room of that check.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import captchas, tiny_config

from ppocr_ext.charset import Charset
from ppocr_ext.check import check_all
from ppocr_ext.checkpoint.files import read_plain_pickle
from ppocr_ext.cli.config import dry_check
from ppocr_ext.config import Config, resolve_charset
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.host import open_host
from ppocr_ext.issues import Issue
from ppocr_ext.loop.folder_lock import check_folder, locked_folder
from ppocr_ext.loop.session import train
from ppocr_ext.run.data_check import run_preflight
from ppocr_ext.run.frame_counts import FrameCounts
from ppocr_ext.run.host_config import folder_of
from ppocr_ext.run.run import Run

sys.path.append(str(Path(__file__).parents[1] / "loop"))  # tests/loop/faults.py plants bad values
from faults import Plant, change_next_images  # noqa: E402

__all__ = ["captchas"]
TAB = "\t"
CLASSIFIER = "head.ctc_head.fc.weight"
Values = Mapping[str, Any]
Finding = tuple[str, str, str]  # level, code, text


class Place:
    """Where a fault is planted: a folder of the test, the images of the session, and a finished run."""

    def __init__(self, folder: Path, images: Path, finished: Path) -> None:
        self.folder, self.images, self.finished = folder, images, finished
        self.config = partial(tiny_config, images, folder, "student")
        self.lines = (images / "train_list.txt").read_text().splitlines()

    def write(self, name: str, lines: list[str]) -> str:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(self.folder / name)


@pytest.fixture(scope="session")
def finished(captchas: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch."""
    folder = tmp_path_factory.mktemp("finished")
    train(tiny_config(captchas, folder, "student", **{"Global.epoch_num": 1}))
    return folder / "run"


@pytest.fixture
def place(captchas: Path, tmp_path: Path, finished: Path) -> Place:
    return Place(tmp_path, captchas, finished)


@contextmanager
def findings() -> Iterator[list[Finding]]:
    """Collect an error of ours, and the warnings of the log."""
    found, handler, logger = list[Finding](), logging.Handler(logging.WARNING), logging.getLogger("ppocr_ext")
    handler.emit = lambda record: found.append(  # type: ignore[method-assign]
        (record.levelname.lower(), "", record.getMessage())
    )
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        yield found
    except PPOCRExtError as error:
        found.append(("error", error.code, str(error)))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def preflight(config: Config) -> list[Finding]:
    """Check all samples."""
    issues: list[Issue] = []
    with findings() as found:
        charset: Charset = resolve_charset(config, open_host().find_file)
        frames = {mode: FrameCounts({}) for mode in ("Train", "Eval")}
        run_preflight(config, charset, frames, report=lambda text: None, warn=issues.extend)
    return found + [(issue.level, issue.code, issue.sentence) for issue in issues]


def dry_step(config: Config) -> list[Finding]:
    """Take two samples through every part of the run."""
    issues, unused = check_all(config, open_host(), "train")
    issues += dry_check(config, open_host(), "train", unused, lambda text: None)[0]
    return [(issue.level, issue.code, f"{issue.path}: {issue.message}") for issue in issues]


def resume(config: Config) -> list[Finding]:
    """Build all that a resumed run needs before its first step."""
    with findings() as found, locked_folder(folder_of(config)):
        check_folder(folder_of(config), config, None, overwrite=False)
        Run.build(config, "train")
    return found


def train_on(change: Callable[[str], str], third: str, delimiter: str) -> Callable[[Place], Values]:
    """Train on a list with this delimiter, in which the third label is another one."""

    def plant(place: Place) -> Values:
        pairs = [line.split(TAB) for line in place.lines]
        rows = [f"{name}{delimiter}{third if at == 2 else label}" for at, (name, label) in enumerate(pairs)]
        return {
            "Global.character_dict_path": place.write("dict.txt", list('0123456789"')),
            "Train.dataset.label_file_list": [place.write("train.txt", [change(row) for row in rows])],
            "Train.dataset.delimiter": delimiter,
        }

    return plant


def evaluate_filtered(kept: int) -> Callable[[Place], Values]:
    """Evaluate with `is_filter` on labels of which this many have digits, the others Chinese characters alone."""

    def plant(place: Place) -> Values:
        rows = (place.images / "val_list.txt").read_text().splitlines()
        rows = [row if at < kept else f"{row.split(TAB)[0]}{TAB}未来" for at, row in enumerate(rows)]
        return {
            "Global.character_dict_path": place.write("dict.txt", list("0123456789未来")),
            "Eval.dataset.label_file_list": [place.write("val.txt", rows)],
            "Metric.is_filter": True,
        }

    return plant


def add_line(change: Callable[[str], str]) -> Callable[[Place], Values]:
    """Train on one line more, made of the second one."""
    return lambda place: {
        "Train.dataset.label_file_list": [place.write("train.txt", [*place.lines, change(place.lines[1])])]
    }


def name_list(times: int) -> Callable[[Place], Values]:
    return lambda place: {"Train.dataset.label_file_list": [place.write("a.txt", place.lines)] * times}


def normalize(scale: float, mean: float) -> Callable[[Place], Values]:
    """Normalise the pixels before RecResizeImg does, in Train and Eval."""
    options = {"scale": scale, "mean": [mean] * 3, "std": [mean or 1.0] * 3, "order": "hwc"}

    def plant(place: Place) -> Values:
        listed = place.config().thaw()["Train"]["dataset"]["transforms"]
        transforms = [listed[0], {"NormalizeImage": options}, *listed[1:]]
        return {f"{mode}.dataset.transforms": transforms for mode in ("Train", "Eval")}

    return plant


def resume_with(change: Callable[[dict[str, dict[str, Any]]], None]) -> Callable[[Place], Values]:
    """Resume the finished run, after a change of its files.

    They are written as PaddleOCR's: without digests, which would find any change.
    """

    def plant(place: Place) -> Values:
        run = Path(shutil.copytree(place.finished, place.folder / "run"))
        contents = {e: read_plain_pickle(run / f"latest{e}") for e in (".pdparams", ".pdopt", ".states")}
        contents[".states"].pop("files")
        change(contents)
        for ending, content in contents.items():
            (run / f"latest{ending}").write_bytes(pickle.dumps(content, protocol=2))
        return {"Global.checkpoints": str(run / "latest")}

    return plant


def average_of(number: float) -> Callable[[dict[str, dict[str, Any]]], None]:
    """The run has averaged its weights; the average of one entry has this number."""

    def change(contents: dict[str, dict[str, Any]]) -> None:
        average = {CLASSIFIER: np.full_like(contents[".pdparams"][CLASSIFIER], number)}
        contents[".states"].setdefault("hooks", {})["Ema"] = {"updates": 3, "average": average}

    return change


def scale_weights(factor: float) -> Callable[[dict[str, dict[str, Any]]], None]:
    return lambda contents: contents[".pdparams"].update(
        {CLASSIFIER: contents[".pdparams"][CLASSIFIER] * np.float32(factor)}
    )


def resume_on(label: str | None) -> Callable[[Place], Values]:
    """Resume on a copy of the label file, in which one label may be another one."""

    def plant(place: Place) -> Values:
        lines = [*place.lines]
        if label is not None:
            lines[3] = f"{lines[3].split(TAB)[0]}{TAB}{label}"
        values = resume_with(lambda contents: None)(place)
        return {**values, "Train.dataset.label_file_list": [place.write("train_list.txt", lines)]}

    return plant


# what is wrong: tool, level, code, the fault, its twin, what the message names
FAULTS: dict[str, tuple[Callable[[Config], list[Finding]], str, str, Any, Any, tuple[str, ...]]] = {
    "a comma in a label of a CSV": (
        preflight, "error", "cut_label", train_on(str, "12,80", ","), train_on(lambda row: f"{row},0.98", "12", ","),
        ("train.txt:3", ",80'", "a tab between"),
    ),
    "a comma in a label of a CSV, in quotes": (
        preflight, "error", "quoted_label", train_on(str, '"12, 4"', ","), train_on(str, '12"4', ","),
        ("train.txt:3", "without ', 4\"'", "a tab between"),
    ),
    "quotes of a CSV with semicolons": (
        preflight, "warning", "quoted_label", train_on(str, '"124"', ";"), train_on(str, '"', ";"),
        ("train.txt:3", "'\"124\"'", "a tab between"),
    ),
    "a metric that compares nothing of all labels": (
        preflight, "error", "filtered_labels", evaluate_filtered(0), evaluate_filtered(99), ("is_filter: false",),
    ),
    "a metric that compares nothing of some labels": (
        preflight, "warning", "filtered_labels", evaluate_filtered(2), evaluate_filtered(10), ("is_filter: false",),
    ),
    "one image with two labels": (
        preflight, "warning", "conflicting_labels", add_line(lambda line: f"{line.split(TAB)[0]}{TAB}1"),
        add_line(str), ("train.txt:25", "'1'", "train.txt:2", "Correct"),
    ),
    "a label file that is named twice": (
        preflight, "warning", "repeated_samples", name_list(2), name_list(1), ("24 of 58 samples", "a.txt:1", "once"),
    ),
    "images that are normalised twice": (
        dry_step, "warning", "uniform_images", normalize(1 / 255, 0.5), normalize(1.0, 0.0),
        ("Train.dataset.transforms", "Eval.dataset.transforms"),
    ),
    "a checkpoint with NaN": (
        resume, "error", "nonfinite_weights", resume_with(scale_weights(np.nan)), resume_with(scale_weights(1.0)),
        (CLASSIFIER, "another checkpoint"),
    ),
    "an average with NaN": (
        resume, "error", "nonfinite_weights", resume_with(average_of(np.nan)), resume_with(average_of(0.5)),
        ("latest.states", CLASSIFIER),
    ),
    "other labels than before": (
        resume, "warning", "", resume_on("1234"), resume_on(None), ("Before: Train: 24 labels",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_its_twin_raises_nothing(name: str, place: Place) -> None:
    tool, level, code, wrong, right, facts = FAULTS[name]
    found = tool(place.config(**wrong(place)))
    assert {each[:2] for each in found} == {(level, code)}, found
    text = "\n".join(each[2] for each in found)
    assert all(fact in text for fact in facts), text
    shutil.rmtree(place.folder / "run", ignore_errors=True)
    assert tool(place.config(**right(place))) == []


def scale_images(factor: float) -> Callable[[Run], None]:
    return lambda run: change_next_images(run, lambda pixels: pixels.__imul__(np.float32(factor)))


def scale_gradient(factor: float) -> Callable[[Run], None]:
    """The next gradient of the CTC classifier is multiplied; forward values are as they were."""

    def plant(run: Run) -> None:
        factors = [factor]  # Paddle crashes if a hook removes itself
        weight = run.network.head.ctc_head.fc.weight  # type: ignore[union-attr]
        weight.register_hook(lambda gradient: gradient * factors.pop() if factors else gradient)

    return plant


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("faults", "fact"),
    [
        ([scale_images(1e6)], "image"),
        ([scale_gradient(np.inf)], "gradient"),
        ([scale_images(1.5), scale_gradient(0.1)], ""),  # the twins of both
    ],
    ids=["a batch that is too bright", "an infinite gradient", "neither"],
)
def test_a_fault_of_one_step_ends_the_run(
    place: Place, faults: list[Callable[[Run], None]], fact: str
) -> None:
    hooks = [Plant(fault, number) for number, fault in enumerate(faults, start=2)]
    outcome = train(place.config(**{"Global.epoch_num": 1}), hooks=hooks)
    assert (outcome.status, fact in outcome.reason) == ("nonfinite" if fact else "finished", True)
