"""One HTML page of what a recogniser confuses: worst pairs with their lines, before and after."""

from __future__ import annotations

import unicodedata

from ppocr_ext.evaluation.confusions import Rate
from ppocr_ext.evaluation.predictions import Read
from ppocr_ext.report.confusion_report import Comparison
from ppocr_ext.report.page import page
from ppocr_ext.report.pictures import Pictures
from ppocr_ext.report.samples import Sample
from ppocr_ext.report.sections import sample_card
from ppocr_ext.report.text import esc, percent, plain

_MOST_PAIRS = 60  # rows of the table
_PAIRS_WITH_LINES = 12
_LINES_OF_A_PAIR = 6


def render(comparison: Comparison, title: str, pictures: Pictures) -> str:
    """The page as HTML.

    Args:
        comparison: what to show.
        title: over the page.
        pictures: where the images of lines come from.
    """
    body = "".join(
        (
            _figures(comparison),
            _pairs(comparison),
            _lines(comparison, pictures),
            _groups(comparison),
            _characters(comparison),
        )
    )
    return page(title, f"{comparison.after.confusions.lines:,} lines", body)


def _figures(comparison: Comparison) -> str:
    after, before = comparison.after, comparison.before
    cells = [
        _figure(comparison.accuracy_name, after.accuracy, None if before is None else before.accuracy),
        _figure("look-alike error", after.look_alikes, None if before is None else before.look_alikes),
    ]
    if comparison.general is not None:
        cells.append(_figure("accuracy, general list", comparison.general, comparison.general_before))
    cells += [
        f"<div><b>+{changed.only_after:,} −{changed.only_before:,}</b><span>{what} that became right, wrong "
        f"(McNemar p = {changed.p_value:.2g})</span></div>"
        for what, changed in comparison.changed.items()
    ]
    return f'<div class="card"><div class="figures">{"".join(cells)}</div></div>'


def _figure(name: str, now: Rate, then: Rate | None) -> str:
    low, high = now.interval
    was = "" if then is None else f", before {percent(then.value)}"
    of = f"95 %: {percent(low)} to {percent(high)}{was}" if now.total else "none"
    return f"<div><b>{percent(now.value)}</b><span>{esc(name)} ({of})</span></div>"


def _pairs(comparison: Comparison) -> str:
    after, before = comparison.after.confusions, comparison.before
    rows = []
    for a, b, count in after.substitutions()[:_MOST_PAIRS]:
        score = after.characters[a]
        was = "" if before is None else f"<td>{plain(before.confusions.pairs[a, b])}</td>"
        same = "yes" if any(a in group and b in group for group in comparison.groups) else ""
        rows.append(
            f"<tr><td>{_pair(a, b)}</td><td>{plain(count)}</td>{was}<td>{plain(score.count)}</td>"
            f"<td>{percent(count / score.count)}</td><td>{same}</td></tr>"
        )
    if not rows:
        return "<h2>Confusions</h2><p>No character was taken for another.</p>"
    then = "" if before is None else "<th>before</th>"
    head = (
        f"<tr><th>character → read as</th><th>times</th>{then}<th>of</th><th>share</th>"
        f"<th>look-alikes</th></tr>"
    )
    return f'<h2>Confusions</h2><div class="card scroll"><table>{head}{"".join(rows)}</table></div>'


def _pair(a: str, b: str) -> str:
    """Both characters, with their names where the pointer rests: a font may draw them alike."""
    names = " → ".join(f"{unicodedata.name(c, 'no name')} (U+{ord(c):04X})" for c in (a, b))
    return f'<span class="glyphs" title="{esc(names)}">{esc(a)} → {esc(b)}</span>'


def _lines(comparison: Comparison, pictures: Pictures) -> str:
    parts = []
    reading = comparison.after
    before = None if comparison.before is None else comparison.before.lines
    for a, b, count in reading.confusions.substitutions()[:_PAIRS_WITH_LINES]:
        times = "once" if count == 1 else f"{plain(count)} times"
        indices = reading.confusions.examples[a, b][:_LINES_OF_A_PAIR]
        cards = "".join(
            sample_card(_sample(reading.lines[i], None if before is None else before[i], pictures))
            for i in indices
        )
        parts.append(
            f'<div class="card" style="margin-bottom:14px"><h3>{_pair(a, b)}, {times}</h3>'
            f'<div class="samples">{cards}</div></div>'
        )
    note = f"<p>{esc(pictures.note)}.</p>" if pictures.note else ""
    return f"<h2>Their lines</h2>{note}{''.join(parts)}" if parts else ""


def _sample(line: Read, before: Read | None, pictures: Pictures) -> Sample:
    return Sample(
        line.label,
        line.text,
        line.confidence,
        line.right,
        pictures.of(line.image),
        image=line.image,
        before=None if before is None else before.text,
    )


def _groups(comparison: Comparison) -> str:
    after, before = comparison.after.by_group, comparison.before
    rows = []
    for group in comparison.most_confused_groups:
        was = before.by_group[group].hits if before else 0
        if not after[group].hits and not was:
            continue
        then = f"<td>{plain(was)}</td>" if before else ""
        rows.append(
            f'<tr><td class="glyphs">{esc(" ".join(group))}</td><td>{plain(after[group].hits)}</td>{then}'
            f"<td>{plain(after[group].total)}</td><td>{percent(after[group].value)}</td></tr>"
        )
    if not rows:
        return ""
    then = "<th>before</th>" if before else ""
    head = f"<tr><th>look-alikes</th><th>confused</th>{then}<th>of</th><th>share</th></tr>"
    return (
        f'<h2>Groups of look-alikes</h2><div class="card scroll"><table>{head}{"".join(rows)}</table></div>'
    )


def _characters(comparison: Comparison) -> str:
    before = None if comparison.before is None else comparison.before.confusions.characters
    scores = [
        (n, s) for n, s in comparison.after.confusions.characters.items() if s.count and s.correct < s.count
    ]
    rows = []
    for name, score in sorted(scores, key=lambda item: (item[1].recall, -item[1].count)):
        was = "" if before is None else f"<td>{percent(before[name].recall) if name in before else '–'}</td>"
        rows.append(
            f'<tr><td class="glyphs">{esc(name)}</td><td>{plain(score.count)}</td><td>{percent(score.recall)}</td>{was}'
            f"<td>{percent(score.precision)}</td></tr>"
        )
    if not rows:
        return ""
    then = "" if before is None else "<th>recall before</th>"
    head = f"<tr><th>character</th><th>occurs</th><th>recall</th>{then}<th>precision</th></tr>"
    return (
        f'<h2>Characters read worst</h2><div class="card scroll"><table>{head}{"".join(rows)}</table></div>'
    )
