"""Sort labelled lines by what models read in them: wrong, too easy, worthless; and images to label first.

:func:`write_doubtful` ranks for ``init`` too.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import Prediction, count_confusions, to_tsv
from ppocr_ext.evaluation.uncertainty import Rate
from ppocr_ext.io.atomic import write_text
from ppocr_ext.recognition.ctc_text import Reading
from ppocr_ext.recognition.images import ListedImage
from ppocr_ext.report.page_samples import SampleCard, SampleImages, card_of
from ppocr_ext.report.page_template import esc, page
from ppocr_ext.report.run_page import sample_cards
from ppocr_ext.survey.texts import likely_wrong

READS = 0.2  # accuracy of a model that can judge labels
_PARTS = 20  # of a list without labels, each of which gives images in turn
_SHOWN = 96  # cards of a group on the page


def write_doubtful(path: Path, losses: Sequence[tuple[Prediction, float]]) -> list[int]:
    """Write labels with the loss of each as a table, the least likely first; return the positions in this order.

    Args:
        path: the TSV file.
        losses: what was read in each sample, and the CTC loss of its label.
    """
    order = likely_wrong([loss for _, loss in losses], [len(each.label) for each, _ in losses]).tolist()
    rows = [
        (each.image, each.label, each.text, f"{loss:.4f}") for each, loss in map(losses.__getitem__, order)
    ]
    write_text(path, to_tsv([("image", "label", "prediction", "loss"), *rows]))
    return list(order)


def chance(reading: Reading) -> float:
    """Return the probability that all characters are right, as the model believes; 0 if nothing was read."""
    return math.prod(each.confidence for each in reading.characters) if reading.text else 0.0


class JudgedLine(NamedTuple):
    """An image, and what models read in it.

    Attributes:
        image: as it is listed.
        label: as the strong model would read it; empty if it is unknown.
        strong: with the loss of the label.
        weak_label: as the weak model would read it.
        weak: None without a weak model.
    """

    image: ListedImage
    label: str
    strong: Reading
    weak_label: str = ""
    weak: Reading | None = None

    @property
    def prediction(self) -> Prediction:
        """The reading of the strong model."""
        return Prediction(self.image.name, self.label, self.strong.text, self.strong.confidence)


def kind_of(line: JudgedLine, easy: float = 0.95, broken: float = 0.15, times: float = 1000.0) -> str:
    """Return the kind of a line, of ``KINDS``.

    Args:
        line: what was read in it.
        easy: the weak model reads the label, or without a label anything, with a higher confidence.
        broken: the strong model reads it with a lower one.
        times: the label of a suspect is so many times less probable than what the strong model reads.
    """
    strong, weak = line.strong, line.weak
    if strong.error is not None:
        return "unreadable"
    if weak is not None and weak.confidence > easy and line.weak_label in ("", weak.text):
        return "easy"
    if strong.confidence < broken:
        return "broken"
    if line.label and math.isnan(strong.loss):
        return "unjudged"
    # False for NaN, without a label
    if line.label != strong.text and strong.loss + math.log(chance(strong) or 1) > math.log(times):
        return "suspect"
    return "kept"


KINDS = {
    "suspect": "the label is probably wrong",
    "easy": "the weak model reads it surely",
    "broken": "the strong model reads nothing surely",
    "unjudged": "the strong model does not know a character of the label, or is decoded by NRTR",
    "unreadable": "no image that can be read",
    "kept": "all others",
}


def check_judges(lines: Sequence[JudgedLine]) -> None:
    """Check the models by some lines, before all are read.

    Raises:
        DataError: both models are the same, or the strong one reads too few of the labels.
    """
    good = [line for line in lines if line.strong.error is None]
    if good and all(
        each.weak and (each.weak.text, each.weak.confidence) == (each.strong.text, each.strong.confidence)
        for each in good
    ):
        raise DataError(
            "--weak and --strong read everything with the same confidence, so they are one model. Fix: give a smaller "
            "or less trained model as --weak, or leave it out.",
            code="equal_models",
        )
    labelled = [line.prediction for line in good if line.label]
    reads = Rate(sum(each.correct for each in labelled), len(labelled))
    if labelled and reads.value < READS:
        pairs = count_confusions((each.label, each.text) for each in labelled).pairs.most_common(1)
        (right, read), count = pairs[0]
        fix = (
            f"leave it out with --ignore {shlex.quote(read)}"
            if not right
            else "give a model that was trained on such lines"
        )
        named = [repr(each) if each else "nothing" for each in (right, read)]
        raise DataError(
            f"--strong reads {reads.value:.0%} of {reads.total} lines as they are labelled, so its judgement is worth "
            f"nothing (expected {READS:.0%}). Most often it reads {named[1]} for {named[0]} "
            f"({count:,} times). Fix: {fix}; or correct the labels, if they belong to other images.",
            code="poor_judge",
        )


def label_first(lines: Sequence[JudgedLine]) -> list[JudgedLine]:
    """Return lines in the order in which they are worth labelling.

    Equal parts of the list give a line each in turn, so that neighbours, which are often alike, do not come one after
    another. Of a part and of a turn the least certain line comes first: selecting lines by the model's confidence
    halved the lines to label in arXiv 2503.19546.
    """
    ranked = []
    for part in range(_PARTS):
        own = lines[part * len(lines) // _PARTS : (part + 1) * len(lines) // _PARTS]
        by_chance = sorted((chance(each.strong), number) for number, each in enumerate(own))
        ranked += [(turn, certain, own[number]) for turn, (certain, number) in enumerate(by_chance)]
    return [line for *_, line in sorted(ranked, key=lambda each: each[:2])]


def doubtful_page(
    title: str, subtitle: str, notes: Sequence[str], groups: Mapping[str, Sequence[JudgedLine]]
) -> str:
    """Return the HTML page to review lines on.

    Args:
        title: its heading.
        subtitle: what was read, and by which models.
        notes: sentences above the lines.
        groups: lines by their heading.
    """
    images = SampleImages(Path())
    parts = [
        f'<div class="card"><ul class="lines">{"".join(f"<li>{esc(note)}</li>" for note in notes)}</ul></div>'
    ]
    for heading, lines in groups.items():
        cards = [_card(line, images) for line in lines[:_SHOWN]]
        part = f" (the first {_SHOWN})" if len(lines) > _SHOWN else ""
        parts += [f"<h2>{esc(heading)}: {len(lines):,}{part}</h2>{sample_cards(cards)}"] if lines else []
    return page(title, subtitle, "".join(parts))


def _card(line: JudgedLine, images: SampleImages) -> SampleCard:
    """Return the card of a line. An image of a list may stand in another folder than its name says."""
    place = line.image.place
    card = card_of(line.prediction, images, None if line.weak is None else line.weak.text)
    png = images.png(str(place)) if isinstance(place, Path) else card.png
    return replace(
        card, png=png, label=line.label or None, correct=not line.label or card.correct, other="weak model"
    )
