"""The result of a sanity test: its table, its picture and its page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ppocr_ext.report.curves import Plot, plots_file
from ppocr_ext.report.page_samples import normalised_png
from ppocr_ext.report.page_template import esc, page, plain, table
from ppocr_ext.sanity.learning import APART, LEARNED, SOUND, TOGETHER, Lesson

HEAD = ("head", "trained", "steps", "loss", "at chance", "read", "verdict")
_COLUMNS = 4  # samples in a row of the picture
_CELL = 195
_IMAGE = 56
_LINE = 19  # pixels: width of a sample, height of its image and of a line of text
_LONGEST = 24  # characters of a text
_WRONG = "#b3261e"


def row(lesson: Lesson) -> tuple[str, ...]:
    """Return the row of the table for a lesson, as text under :data:`HEAD`."""
    first = lesson.points[0]
    last = lesson.points[-1]
    verdict = "learned" if lesson.passed else "loss is not finite" if lesson.broke else "NOT LEARNED"
    loss = f"{plain(first.loss, 3)} -> {plain(last.loss, 3)}"
    read = f"{last.read} of {len(lesson.readings)}"
    return lesson.head.name, lesson.way, str(last.step), loss, plain(lesson.chance, 3), read, verdict


def picture(lessons: Sequence[Lesson], title: str) -> str:
    """Return an SVG file: losses and readings of each head over the steps, and what was read at the end."""
    names = list(dict.fromkeys(lesson.head.name for lesson in lessons))
    plots = []
    for way in (TOGETHER, APART):
        found = {lesson.head.name: lesson for lesson in lessons if lesson.way == way}
        if found:
            series = [found[name].points if name in found else [] for name in names]
            losses = [[(p.step, p.loss) for p in points] for points in series]
            count = len(next(iter(found.values())).readings)
            shares = [[(p.step, p.read / count) for p in points] for points in series]
            plots += [
                Plot(f"loss, {_TITLES[way]}", losses, "loss"),
                Plot(f"samples read, {_TITLES[way]}", shares, "accuracy"),
            ]
    return plots_file(plots, [(name, name) for name in names], 2, title, _samples(lessons))


_TITLES = {TOGETHER: "all heads together", APART: "each head apart"}


def _samples(lessons: Sequence[Lesson]) -> tuple[str, int]:
    """Return the images of the batch with what each head read, and the height."""
    last = {lesson.head.name: lesson for lesson in lessons}  # of a head the lesson apart, if there is one
    images = lessons[0].head.images.astype("float32").numpy()
    height = _IMAGE + _LINE * (len(last) + 1) + 24
    cells = []
    for index, image in enumerate(images):
        label = lessons[0].readings[index][1]
        texts = [f'<tspan x="0" dy="{_LINE}">label: {_cut(label)}</tspan>']
        for name, lesson in last.items():
            text, label = lesson.readings[index]
            color = "" if text == label else f' fill="{_WRONG}"'
            texts.append(f'<tspan x="0" dy="{_LINE}"{color}>{esc(name)}: {_cut(text) or "(nothing)"}</tspan>')
        png = f"data:image/png;base64,{normalised_png(image)}"
        place = f"translate({20 + index % _COLUMNS * _CELL} {10 + index // _COLUMNS * height})"
        cells.append(
            f'<g transform="{place}"><image width="{_CELL - 20}" height="{_IMAGE}" preserveAspectRatio="xMinYMid" '
            f'href="{png}"/><text y="{_IMAGE}" font-size="14">{"".join(texts)}</text></g>'
        )
    return "".join(cells), 10 + math.ceil(len(images) / _COLUMNS) * height


def _cut(text: str) -> str:
    return esc(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def sanity_page(
    lessons: Sequence[Lesson], title: str, subtitle: str, remarks: Iterable[str], drawn: str
) -> str:
    """Return the HTML page.

    Args:
        lessons: of all heads.
        title: heading of the page.
        subtitle: of which batch and steps.
        remarks: a paragraph each: notes, findings, causes.
        drawn: the SVG of :func:`picture`.
    """
    rows = [[esc(cell) for cell in row(lesson)] for lesson in lessons]
    passed = all(lesson.passed for lesson in lessons)
    good = " finished"
    notes = "".join(
        f'<div class="note{good if passed and (LEARNED in text or SOUND in text) else ""}">{esc(text)}</div>'
        for text in remarks
    )
    body = (
        f'<div class="card scroll">{table(HEAD, rows, "left")}</div>{notes}'
        f'<h2>Curves and readings</h2><div class="card">{drawn}</div>'
    )
    return page(title, subtitle, body)
