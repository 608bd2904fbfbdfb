"""The page of confusions: the most confused pairs with their samples, before and after."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from ppocr_ext.report.confusion_report import Comparison
from ppocr_ext.report.formats import esc, percent, plain
from ppocr_ext.report.page_samples import SampleImages, card_of
from ppocr_ext.report.page_template import page, table
from ppocr_ext.report.run_sections import sample_card

_MOST_PAIRS = 60  # rows of the table
_PAIRS_WITH_SAMPLES = 12
_SAMPLES_OF_A_PAIR = 6


def confusion_page(comparison: Comparison, title: str, images: SampleImages) -> str:
    """Return the page as HTML.

    Args:
        comparison: what to show.
        title: heading of the page.
        images: reads the images of the samples.
    """
    sections = (
        _figures(comparison),
        _pairs(comparison),
        _samples(comparison, images),
        _groups(comparison),
        _characters(comparison),
    )
    return page(title, f"{len(comparison.after.predictions):,} samples", "".join(sections))


def _figures(comparison: Comparison) -> str:
    cells = []
    for name, now, then in comparison.rates:
        low, high = now.interval
        was = "" if then is None else f", before {percent(then.value)}"
        about = f"95 %: {percent(low)} to {percent(high)}{was}" if now.total else "none"
        cells.append(f"<div><b>{percent(now.value)}</b><span>{esc(name)} ({about})</span></div>")
    cells += [
        f"<div><b>+{changed.only_after:,} −{changed.only_before:,}</b><span>{what} that became right, wrong "
        f"(McNemar p = {changed.p_value:.2g})</span></div>"
        for what, changed in comparison.changed.items()
    ]
    return f'<div class="card"><div class="figures">{"".join(cells)}</div></div>'


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f'<h2>{title}</h2><div class="card scroll">{table(head, rows)}</div>'


def _pairs(comparison: Comparison) -> str:
    confusions, before = comparison.after.confusions, comparison.before
    rows = []
    for a, b, count in confusions.substitutions()[:_MOST_PAIRS]:
        total = confusions.characters[a].count
        then = [] if before is None else [plain(before.confusions.pairs[a, b])]
        same = "yes" if any(a in group and b in group for group in comparison.groups) else ""
        rows.append([_pair(a, b), plain(count), *then, plain(total), percent(count / total), same])
    if not rows:
        return "<h2>Confusions</h2><p>No character was confused with another one.</p>"
    then = [] if before is None else ["before"]
    return _section("Confusions", ["character → read as", "times", *then, "of", "share", "look-alikes"], rows)


def _pair(a: str, b: str) -> str:
    """Return both characters, with their names as a tooltip: a font may draw them alike."""
    names = " → ".join(f"{unicodedata.name(c, 'no name')} (U+{ord(c):04X})" for c in (a, b))
    return f'<span class="glyphs" title="{esc(names)}">{esc(a)} → {esc(b)}</span>'


def _samples(comparison: Comparison, images: SampleImages) -> str:
    after, before = comparison.after, comparison.before
    parts = []
    for a, b, count in after.confusions.substitutions()[:_PAIRS_WITH_SAMPLES]:
        times = "once" if count == 1 else f"{plain(count)} times"
        cards = "".join(
            sample_card(
                card_of(after.predictions[i], images, None if before is None else before.predictions[i].text)
            )
            for i in after.confusions.examples[a, b][:_SAMPLES_OF_A_PAIR]
        )
        parts.append(
            f'<div class="card" style="margin-bottom:14px"><h3>{_pair(a, b)}, {times}</h3>'
            f'<div class="samples">{cards}</div></div>'
        )
    note = f"<p>{esc(images.note)}.</p>" if images.note else ""
    return f"<h2>Samples</h2>{note}{''.join(parts)}" if parts else ""


def _groups(comparison: Comparison) -> str:
    after, before = comparison.after.by_group, comparison.before
    rows = []
    for group in comparison.most_confused_groups:
        hits, was = after[group].hits, before.by_group[group].hits if before else 0
        if hits or was:
            then = [plain(was)] if before else []
            name = f'<span class="glyphs">{esc(" ".join(group))}</span>'
            rows.append([name, plain(hits), *then, plain(after[group].total), percent(after[group].value)])
    then = ["before"] if before else []
    head = ["look-alikes", "confused", *then, "of", "share"]
    return _section("Groups of look-alikes", head, rows) if rows else ""


def _characters(comparison: Comparison) -> str:
    before = None if comparison.before is None else comparison.before.confusions.characters
    scores = comparison.after.confusions.characters.items()
    imperfect = [(name, score) for name, score in scores if score.count and score.correct < score.count]
    rows = []
    for name, score in sorted(imperfect, key=lambda item: (item[1].recall, -item[1].count)):
        glyph = f'<span class="glyphs">{esc(name)}</span>'
        then = [] if before is None else [percent(before[name].recall) if name in before else "–"]
        rows.append([glyph, plain(score.count), percent(score.recall), *then, percent(score.precision)])
    then = [] if before is None else ["recall before"]
    head = ["character", "count", "recall", *then, "precision"]
    return _section("Characters with errors", head, rows) if rows else ""
