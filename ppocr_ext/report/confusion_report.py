"""Compare an evaluation with an earlier one of the same samples, as a page and as tables; imports no Paddle."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ppocr_ext.characters.look_alikes import code_points, symbol_name
from ppocr_ext.evaluation.predictions import (
    CharacterScore,
    ConfusionCounts,
    EditKind,
    Prediction,
    count_confusions,
    errors_by_group,
    look_alike_errors,
    look_alikes_confused,
    pages_of,
    to_tsv,
)
from ppocr_ext.evaluation.uncertainty import Changes, Rate
from ppocr_ext.report.page_samples import SampleImages, card_of
from ppocr_ext.report.page_template import esc, page, percent, plain, scrolled, table
from ppocr_ext.report.run_page import sample_cards

_MAX_PAIRS = 60  # rows of the table
_MAX_LINES = 24  # cards of newly wrong lines, and of newly right ones
_PAIRS_WITH_SAMPLES = {"substitutions": 12, "deletions": 4, "insertions": 4}
_SAMPLES_OF_A_PAIR = 6
KINDS: tuple[EditKind, ...] = get_args(EditKind)
_LOSS = 0.005  # the loss that a comparison should exclude, unless the user gives another
GENERAL = "general lines"  # the name of the general list's items
LOOK_ALIKES = "look-alikes"  # those of a line are not independent: no limits are said


def confusion_page(comparison: Comparison, title: str, images: SampleImages) -> str:
    """Return the page as HTML.

    Args:
        comparison: what to show.
        title: heading of the page.
        images: reads the images of the samples.
    """
    sections = (
        _figures(comparison),
        _changed_lines(comparison, images),
        *(_pair_cards(comparison, kind) for kind in KINDS),
        _samples(comparison, images),
        _groups(comparison),
        _characters(comparison),
    )
    note = f"<p>{esc(images.note)}.</p>" if images.note else ""
    subtitle = "; ".join(filter(None, [f"{len(comparison.after.predictions):,} samples", comparison.lists]))
    return page(title, subtitle, f"{note}{''.join(sections)}")


def _figures(comparison: Comparison) -> str:
    cells = []
    for name, now, then in comparison.rates:
        low, high = now.interval
        was = "" if then is None else f", before {percent(then.value)}"
        about = f"95 % interval: {percent(low)} to {percent(high)}{was}" if now.total else "none"
        cells.append(f"<div><b>{percent(now.value)}</b><span>{esc(name)} ({about})</span></div>")
    kinds = {"better": "note finished", "worse": "note failed"}
    notes = [
        f'<p class="{kinds.get(comparison.changed[name].verdict, "note")}">{esc(text)}</p>'
        for name, text in comparison.sentences.items()
    ]
    return f'<div class="card">{"".join(notes)}<div class="figures">{"".join(cells)}</div></div>'


def _changed_lines(comparison: Comparison, images: SampleImages) -> str:
    parts = []
    for correct in (False, True):
        pairs = comparison.turned(correct)
        cards = [card_of(now, images, then.text) for then, now in pairs[:_MAX_LINES]]
        part = f" (the first {len(cards)})" if len(cards) < len(pairs) else ""
        title = f"<h2>Newly {'right' if correct else 'wrong'} lines: {len(pairs):,}{part}</h2>"
        parts.append(f"{title}{sample_cards(cards)}" if pairs else "")
    return "".join(parts)


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with a heading; empty without rows."""
    return f"<h2>{title}</h2>{scrolled(title, table(head, rows))}" if rows else ""


def _pair_cards(comparison: Comparison, kind: EditKind) -> str:
    confusions = comparison.after.confusions
    rows = []
    for a, b, count, before in comparison.edits(kind)[:_MAX_PAIRS]:
        score = confusions.characters.get(a or b, CharacterScore())
        total = score.count if a else score.predicted
        same = "yes" if a and b and any(a in group and b in group for group in comparison.groups) else ""
        rows.append(
            [
                _pair(a, b),
                f"{code_points(a)} → {code_points(b)}",
                plain(count),
                *map(plain, before),
                plain(total),
                percent(count / total if total else None),
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
    none = "<p>No character was confused with another one.</p>" if kind == "substitutions" else ""
    return _section(kind.capitalize(), head, rows) or none


def _pair(a: str, b: str) -> str:
    """Return both characters, with their names as a tooltip, since a font may draw them alike."""
    names = " → ".join(f"{unicodedata.name(c, 'no name')} ({code_points(c)})" for c in (a, b) if c)
    return f'<span class="glyphs" title="{esc(names)}">{esc(_edit(a, b))}</span>'


def _edit(a: str, b: str) -> str:
    return " → ".join(symbol_name(c) or "nothing" for c in (a, b))


def _samples(comparison: Comparison, images: SampleImages) -> str:
    after = comparison.after
    before = comparison.before
    parts = []
    ranked = [pair for kind in KINDS for pair in after.confusions.ranked(kind)[: _PAIRS_WITH_SAMPLES[kind]]]
    for a, b, count in ranked:
        times = "once" if count == 1 else f"{plain(count)} times"
        cards = [
            card_of(after.predictions[i], images, None if before is None else before.predictions[i].text)
            for i in after.confusions.examples[a, b][:_SAMPLES_OF_A_PAIR]
        ]
        parts.append(
            f'<div class="card" style="margin-bottom:14px"><h3>{_pair(a, b)}, {times}</h3>'
            f"{sample_cards(cards)}</div>"
        )
    return f"<h2>Samples</h2>{''.join(parts)}" if parts else ""


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
        changed: what changed, by the name of the items: ``lines`` and ``general lines`` that are correct, and
            ``look-alikes`` that are not confused within a group; only those that were evaluated twice.
        general: accuracy on a general list, or None.
        general_before: the same accuracy in the earlier evaluation.
        max_drop: the loss that is to be excluded, from 0 to 1.
        lists: which list is tested, and which one chose the checkpoint, in words.
    """

    after: ConfusionAnalysis
    groups: Sequence[str]
    before: ConfusionAnalysis | None
    changed: Mapping[str, Changes]
    general: Rate | None
    general_before: Rate | None
    max_drop: float
    lists: str

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
    def sentences(self) -> dict[str, str]:
        """Return what each of ``changed`` shows, in words."""
        return {name: _sentence(name, each, self.max_drop) for name, each in self.changed.items()}

    def edits(self, kind: EditKind) -> list[tuple[str, str, int, list[int]]]:
        """Return (character, predicted, count, earlier counts): the most frequent first, then those that are gone."""
        then = [before.confusions for before in self.earlier]
        now = self.after.confusions
        gone = [(a, b, 0) for each in then for a, b, _ in each.ranked(kind) if not now.pairs[a, b]]
        return [(a, b, n, [each.pairs[a, b] for each in then]) for a, b, n in [*now.ranked(kind), *gone]]

    def turned(self, correct: bool) -> list[tuple[Prediction, Prediction]]:
        """Return the predictions (before, after) of the lines that became correct, or that became wrong."""
        before = [] if self.before is None else self.before.predictions
        pairs = zip(before, self.after.predictions, strict=False)
        return [(then, now) for then, now in pairs if then.correct != now.correct == correct]


def _sentence(name: str, changes: Changes, loss: float) -> str:
    """Return what changed, whether that is more than chance, and if not, which loss is not excluded."""
    verdict, lost = changes.verdict, changes.most_lost
    method = "McNemar's exact test"
    if changes.pages:
        method = f"by {len(changes.pages):,} pages, since the {name} of a page are not independent"
    text = (
        f"{changes.only_after:,} newly right, {changes.only_before:,} newly wrong of {changes.total:,} {name}: "
        f"{verdict or 'no difference shown'}, p = {changes.p_value:.2g} ({method})"
    )
    if verdict == "better" or name == LOOK_ALIKES:
        return text
    text += f"; the loss may be up to {_points(lost)}"
    if verdict or not 0 < loss < lost:
        return text
    count = changes.items_to_exclude(loss)
    return f"{text}; to exclude {_points(loss)} at today's share of changes takes about {count:,} {name}"


def _points(share: float) -> str:
    return f"{plain(100 * share, 2)} points"


def compare(
    after: Sequence[Prediction],
    groups: Sequence[str],
    before: Sequence[Prediction] | None = None,
    general: Sequence[Prediction] | None = None,
    general_before: Sequence[Prediction] | None = None,
    max_drop: float | None = None,
    lists: str = "",
) -> Comparison:
    """Compare two evaluations; ``before`` must have the samples of ``after``, in the same order."""
    changed = {}
    if before is not None:
        then, now = ([not each for each in look_alikes_confused(_pairs(p), groups)] for p in (before, after))
        changed = {"lines": _changes(before, after), LOOK_ALIKES: Changes.of(then, now)}
    if general is not None and general_before is not None:
        changed[GENERAL] = _changes(general_before, general)
    return Comparison(
        ConfusionAnalysis.of(after, groups),
        groups,
        None if before is None else ConfusionAnalysis.of(before, groups),
        {name: each for name, each in changed.items() if each.total},
        None if general is None else _accuracy(general),
        None if general_before is None else _accuracy(general_before),
        _LOSS if max_drop is None else max_drop,
        lists,
    )


def _changes(before: Sequence[Prediction], after: Sequence[Prediction]) -> Changes:
    return Changes.of([each.correct for each in before], [each.correct for each in after], pages_of(after))


def _pairs(predictions: Sequence[Prediction]) -> list[tuple[str, str]]:
    return [(prediction.label, prediction.text) for prediction in predictions]


def _accuracy(predictions: Sequence[Prediction]) -> Rate:
    return Rate(sum(prediction.correct for prediction in predictions), len(predictions))


def tables(comparison: Comparison) -> dict[str, str]:
    """Return the tables by the names of their files, each with the worst first.

    Lines that became wrong, then those that became right (only the header without ``before``); the edits of each kind,
    with those that no longer occur; the groups that occur; the scores of each character.
    """
    before = ["before" for _ in comparison.earlier]
    edits = {
        name: [[a, b, n, *then] for a, b, n, then in comparison.edits(kind)]
        for name, kind in zip(("pairs", *KINDS[1:]), KINDS, strict=True)
    }
    scores = comparison.after.confusions.characters.items()
    content: dict[str, list[list[Any]]] = {
        "lines": [
            ["change", "image", "label", "before", "prediction"],
            *(
                ["newly right" if correct else "newly wrong", now.image, now.label, then.text, now.text]
                for correct in (False, True)
                for then, now in comparison.turned(correct)
            ),
        ],
        **{name: [["character", "read_as", "count", *before], *rows] for name, rows in edits.items()},
        "groups": [
            ["group", "count", "confused", "share", *before],
            *(
                [group, rate.total, rate.hits, _share(rate.value), *then]
                for group, rate, then in comparison.most_confused_groups
            ),
        ],
        "characters": [
            ["character", "count", "read", "correct", "precision", "recall"],
            *(
                [
                    name,
                    score.count,
                    score.predicted,
                    score.correct,
                    *map(_share, (score.precision, score.recall)),
                ]
                for name, score in sorted(
                    scores, key=lambda s: (s[1].recall if s[1].count else 2.0, -s[1].count)
                )
            ),
        ],
    }
    return {f"{name}.tsv": to_tsv(rows) for name, rows in content.items()}


def _share(value: float) -> str:
    return f"{value:.4f}" if value == value else ""


def to_json(comparison: Comparison) -> str:
    """Return the numbers of the comparison."""
    content: dict[str, Any] = {"after": _numbers(comparison.after), "groups": list(comparison.groups)}
    content["lists"] = comparison.lists
    if comparison.before is not None:
        content["before"] = _numbers(comparison.before)
    sentences = comparison.sentences
    for name, changed in comparison.changed.items():
        content[re.sub(r"\W", "_", name)] = {
            "only_before_correct": changed.only_before,
            "only_after_correct": changed.only_after,
            "pages": len(changed.pages),
            "p_value": changed.p_value,
            "verdict": changed.verdict,
            "gain": changed.gain,
            "gain_interval_95": changed.interval(),
            "loss_at_most_95": changed.most_lost,
            "in_words": sentences[name],
        }
    for name, rate in (("general", comparison.general), ("general_before", comparison.general_before)):
        if rate is not None:
            content[name] = _rate(rate)
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def _numbers(analysis: ConfusionAnalysis) -> dict[str, Any]:
    groups = {name: {"confused": rate.hits, "of": rate.total} for name, rate in analysis.by_group.items()}
    return {
        "accuracy": _rate(analysis.accuracy),
        "look_alike_error": _rate(analysis.look_alikes),
        "by_group": groups,
        **{kind: analysis.confusions.ranked(kind)[:50] for kind in KINDS},
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"value": rate.value if rate.total else None, "of": rate.total, "interval_95": list(rate.interval)}


def to_text(comparison: Comparison) -> str:
    """Return the comparison for the terminal."""
    lines = [
        f"{name}: {'' if then is None else f'{_shown(then)} → '}{_shown(now)}"
        for name, now, then in comparison.rates
    ]
    lines += comparison.sentences.values()
    for kind in KINDS:
        pairs = [
            f"{_edit(a, b)}: {n}{''.join(f' (was {was})' for was in before)}"
            for a, b, n, before in comparison.edits(kind)[:10]
        ]
        lines += [f"most frequent {kind}: {', '.join(pairs)}"] if pairs else []
    lines += filter(None, [comparison.lists])
    return "\n".join(lines)


def _shown(rate: Rate) -> str:
    if not rate.total:
        return "–"
    low, high = rate.interval
    return f"{rate.value:.2%} of {rate.total:,} (95 % interval: {low:.2%} to {high:.2%})"
