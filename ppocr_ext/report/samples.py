"""Samples of what a run read: those it left itself, and those of a predictions file."""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ppocr_ext.evaluation.predictions import HEADER
from ppocr_ext.report.pictures import Pictures
from ppocr_ext.report.selection import KEPT, Selection
from ppocr_ext.report.text import number

SAMPLES_FILE = "samples.json"
_LONG = 5  # width of an image by its height, from which on a line is long
_PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]{32,}={0,2}")  # base64 that begins as that of a PNG does


@dataclass(frozen=True)
class Sample:
    """A line that was judged.

    Attributes:
        confidence: 0 to 1, or None where it is not known.
        png: the image as base64, empty where there is none.
        image: path of the image, or ``folder#12`` of an LMDB, empty where it is not known.
        before: how the line was read before; None where that is not asked.
    """

    label: str
    text: str
    confidence: float | None
    right: bool
    png: str = ""
    image: str = ""
    before: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether the image is that of a long line, which needs room to be legible."""
        header = base64.b64decode(self.png[:32])  # of a PNG: width and height in the bytes from 16 on
        width, height = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
        return width > _LONG * height > 0

    def itself(self) -> Sample:
        """This sample."""
        return self


@dataclass(frozen=True)
class SampleSet:
    """Some lines of one evaluation, mistakes first.

    Attributes:
        source: where they come from, in words.
        judged: lines of the evaluation; ``wrong``: mistakes among them.
        rule: how right is told from wrong, where that is not by all characters alone.
        note: how many images were not found, in words; empty where none is missing.
    """

    source: str
    judged: int
    wrong: int
    samples: list[Sample]
    note: str = ""
    rule: str = ""


def read_samples(folder: Path) -> SampleSet | None:
    """The samples that the last evaluation of a run left; None where there are none.

    Raises:
        ValueError: the file is not one of ours.
    """
    file = folder / SAMPLES_FILE
    if not file.is_file():
        return None
    written = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(written, dict) or not isinstance(written.get("samples"), list):
        raise ValueError("it has no list of samples")
    samples = [_sample(entry) for entry in written["samples"] if isinstance(entry, dict)]
    source = f"last evaluation, step {int(number(written.get('step')) or 0):,}"
    judged, wrong = (int(number(written.get(key)) or 0) for key in ("judged", "wrong"))
    return SampleSet(source, judged, wrong, samples[:KEPT])


def _sample(entry: Mapping[str, Any]) -> Sample:
    png = str(entry.get("png", ""))
    return Sample(
        str(entry.get("label", "")),
        str(entry.get("text", "")),
        number(entry.get("confidence")),
        bool(entry.get("right")),
        png if _PNG.fullmatch(png) else "",
    )


def read_predictions(folder: Path, data_dir: Path | None) -> list[SampleSet]:
    """Samples of the files in ``folder`` that ``eval --save-predictions`` wrote.

    Args:
        folder: of the run.
        data_dir: where relative image paths begin; None: pictures are left out.
    """
    sets = []
    for file in sorted(folder.glob("*.tsv")):
        try:
            with file.open(encoding="utf-8", errors="replace", newline="") as stream:
                rows = csv.reader(stream, delimiter="\t")
                if next(rows, None) == HEADER:
                    sets.append(
                        _chosen(file.name, (row for row in rows if len(row) == len(HEADER)), data_dir)
                    )
        except (OSError, csv.Error):  # a table of something else, whatever its first line says
            continue
    return [found for found in sets if found.judged]


def _chosen(name: str, rows: Iterable[list[str]], data_dir: Path | None) -> SampleSet:
    """The surest mistakes and the least sure of what is right, as a run's own samples are."""
    selection: Selection[Sample] = Selection()
    for image, label, text, confidence in rows:
        sample = Sample(label, text, _float(confidence), label == text, image=image)
        selection.add(sample.right, sample.confidence or 0.0, sample.itself)
    pictures = Pictures(data_dir)
    shown = [replace(sample, png=pictures.of(sample.image)) for sample in selection.chosen()]
    return SampleSet(name, selection.judged, selection.wrong, shown, pictures.note, "spaces count")


def _float(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None
