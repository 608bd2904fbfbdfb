"""How much unusable data a run puts up with, and what it says when there is more; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ppocr_ext.config.global_keys import GLOBAL_KEYS
from ppocr_ext.data.preflight_report import REASONS, PreflightReport, UnusableSample

MAX_UNUSABLE: float = GLOBAL_KEYS["max_unusable"].default
_OF_LENGTH = ("too_long", "too_long_for_frames")
_STEP = 32  # pixels; image widths are multiples of it
_NAMED = 20  # lines that a strict refusal names before it only counts
_OF_SAMPLES = {  # what is said in place of REASONS where the data are LMDBs
    "bad_format": "A sample has a label-%09d in UTF-8.",
    "missing_image": "A sample has an image-%09d: make the LMDB again.",
}


@dataclass(frozen=True)
class UnusableLimit:
    """What is admitted: a share of unusable lines, or none at all.

    Attributes:
        max_unusable: ``Global.max_unusable``, 0 to 1, of the lines of ``Train`` and of those of ``Eval``.
        strict: ``Global.strict``: not one line may be unusable.
    """

    max_unusable: float = MAX_UNUSABLE
    strict: bool = False

    def allows(self, unusable: int, total: int) -> bool:
        """Whether a run goes on without ``unusable`` of ``total`` lines."""
        if self.strict:
            return unusable == 0
        return unusable < total and unusable <= self.max_unusable * total

    def allows_report(self, report: PreflightReport) -> bool:
        """Return whether a run goes on with these data: lines that cannot be used, and labels that do not fit."""
        if self.strict:
            return report.problem_count == 0
        return report.usable > 0 and report.problem_count <= self.max_unusable * report.total

    @property
    def limit(self) -> str:
        """What is admitted, as messages say it where there is more."""
        if self.strict:
            return "the limit is 0 (Global.strict: true)"
        return f"the limit is {100 * self.max_unusable:.4g} % (Global.max_unusable: {self.max_unusable:g})"


def limit_errors(found: Mapping[str, PreflightReport], tolerance: UnusableLimit) -> list[str]:
    """What is to be said against going on, a paragraph each; empty where nothing is.

    Args:
        found: what preflight found, by ``"Train"`` / ``"Eval"``.
        tolerance: how much is admitted.
    """
    refused = {mode: report for mode, report in found.items() if not tolerance.allows_report(report)}
    width = max((_width_needed(report) or 0 for report in found.values()), default=0)
    said = [_refusal(mode, report, tolerance, width) for mode, report in refused.items()]
    if said and tolerance.strict:
        said.append("Fix them or take them out, or go on without --strict (Global.strict: true).")
    elif said and all(report.usable for report in refused.values()):
        share = max(report.problem_count / report.total for report in refused.values())
        accept = "accept them" if any(report.misfits for report in refused.values()) else "go on without them"
        said.append(f"Fix them, or {accept}: -o Global.max_unusable={_at_least(share):g}.")
    return said


def _at_least(share: float) -> float:
    """``share`` with two digits behind the point, rounded up."""
    return math.ceil(round(share * 100, 6)) / 100


def _refusal(mode: str, report: PreflightReport, tolerance: UnusableLimit, width: int) -> str:
    counts = f"{report.problem_count:,} of {report.total:,} {report.units}"
    if report.misfits:
        said = (
            f"{mode}: {counts} cannot be read: {_with_misfits(report)}; {tolerance.limit}.\n"
            f"  A label that does not fit CTC's frames counts as read wrongly."
        )
    elif not report.usable:
        where = ", ".join(str(f.path) for f in report.files)
        said = f"{mode}: no {report.unit} of {where} can be used. Of {report.total:,}: {report.by_reason()}."
    else:
        said = f"{mode}: {counts} cannot be used: {report.by_reason()}; {tolerance.limit}."
    examples = _every(report) if tolerance.strict and report.usable else _one_of_each(report)
    return "\n".join([said, *(f"  {line}" for line in [*examples, *_limits(report, width)])])


def _with_misfits(report: PreflightReport) -> str:
    misfits = f"{report.misfits:,} too_long_for_frames"
    return f"{report.by_reason()}, {misfits}" if report.counts else misfits


def _one_of_each(report: PreflightReport) -> list[str]:
    firsts = [next(f for f in report.rejected if f.reason == reason) for reason in report.reasons()]
    firsts += report.misfit_examples[:1]
    return [f"{_named(report, finding)}. {remedy(report, finding.reason)}".rstrip() for finding in firsts]


def _every(report: PreflightReport) -> list[str]:
    lines = [_named(report, finding) for finding in [*report.rejected, *report.misfit_examples][:_NAMED]]
    more = report.problem_count - len(lines)
    return [*lines, f"… and {more:,} more"] if more else lines


def _named(report: PreflightReport, finding: UnusableSample) -> str:
    return f"{report.place(finding.file, finding.line)}: {finding.reason}: {finding.detail}"


def remedy(report: PreflightReport, reason: str) -> str:
    """What to do about ``reason``, with the numbers that this data needs; empty where :func:`_limits` says it."""
    if reason == "outside_data_dir" and 2 * report.counts[reason] >= report.total:
        which = "All" if report.counts[reason] == report.total else "Most"
        return (
            f"{which} {report.units} are outside: if data_dir is right, this one key is the remedy: "
            f"-o Global.allow_outside_data_dir=true."
        )
    if reason in _OF_LENGTH:
        return ""  # said once for both
    return (_OF_SAMPLES if report.unit == "sample" else {}).get(reason, REASONS[reason])


def _limits(report: PreflightReport, width: int) -> list[str]:
    """Return every limit that labels pass by their length, with the value that admits all of them.

    Args:
        report: of one section.
        width: of the images that the labels of all sections need; 0 if it is not known.
    """
    limits: list[str] = []
    if not report.misfits and not any(reason in report.counts for reason in _OF_LENGTH):
        return limits
    if "too_long" in report.counts and report.longest_at is not None:
        marks = f" ({report.reserved} of them for {report.reserved_for})" if report.reserved else ""
        limits.append(
            f"The longest label has {report.longest} characters ({report.place(*report.longest_at)}); "
            f"`Global.max_text_length: {report.longest + report.reserved}`{marks} admits it."
        )
    limit = report.frames
    if limit is not None and report.most_frames_at is not None and report.most_frames > limit.frames:
        needed = f"{report.place(*report.most_frames_at)} needs {report.most_frames} frames, CTC has {limit.frames}"
        if limit.fixed:
            limits.append(f"Take such labels out: {needed} in training, however wide the images are.")
        elif limit.by_ratio is not None:
            limits.append(
                "Take such labels out, or raise `Train.sampler.max_w` where it caps the width of lines."
            )
        else:
            other = {"Train": " (and the size in Eval)", "Eval": " (and the size in Train)"}
            both = other.get(limit.key.partition(".")[0], "")
            limits.append(
                f"Make `{limit.key}` wider{both}, or take such labels out: {needed}: {_wider(report, width)}."
            )
    return limits


def _wider(report: PreflightReport, width: int) -> str:
    """Return by how much images have to be wider."""
    assert report.frames is not None
    times = f"{math.ceil(100 * report.most_frames / report.frames.frames) / 100:g} times as wide"
    return f"{times}, {width} in place of {report.frames.width}" if report.frames.width else times


def _width_needed(report: PreflightReport) -> int | None:
    """Return the width that gives enough frames; they grow with it, in steps of up to 32 pixels."""
    if report.frames is None or report.frames.width is None:
        return None
    factor = max(1.0, report.most_frames / report.frames.frames)
    return math.ceil(report.frames.width * factor / _STEP) * _STEP
