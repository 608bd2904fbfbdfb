"""Samples of an evaluation for the page: which ones are worth a look, and the files that hold them."""

from __future__ import annotations

import base64
import csv
import heapq
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ppocr_ext.evaluation.predictions import HEADER
from ppocr_ext.report.formats import number
from ppocr_ext.report.sample_images import SampleImages

SAMPLES_FILE = "samples.json"
KEPT, KEPT_WRONG = 24, 18  # samples kept of an evaluation, and at most so many of them errors
_LONG = 5  # width / height of the image of a long text line
_PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/]{32,}={0,2}")  # a PNG in base64

T = TypeVar("T")


class SampleSelection(Generic[T]):
    """Select the most confident errors, where a label may be wrong, and the least confident correct samples.

    Attributes:
        count: samples seen.
        wrong: errors among them.
    """

    def __init__(self) -> None:
        self.count = self.wrong = 0
        self._order = itertools.count()
        self._errors: list[tuple[float, int, T]] = []  # heaps; the entry to drop first is on top
        self._correct: list[tuple[float, int, T]] = []

    def add(self, correct: bool, confidence: float, make: Callable[[], T]) -> None:
        """Count a sample; call ``make`` only if the sample is selected for now."""
        self.count += 1
        self.wrong += not correct
        heap, most = (self._correct, KEPT) if correct else (self._errors, KEPT_WRONG)
        worth = -confidence if correct else confidence
        if len(heap) < most:
            heapq.heappush(heap, (worth, -next(self._order), make()))
        elif worth > heap[0][0]:
            heapq.heapreplace(heap, (worth, -next(self._order), make()))

    def selected(self) -> list[T]:
        """Return at most :data:`KEPT` samples, errors first; of equal ones those that came first."""

        def order(entry: tuple[float, int, T]) -> tuple[float, int]:
            return -entry[0], -entry[1]

        ordered = [*sorted(self._errors, key=order), *sorted(self._correct, key=order)]
        return [sample for _, _, sample in ordered][:KEPT]


@dataclass(frozen=True)
class SampleCard:
    """A sample as a page shows it.

    Attributes:
        label: the true text.
        text: the predicted text.
        confidence: 0 to 1; None if unknown.
        correct: True if the metric counts it as correct.
        png: the image in base64; empty without an image.
        image: path of the image, or ``folder#12`` for an LMDB; empty if unknown.
        before: an earlier prediction; None if there is none.
    """

    label: str
    text: str
    confidence: float | None
    correct: bool
    png: str = ""
    image: str = ""
    before: str | None = None

    @property
    def is_long(self) -> bool:
        """True if the image shows a long text line, which needs a wide card."""
        header = base64.b64decode(self.png[:32])  # bytes 16 to 23 of a PNG are its width and height
        width, height = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
        return width > _LONG * height > 0


@dataclass(frozen=True)
class SampleSet:
    """Some samples of one evaluation, errors first.

    Attributes:
        source: name of the evaluation.
        count: samples evaluated.
        wrong: errors among them.
        cards: the samples to show.
        note: how many images were not found; empty if all were.
        rule: what counts as correct, if that is not the equality of all characters alone.
    """

    source: str
    count: int
    wrong: int
    cards: list[SampleCard]
    note: str = ""
    rule: str = ""


def read_samples(folder: Path) -> SampleSet | None:
    """Read the samples of a run's last evaluation; None if there are none.

    Raises:
        ValueError: the file is invalid.
    """
    file = folder / SAMPLES_FILE
    if not file.is_file():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("samples"), list):
        raise ValueError("it has no list of samples")
    cards = [_card(entry) for entry in content["samples"] if isinstance(entry, dict)]
    step, count, wrong = (int(number(content.get(key)) or 0) for key in ("step", "judged", "wrong"))
    return SampleSet(f"last evaluation, step {step:,}", count, wrong, cards[:KEPT])


def _card(entry: Mapping[str, Any]) -> SampleCard:
    png, label, text = (str(entry.get(key, "")) for key in ("png", "label", "text"))
    shown = png if _PNG.fullmatch(png) else ""
    return SampleCard(label, text, number(entry.get("confidence")), bool(entry.get("right")), shown)


def read_prediction_samples(folder: Path, data_dir: Path | None) -> list[SampleSet]:
    """Select samples from each predictions file in ``folder``, as ``eval --save-predictions`` writes it.

    Args:
        folder: run folder.
        data_dir: start of relative image paths; None: show no images.
    """
    sets = []
    for file in sorted(folder.glob("*.tsv")):
        try:
            with file.open(encoding="utf-8", errors="replace", newline="") as stream:
                rows = csv.reader(stream, delimiter="\t")
                if next(rows, None) == HEADER:
                    complete = (row for row in rows if len(row) == len(HEADER))
                    sets.append(_select(file.name, complete, data_dir))
        except (OSError, csv.Error):  # another kind of table, whatever its first line is
            continue
    return [found for found in sets if found.count]


def _select(name: str, rows: Iterable[list[str]], data_dir: Path | None) -> SampleSet:
    selection: SampleSelection[SampleCard] = SampleSelection()
    for image, label, text, confidence in rows:
        card = SampleCard(label, text, _float(confidence), label == text, image=image)
        selection.add(card.correct, card.confidence or 0.0, lambda card=card: card)  # type: ignore[misc]
    images = SampleImages(data_dir)
    cards = [replace(card, png=images.png(card.image)) for card in selection.selected()]
    return SampleSet(name, selection.count, selection.wrong, cards, images.note, "spaces count")


def _float(text: str) -> float | None:
    try:
        return number(float(text))
    except ValueError:
        return None
