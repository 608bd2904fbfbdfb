"""What a fine-tuning did to look-alikes: the numbers, before and after. Imports no Paddle."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppocr_ext.evaluation.confusions import (
    Confusions,
    McNemar,
    Rate,
    count_confusions,
    errors_by_group,
    look_alike_errors,
    look_alikes_confused,
    mcnemar,
)
from ppocr_ext.evaluation.predictions import Read


@dataclass(frozen=True)
class Reading:
    """One reading of a list of lines.

    Attributes:
        lines: in the list's order.
        confusions: what was taken for what.
        look_alikes: characters of the groups that were read as another one of their group.
        by_group: the same for each group that occurs.
    """

    lines: Sequence[Read]
    confusions: Confusions
    look_alikes: Rate
    by_group: Mapping[str, Rate]

    @property
    def accuracy(self) -> Rate:
        """Lines read without an error."""
        return Rate(self.confusions.correct_lines, self.confusions.lines)


@dataclass(frozen=True)
class Comparison:
    """A reading, and one before it of the same lines.

    Attributes:
        after: the reading that is judged.
        before: an earlier one; None where there is none.
        lines_changed: McNemar's test on lines read correctly; None without ``before``.
        look_alikes_changed: the same on characters of the groups, right being not taken for another one of a group.
        general: accuracy on a second list, after; ``general_before``: before.
    """

    after: Reading
    groups: Sequence[str]
    before: Reading | None = None
    lines_changed: McNemar | None = None
    look_alikes_changed: McNemar | None = None
    general: Rate | None = None
    general_before: Rate | None = None

    @property
    def changed(self) -> dict[str, McNemar]:
        """What has changed since ``before``, by its name for people; empty without it."""
        named = {"lines": self.lines_changed, "look-alikes": self.look_alikes_changed}
        return {name: test for name, test in named.items() if test is not None}

    @property
    def most_confused_groups(self) -> list[str]:
        """Groups that occur, those most often confused (after, then before) first; ties in the groups' order."""
        after = self.after.by_group
        before = {} if self.before is None else self.before.by_group
        return sorted(after, key=lambda group: (-after[group].hits, -before[group].hits if before else 0))

    @property
    def accuracy_name(self) -> str:
        """Return what the accuracy is called: spaces count in it, which is said where there are any."""
        spaces = any(" " in line.label or " " in line.text for line in self.after.lines)
        return "accuracy, spaces count" if spaces else "accuracy"

    @property
    def drop(self) -> float | None:
        """By how much the accuracy on the general list has fallen; None where it was not given twice."""
        if self.general is None or self.general_before is None:
            return None
        return self.general_before.value - self.general.value


def reading(lines: Sequence[Read], groups: Sequence[str]) -> Reading:
    """Count what was confused in one reading."""
    pairs = [(line.label, line.text) for line in lines]
    return Reading(
        lines, count_confusions(pairs), look_alike_errors(pairs, groups), errors_by_group(pairs, groups)
    )


def compare(
    after: Sequence[Read],
    groups: Sequence[str],
    before: Sequence[Read] | None = None,
    general: Sequence[Read] | None = None,
    general_before: Sequence[Read] | None = None,
) -> Comparison:
    """Compare readings; ``before`` must be of the lines of ``after``, in their order."""
    return Comparison(
        reading(after, groups),
        groups,
        None if before is None else reading(before, groups),
        None if before is None else mcnemar([x.right for x in before], [x.right for x in after]),
        None if before is None else mcnemar(_not_confused(before, groups), _not_confused(after, groups)),
        _accuracy(general),
        _accuracy(general_before),
    )


def _not_confused(lines: Sequence[Read], groups: Sequence[str]) -> list[bool]:
    return [not wrong for wrong in look_alikes_confused([(x.label, x.text) for x in lines], groups)]


def _accuracy(lines: Sequence[Read] | None) -> Rate | None:
    return None if lines is None else Rate(sum(line.right for line in lines), len(lines))


def pairs_tsv(comparison: Comparison) -> str:
    """Substitutions, the most frequent first: character, read as, count, and the count before."""
    before = {} if comparison.before is None else comparison.before.confusions.pairs
    rows: list[list[Any]] = [["character", "read_as", "count", *(["before"] if comparison.before else [])]]
    found = {(a, b): n for a, b, n in comparison.after.confusions.substitutions()}
    gone = sorted(((-n, pair) for pair, n in before.items() if all(pair) and pair not in found))
    for (a, b), count in [*found.items(), *((pair, 0) for _, pair in gone)]:
        rows.append([a, b, count, *([before[a, b]] if comparison.before else [])])
    return _tsv(rows)


def groups_tsv(comparison: Comparison) -> str:
    """Each group of look-alikes that occurs, most confused first: how often, how often confused, and that before."""
    before = comparison.before
    rows: list[list[Any]] = [["group", "count", "confused", "share", *(["before"] if before else [])]]
    for group in comparison.most_confused_groups:
        rate = comparison.after.by_group[group]
        then = [before.by_group[group].hits] if before else []
        rows.append([group, rate.total, rate.hits, _share(rate.value), *then])
    return _tsv(rows)


def characters_tsv(comparison: Comparison) -> str:
    """Precision, recall and count of each character, those read worst first."""
    rows: list[list[Any]] = [["character", "count", "read", "correct", "precision", "recall"]]
    scores = comparison.after.confusions.characters.items()
    for name, score in sorted(
        scores, key=lambda item: (item[1].recall if item[1].count else 2.0, -item[1].count)
    ):
        rows.append(
            [name, score.count, score.read, score.correct, _share(score.precision), _share(score.recall)]
        )
    return _tsv(rows)


def _tsv(rows: list[list[Any]]) -> str:
    """As ``eval --save-predictions`` writes: a tab or a quotation mark that is a character is quoted."""
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="\t", lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _share(value: float) -> str:
    return f"{value:.4f}" if value == value else ""


def to_json(comparison: Comparison) -> str:
    """The comparison's numbers."""
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


def _numbers(found: Reading) -> dict[str, Any]:
    return {
        "accuracy": _rate(found.accuracy),
        "look_alike_error": _rate(found.look_alikes),
        "by_group": {
            group: {"confused": rate.hits, "of": rate.total} for group, rate in found.by_group.items()
        },
        "substitutions": [list(pair) for pair in found.confusions.substitutions()[:50]],
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"value": rate.value if rate.total else None, "of": rate.total, "interval_95": list(rate.interval)}


def to_text(comparison: Comparison) -> str:
    """The comparison for the screen."""
    after, before = comparison.after, comparison.before
    lines = [
        _row(comparison.accuracy_name, after.accuracy, None if before is None else before.accuracy),
        _row("look-alike error", after.look_alikes, None if before is None else before.look_alikes),
    ]
    lines += [
        f"{name}: {changed.only_after:,} became right, {changed.only_before:,} became wrong "
        f"(McNemar p = {changed.p_value:.3g})"
        for name, changed in comparison.changed.items()
    ]
    if comparison.general is not None:
        lines.append(_row("accuracy, general list", comparison.general, comparison.general_before))
    worst = after.confusions.substitutions()[:10]
    if worst:
        lines.append("most frequent: " + ", ".join(f"{a}→{b} {n}" for a, b, n in worst))
    return "\n".join(lines)


def _row(name: str, now: Rate, then: Rate | None) -> str:
    was = "" if then is None else f"{_shown(then)} → "
    return f"{name}: {was}{_shown(now)}"


def _shown(rate: Rate) -> str:
    if not rate.total:
        return "–"
    low, high = rate.interval
    return f"{rate.value:.2%} of {rate.total:,} (95 %: {low:.2%} to {high:.2%})"
