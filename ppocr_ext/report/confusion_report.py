"""Compare an evaluation with an earlier one of the same samples, as a page and as tables; imports no Paddle."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppocr_ext.characters.look_alikes import code_points
from ppocr_ext.evaluation.predictions import (
    ConfusionCounts,
    McNemar,
    Prediction,
    Rate,
    count_confusions,
    errors_by_group,
    look_alike_errors,
    look_alikes_confused,
    to_tsv,
)
from ppocr_ext.report.page_samples import SampleImages, card_of
from ppocr_ext.report.page_template import esc, page, percent, plain, scrolled, table
from ppocr_ext.report.run_page import sample_cards

_MAX_PAIRS = 60  # rows of the table
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
        _pair_cards(comparison),
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
        about = f"95 % interval: {percent(low)} to {percent(high)}{was}" if now.total else "none"
        cells.append(f"<div><b>{percent(now.value)}</b><span>{esc(name)} ({about})</span></div>")
    cells += [
        f"<div><b>+{changed.only_after:,} −{changed.only_before:,}</b><span>{what} that became right, wrong "
        f"(McNemar p = {changed.p_value:.2g})</span></div>"
        for what, changed in comparison.changed.items()
    ]
    return f'<div class="card"><div class="figures">{"".join(cells)}</div></div>'


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a heading; empty without rows."""
    return f"<h2>{title}</h2>{scrolled(title, table(head, rows))}" if rows else ""


def _pair_cards(comparison: Comparison) -> str:
    confusions = comparison.after.confusions
    rows = []
    for a, b, count in confusions.substitutions()[:_MAX_PAIRS]:
        total = confusions.characters[a].count
        then = [plain(before.confusions.pairs[a, b]) for before in comparison.earlier]
        same = "yes" if any(a in group and b in group for group in comparison.groups) else ""
        rows.append(
            [
                _pair(a, b),
                f"{code_points(a)} → {code_points(b)}",
                plain(count),
                *then,
                plain(total),
                percent(count / total),
                same,
            ]
        )
    head = [
        "character → read as",
        "code points",
        "times",
        *("before" for _ in comparison.earlier),
        "of",
        "share",
        "look-alikes",
    ]
    return _section("Pairs of characters", head, rows) or "<p>No character was confused with another one.</p>"


def _pair(a: str, b: str) -> str:
    """Return both characters, with their names as a tooltip, since a font may draw them alike."""
    names = " → ".join(f"{unicodedata.name(c, 'no name')} (U+{ord(c):04X})" for c in (a, b))
    return f'<span class="glyphs" title="{esc(names)}">{esc(a)} → {esc(b)}</span>'


def _samples(comparison: Comparison, images: SampleImages) -> str:
    after = comparison.after
    before = comparison.before
    parts = []
    for a, b, count in after.confusions.substitutions()[:_PAIRS_WITH_SAMPLES]:
        times = "once" if count == 1 else f"{plain(count)} times"
        cards = [
            card_of(after.predictions[i], images, None if before is None else before.predictions[i].text)
            for i in after.confusions.examples[a, b][:_SAMPLES_OF_A_PAIR]
        ]
        parts.append(
            f'<div class="card" style="margin-bottom:14px"><h3>{_pair(a, b)}, {times}</h3>'
            f"{sample_cards(cards)}</div>"
        )
    note = f"<p>{esc(images.note)}.</p>" if images.note else ""
    return f"<h2>Samples</h2>{note}{''.join(parts)}" if parts else ""


def _groups(comparison: Comparison) -> str:
    rows = []
    for group, rate, before in comparison.most_confused_groups:
        if rate.hits or any(before):
            name = f'<span class="glyphs">{esc(" ".join(group))}</span>'
            rows.append([name, plain(rate.hits), *map(plain, before), plain(rate.total), percent(rate.value)])
    head = ["look-alikes", "confused", *("before" for _ in comparison.earlier), "of", "share"]
    return _section("Groups of look-alikes", head, rows)


def _characters(comparison: Comparison) -> str:
    scores = comparison.after.confusions.characters.items()
    imperfect = [(name, score) for name, score in scores if score.count and score.correct < score.count]
    rows = []
    for name, score in sorted(imperfect, key=lambda item: (item[1].recall, -item[1].count)):
        glyph = f'<span class="glyphs">{esc(name)}</span>'
        then = [percent(before.recall(name)) for before in comparison.earlier]
        rows.append([glyph, plain(score.count), percent(score.recall), *then, percent(score.precision)])
    head = ["character", "count", "recall", *("recall before" for _ in comparison.earlier), "precision"]
    return _section("Characters with errors", head, rows)


@dataclass(frozen=True)
class ConfusionAnalysis:
    """The confusions of one evaluation.

    Attributes:
        predictions: the predictions, in the order of the file.
        accuracy: share of predictions without an error.
        confusions: counts of each pair of characters.
        look_alikes: share of the characters in groups that were confused within their group.
        by_group: the same for each group that occurs.
    """

    predictions: Sequence[Prediction]
    accuracy: Rate
    confusions: ConfusionCounts
    look_alikes: Rate
    by_group: Mapping[str, Rate]

    @classmethod
    def of(cls, predictions: Sequence[Prediction], groups: Sequence[str]) -> ConfusionAnalysis:
        """Analyse ``predictions``."""
        pairs = _pairs(predictions)
        return cls(
            predictions,
            _accuracy(predictions),
            count_confusions(pairs),
            look_alike_errors(pairs, groups),
            errors_by_group(pairs, groups),
        )

    def recall(self, character: str) -> float | None:
        """Return the recall of a character; None if it does not occur."""
        score = self.confusions.characters.get(character)
        return None if score is None else score.recall


@dataclass(frozen=True)
class Comparison:
    """An evaluation, and an earlier one of the same samples.

    Attributes:
        after: the evaluation to report.
        groups: look-alikes.
        before: the earlier evaluation, or None.
        changed: McNemar's test by name, empty without ``before``. ``lines`` tests which text lines are correct,
            ``look-alikes`` which look-alikes are not confused within a group.
        general: accuracy on a general list, or None.
        general_before: the same accuracy in the earlier evaluation.
    """

    after: ConfusionAnalysis
    groups: Sequence[str]
    before: ConfusionAnalysis | None
    changed: Mapping[str, McNemar]
    general: Rate | None
    general_before: Rate | None

    @property
    def earlier(self) -> list[ConfusionAnalysis]:
        """Return ``before`` in a list, for the columns of tables; an empty list if there is none."""
        return [] if self.before is None else [self.before]

    @property
    def most_confused_groups(self) -> list[tuple[str, Rate, list[int]]]:
        """Return group, rate and earlier hits of each group that occurs, the most confused first."""
        groups = [
            (group, rate, [before.by_group[group].hits for before in self.earlier])
            for group, rate in self.after.by_group.items()
        ]
        return sorted(groups, key=lambda row: (-row[1].hits, *(-hits for hits in row[2])))

    @property
    def rates(self) -> list[tuple[str, Rate, Rate | None]]:
        """Return name, rate and earlier rate of each of the main numbers."""
        has_spaces = any(" " in line.label or " " in line.text for line in self.after.predictions)
        name = "accuracy, spaces count" if has_spaces else "accuracy"
        before = self.before
        rates = [
            (name, self.after.accuracy, None if before is None else before.accuracy),
            ("look-alike error", self.after.look_alikes, None if before is None else before.look_alikes),
        ]
        if self.general is not None:
            rates.append(("accuracy, general list", self.general, self.general_before))
        return rates

    @property
    def drop(self) -> float | None:
        """Return how much the accuracy on the general list fell; None if it is not known for both evaluations."""
        if self.general is None or self.general_before is None:
            return None
        return self.general_before.value - self.general.value


def compare(
    after: Sequence[Prediction],
    groups: Sequence[str],
    before: Sequence[Prediction] | None = None,
    general: Sequence[Prediction] | None = None,
    general_before: Sequence[Prediction] | None = None,
) -> Comparison:
    """Compare two evaluations; ``before`` must have the samples of ``after``, in the same order."""
    changed = {}
    if before is not None:
        confused = [[not wrong for wrong in look_alikes_confused(_pairs(p), groups)] for p in (before, after)]
        changed["lines"] = McNemar.of([p.correct for p in before], [p.correct for p in after])
        changed["look-alikes"] = McNemar.of(*confused)
    return Comparison(
        ConfusionAnalysis.of(after, groups),
        groups,
        None if before is None else ConfusionAnalysis.of(before, groups),
        changed,
        None if general is None else _accuracy(general),
        None if general_before is None else _accuracy(general_before),
    )


def _pairs(predictions: Sequence[Prediction]) -> list[tuple[str, str]]:
    return [(prediction.label, prediction.text) for prediction in predictions]


def _accuracy(predictions: Sequence[Prediction]) -> Rate:
    return Rate(sum(prediction.correct for prediction in predictions), len(predictions))


def pairs_tsv(comparison: Comparison) -> str:
    """Return the substitutions, the most frequent first, and then those that no longer occur."""
    before = {} if comparison.before is None else comparison.before.confusions.pairs
    counts = {(a, b): n for a, b, n in comparison.after.confusions.substitutions()}
    gone = sorted((-n, pair) for pair, n in before.items() if all(pair) and pair not in counts)
    counts |= {pair: 0 for _, pair in gone}
    rows = [[*pair, n, *([before[pair]] if comparison.before else [])] for pair, n in counts.items()]
    return to_tsv([["character", "read_as", "count", *("before" for _ in comparison.earlier)], *rows])


def groups_tsv(comparison: Comparison) -> str:
    """Return each group that occurs, the most confused first: count, confused, share, and confused before."""
    rows = [
        [group, rate.total, rate.hits, _share(rate.value), *before]
        for group, rate, before in comparison.most_confused_groups
    ]
    return to_tsv([["group", "count", "confused", "share", *("before" for _ in comparison.earlier)], *rows])


def characters_tsv(comparison: Comparison) -> str:
    """Return the scores of each character, the lowest recall first."""
    scores = comparison.after.confusions.characters.items()
    rows = [
        [name, score.count, score.predicted, score.correct, _share(score.precision), _share(score.recall)]
        for name, score in sorted(scores, key=lambda s: (s[1].recall if s[1].count else 2.0, -s[1].count))
    ]
    return to_tsv([["character", "count", "read", "correct", "precision", "recall"], *rows])


def _share(value: float) -> str:
    return f"{value:.4f}" if value == value else ""


def to_json(comparison: Comparison) -> str:
    """Return the numbers of the comparison."""
    content: dict[str, Any] = {"after": _numbers(comparison.after), "groups": list(comparison.groups)}
    if comparison.before is not None:
        content["before"] = _numbers(comparison.before)
    for name, changed in comparison.changed.items():
        content[name.replace("-", "_")] = {
            "only_before_correct": changed.only_before,
            "only_after_correct": changed.only_after,
            "mcnemar_p": changed.p_value,
        }
    for name, rate in (("general", comparison.general), ("general_before", comparison.general_before)):
        if rate is not None:
            content[name] = _rate(rate)
    if comparison.drop is not None:
        content["general_drop"] = comparison.drop
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def _numbers(analysis: ConfusionAnalysis) -> dict[str, Any]:
    groups = {name: {"confused": rate.hits, "of": rate.total} for name, rate in analysis.by_group.items()}
    return {
        "accuracy": _rate(analysis.accuracy),
        "look_alike_error": _rate(analysis.look_alikes),
        "by_group": groups,
        "substitutions": [list(pair) for pair in analysis.confusions.substitutions()[:50]],
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"value": rate.value if rate.total else None, "of": rate.total, "interval_95": list(rate.interval)}


def to_text(comparison: Comparison) -> str:
    """Return the comparison for the terminal."""
    lines = [
        f"{name}: {'' if then is None else f'{_shown(then)} → '}{_shown(now)}"
        for name, now, then in comparison.rates
    ]
    lines[2:2] = [
        f"{name}: {changed.only_after:,} became right, {changed.only_before:,} became wrong "
        f"(McNemar p = {changed.p_value:.3g})"
        for name, changed in comparison.changed.items()
    ]
    if frequent := comparison.after.confusions.substitutions()[:10]:
        lines.append("most frequent: " + ", ".join(f"{a}→{b} {n}" for a, b, n in frequent))
    return "\n".join(lines)


def _shown(rate: Rate) -> str:
    if not rate.total:
        return "–"
    low, high = rate.interval
    return f"{rate.value:.2%} of {rate.total:,} (95 % interval: {low:.2%} to {high:.2%})"
