"""Limit the unusable samples of a run, and say what to do about them; no Paddle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ppocr_ext.config.global_keys import GLOBAL_KEYS
from ppocr_ext.data.issue_rules import RULES, counted_issue
from ppocr_ext.data.preflight_report import PreflightReport, by_reason
from ppocr_ext.data.sample_rules import FRAME_WIDTH
from ppocr_ext.issues import Issue

MAX_UNUSABLE: float = GLOBAL_KEYS["max_unusable"].default
_OF_LENGTH = ("too_long", "too_long_for_frames")
_STEP = 32  # pixels; image widths are multiples of it
_NAMED = 20  # samples that an error names under Global.strict before it only counts


_OPTIONS = {  # by who sets the limit: how it is named, and how it is set
    "run": ("Global.max_unusable:", "-o Global.max_unusable="),
    "make_lmdb": ("--max-unusable", "--max-unusable "),
}


@dataclass(frozen=True)
class UnusableLimit:
    """The limit on unusable samples: a share of all samples, or 0.

    Attributes:
        max_unusable: ``Global.max_unusable``, 0 to 1; it applies to ``Train`` and to ``Eval``.
        strict: ``Global.strict``, with which no sample may be unusable.
        who: ``"run"`` or ``"make_lmdb"``: whose options and fixes messages name.
    """

    max_unusable: float = MAX_UNUSABLE
    strict: bool = False
    who: str = "run"

    def allows(self, unusable: int, total: int) -> bool:
        """Return whether ``unusable`` of ``total`` samples are within the limit, and one is usable."""
        return unusable < total and unusable <= self._most(total)

    def allows_report(self, report: PreflightReport) -> bool:
        """Return whether a run may start with these data. Misfits count too, though all samples may be misfits."""
        return report.usable > 0 and report.problem_count <= self._most(report.total)

    def _most(self, total: int) -> float:
        return 0 if self.strict else self.max_unusable * total

    @property
    def text(self) -> str:
        """Return the limit for a message."""
        if self.strict:
            return "the limit is 0 (Global.strict: true)"
        return f"the limit is {100 * self.max_unusable:.4g} % ({_OPTIONS[self.who][0]} {self.max_unusable:g})"


def limit_errors(reports: Mapping[str, PreflightReport], limit: UnusableLimit) -> list[str]:
    """Return one error paragraph per section with too many unusable samples; empty if the run may start.

    Args:
        reports: what preflight found, by the name of the data.
        limit: how many may be unusable.
    """
    refused = {mode: report for mode, report in reports.items() if not limit.allows_report(report)}
    width = max(map(_width_needed, reports.values()), default=0)
    errors = [_error(mode, report, limit, width) for mode, report in refused.items()]
    if errors and limit.strict:
        errors.append("Fix or remove them, or run without --strict (Global.strict: true).")
    elif errors and all(report.usable for report in refused.values()):
        share = max(report.problem_count / report.total for report in refused.values())
        accept = "accept" if any(report.misfits for report in refused.values()) else "skip"
        errors.append(f"Fix them, or {accept} them: {_OPTIONS[limit.who][1]}{share_above(share):g}.")
    return errors


def share_above(share: float) -> float:
    """Return ``share`` with two digits behind the point, rounded up."""
    return math.ceil(round(share * 100, 6)) / 100


def _error(mode: str, report: PreflightReport, limit: UnusableLimit, width: int) -> str:
    """Return the paragraph of one section: counts, examples, and the fix for labels that are too long."""
    reasons = by_reason(report.problem_counts)
    examples = [*report.unusable_samples, *report.misfit_examples]
    if report.usable:
        lines = [
            f"{mode}: {report.problem_count:,} of {report.total:,} samples are unusable ({reasons}); {limit.text}."
        ]
    else:
        where = ", ".join(str(file.path) for file in report.files)
        lines = [f"{mode}: none of the {report.total:,} samples of {where} is usable ({reasons})."]
    if report.misfits:
        lines.append("A label that needs more frames than CTC has counts as read wrongly.")
    if limit.strict and report.usable:
        lines += [report.text(sample) for sample in examples[:_NAMED]]
        more = report.problem_count - len(examples[:_NAMED])
        lines += [f"… and {more:,} more"] if more else []
    else:
        firsts = {sample.reason: sample for sample in reversed(examples)}  # the first sample of each reason
        for reason in sorted(firsts, key=lambda reason: -report.problem_counts[reason]):
            lines.append(f"{report.text(firsts[reason])}. {_fix(report, reason, limit.who)}".rstrip())
    return "\n  ".join([*lines, *(_length_fixes(report, width) if limit.who == "run" else ())])


def _fix(report: PreflightReport, reason: str, who: str) -> str:
    """Return what to do about the samples with a reason; empty if the run's :func:`_length_fixes` say it."""
    count = report.counts[reason]
    if who == "run" and reason in _OF_LENGTH:
        return ""
    if who == "run" and reason == "outside_data_dir" and 2 * count >= report.total:
        which = "All" if count == report.total else "Most"
        option = "-o Global.allow_outside_data_dir=true"
        return f"{which} samples are outside: if data_dir is right, set {option}."
    if who == "run" and reason == "unknown_char" and 2 * report.other_case[0] >= count:
        return case_issue(report).sentence
    return RULES[reason].fix_in(*["lmdb"] * report.is_lmdb, who)


def case_issue(report: PreflightReport) -> Issue:
    """Return the issue of labels that lack only the other case in the dictionary, with the first of them."""
    count, label = report.other_case
    return counted_issue("other_case", count, report.total, [("", repr(label))])


def _length_fixes(report: PreflightReport, width: int) -> list[str]:
    """Return a sentence for each limit that labels exceed, with the value that is enough for all of them.

    Args:
        report: the report of one section.
        width: the image width that the labels of all sections need; 0 if unknown.
    """
    fixes: list[str] = []
    if not any(reason in report.problem_counts for reason in _OF_LENGTH):
        return fixes
    if "too_long" in report.counts and report.longest_at is not None:
        reserved = report.rules.reserved
        marks = f" ({reserved} of them for {report.rules.reserved_for})" if reserved else ""
        fixes.append(
            f"The longest label has {report.longest} characters ({report.place(*report.longest_at)}); set "
            f"`Global.max_text_length: {report.longest + reserved}`{marks}."
        )
    limit = report.rules.frames
    if limit is None or report.most_frames_at is None or report.most_frames <= limit.frames:
        return fixes
    needed = (
        f"{report.place(*report.most_frames_at)} needs {report.most_frames} frames, CTC has {limit.frames}"
    )
    other = {"Train": " (and the size in Eval)", "Eval": " (and the size in Train)"}
    both = other.get(limit.key.partition(".")[0], "")
    instead = f", {width} instead of {limit.width}"
    if limit.fixed_by:
        keys = ", ".join(f"`{key}: width`" for key in limit.fixed_by)
        is_wider = limit.width is not None and width > limit.width and limit.by_ratio is None
        wider = f" and make `{limit.key}` wider{both}{instead}" if is_wider else ""
        fixes.append(f"Set {keys}{wider}, or remove such labels: {needed} in training at any width.")
    elif limit.by_ratio is not None:
        fixes.append("Remove such labels, or raise `Train.sampler.max_w` if it limits the image width.")
    else:
        times = f"{share_above(report.most_frames / limit.frames):g} times as wide"
        wider = f"{times}{instead if limit.width else ''}"
        fixes.append(f"Make `{limit.key}` wider{both}, or remove such labels: {needed}: {wider}.")
    return fixes


def _width_needed(report: PreflightReport) -> int:
    """Return the image width that gives enough frames, a multiple of 32 pixels; 0 if it is not known."""
    limit = report.rules.frames
    if limit is None or limit.width is None:
        return 0
    # the message proposes `train_frames: width`, so the frames are counted as if it were set
    frames = max(1, limit.width // FRAME_WIDTH) if limit.fixed_by else limit.frames
    return math.ceil(limit.width * max(1.0, report.most_frames / frames) / _STEP) * _STEP
