"""What a look at the data found, and copies of label files with the usable lines only; no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ppocr_ext.data.label_file import LabelLine, read_label_file
from ppocr_ext.data.sample_rules import FrameLimit, LabelRules
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer

REASONS: dict[str, str] = {  # reason -> what to do about it
    "bad_format": "A line is a path, `dataset.delimiter` and the label, in UTF-8.",
    "empty_label": "Lines without text cannot be trained on.",
    "too_long": "Raise `Global.max_text_length`.",
    "unknown_char": "Is `Global.character_dict_path` the dictionary of these labels? "
    "`Global.unknown_char: drop_char` keeps such lines without the character.",
    "missing_image": "Paths are relative to `dataset.data_dir`.",
    "broken_image": "Make these images again, or convert them to PNG or JPEG.",
    "outside_data_dir": "If these paths are meant, set `Global.allow_outside_data_dir: true`.",
    "too_long_for_frames": "Make the images wider, or take such labels out.",
}


@dataclass(frozen=True)
class UnusableSample:
    """An unusable line: where it stands, the reason (a key of ``REASONS``) and the particulars.

    In an LMDB ``file`` is its folder and ``line`` the index of the sample.
    """

    file: Path
    line: int
    reason: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"file": str(self.file), "line": self.line, "reason": self.reason, "detail": self.detail}


@dataclass
class FileReport:
    """The lines of one label file (samples of one LMDB), and one bit for each that can be used."""

    path: Path
    total: int = 0
    usable: int = 0
    altered: bool = False
    _bits: bytearray = field(default_factory=bytearray, repr=False)

    def add(self, usable: bool, altered: bool) -> None:
        """Note the next line."""
        byte, bit = divmod(self.total, 8)
        if bit == 0:
            self._bits.append(0)
        if usable:
            self._bits[byte] |= 1 << bit
            self.usable += 1
        self.altered |= altered
        self.total += 1

    def is_usable(self, number: int) -> bool:
        """Whether line ``number`` (from 1) can be used."""
        byte, bit = divmod(number - 1, 8)
        return bool(self._bits[byte] >> bit & 1)

    def usable_array(self) -> Any:
        """Whether each line can be used: bool [total]."""
        import numpy as np

        bits = np.unpackbits(np.frombuffer(self._bits, np.uint8), count=self.total, bitorder="little")
        return bits.astype(bool)

    @property
    def needs_copy(self) -> bool:
        """Whether the host should read a copy: lines are left out, or line ends or a BOM taken off."""
        return self.usable < self.total or self.altered


@dataclass
class PreflightReport:
    """What was found in the label files or the LMDBs of a train or eval set.

    Attributes:
        data_dir: folder of relative image paths.
        reserved: places of ``max_text_length`` that marks of the second label take.
        reserved_for: what takes them, for messages.
        delimiter: of the label files.
        ds_width: whether lines have width and height.
        examples: unusable lines of a reason that are kept by name.
        files: what was found in each label file.
        counts: unusable lines by reason; exact.
        rejected: the first ``examples`` unusable lines of each reason.
        longest: characters of the longest label, usable or not.
        longest_at: its file and line.
        frames: what CTC's output holds; None if it is not known or not checked.
        misfits: usable lines whose labels do not fit it, which count as read wrongly; 0 if they are unusable.
        misfit_examples: the first ``examples`` of them.
        most_frames: frames that the most demanding label needs, usable or not.
        most_frames_at: its file and line.
        stopped: the check ended before the last line, because its time was over.
        unit: what is counted: ``"line"`` or ``"sample"`` (of an LMDB).
    """

    data_dir: Path
    reserved: int = 0
    reserved_for: str = ""
    delimiter: str = "\t"
    ds_width: bool = False
    examples: int = 20
    files: list[FileReport] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    rejected: list[UnusableSample] = field(default_factory=list)
    longest: int = 0
    longest_at: tuple[Path, int] | None = None
    frames: FrameLimit | None = None
    misfits: int = 0
    misfit_examples: list[UnusableSample] = field(default_factory=list)
    most_frames: int = 0
    most_frames_at: tuple[Path, int] | None = None
    stopped: bool = False
    unit: Literal["line", "sample"] = "line"

    def begin_file(self, path: Path) -> FileReport:
        """Start the findings of the next label file."""
        self.files.append(FileReport(path))
        return self.files[-1]

    def reject(self, finding: UnusableSample) -> None:
        """Count an unusable line, and keep it by name while there is room."""
        count = self.counts.get(finding.reason, 0) + 1
        self.counts[finding.reason] = count
        if count <= self.examples:
            self.rejected.append(finding)

    def note_label(self, line: LabelLine, file: Path, rules: LabelRules, usable: bool) -> None:
        """Remember the longest label so far, and the one that needs the most frames; count what does not fit."""
        length = len(line.label)
        if usable and (misfit := rules.misfit(line)) is not None:
            self.misfits += 1
            if self.misfits <= self.examples:
                self.misfit_examples.append(UnusableSample(file, line.number, *misfit))
        if length > self.longest:
            self.longest, self.longest_at = length, (file, line.number)
        if 2 * length - 1 > self.most_frames:  # as if all its characters were the same
            needed = rules.frames_needed(line.label)
            if needed > self.most_frames:
                self.most_frames, self.most_frames_at = needed, (file, line.number)

    @property
    def total(self) -> int:
        """Lines looked at."""
        return sum(f.total for f in self.files)

    @property
    def usable(self) -> int:
        """Lines that can be used."""
        return sum(f.usable for f in self.files)

    @property
    def unusable_count(self) -> int:
        """Lines that cannot be used."""
        return self.total - self.usable

    @property
    def problem_count(self) -> int:
        """Lines that cannot be used, or count as read wrongly because their labels do not fit the frames."""
        return self.unusable_count + self.misfits

    @property
    def units(self) -> str:
        """What is counted, in the plural."""
        return f"{self.unit}s"

    def place(self, file: Path, number: int) -> str:
        """How messages name a line (``list.txt:3``) or a sample (``folder#3``)."""
        return f"{file}{':' if self.unit == 'line' else '#'}{number}"

    def summary(self) -> str:
        """One sentence: how many lines can be used, how many are left out and why, and one by name."""
        misfits = f"; {self.misfits:,} with labels that do not fit the frames" if self.misfits else ""
        total = f"{self.total:,} {self.units}"
        if self.stopped:
            total = f"the first {total} (time was over before the last)"
        if self.unusable_count == 0:
            return f"{total}, all usable{misfits}"
        first = self.rejected[0]
        return (
            f"{self.usable:,} of {total} usable{misfits}; left out: {self.by_reason()} "
            f"(first {self.place(first.file, first.line)}: {first.detail})"
        )

    def frames_summary(self) -> str:
        """Return T, the frames that the most demanding label needs, and their ratio; empty if T is not known."""
        if self.frames is None or not self.most_frames:
            return ""
        if self.frames.by_ratio:
            most = max(self.frames.by_ratio.values())
            return (
                f"CTC has T = {self.frames.frames} to {most} frames by the width of a line; the longest label has "
                f"{self.longest} characters, the most demanding one needs {self.most_frames} frames"
            )
        ratio = self.frames.frames / self.most_frames
        return (
            f"CTC has T = {self.frames.frames} frames; the longest label has {self.longest} characters, the most "
            f"demanding one needs {self.most_frames} frames (ratio {ratio:.2g})"
        )

    def reasons(self) -> list[str]:
        """Reasons that were found, the most frequent first."""
        return sorted(self.counts, key=lambda reason: -self.counts[reason])

    def by_reason(self) -> str:
        """``3 too_long, 1 missing_image``."""
        return ", ".join(f"{self.counts[reason]:,} {reason}" for reason in self.reasons())

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``preflight.json``: counts, the longest label, the unusable lines kept by name."""
        return {
            "total": self.total,
            "usable": self.usable,
            "counts": {reason: self.counts[reason] for reason in self.reasons()},
            "files": [{"path": str(f.path), "total": f.total, "usable": f.usable} for f in self.files],
            "data_dir": str(self.data_dir),
            "longest_label": {"characters": self.longest, "at": _at(self.longest_at)},
            "most_frames": {
                "needed": self.most_frames,
                "of": None if self.frames is None else self.frames.frames,
                "at": _at(self.most_frames_at),
            },
            "misfits": self.misfits,
            "examples_per_reason": self.examples,
            "rejected": [f.to_json() for f in self.rejected],
            "misfit_examples": [f.to_json() for f in self.misfit_examples],
        }

    def write_usable(self, folder: str | Path) -> list[Path]:
        """Label files with the usable lines only; one for each source, as ``ratio_list`` counts on.

        Where all lines of a file can be used as they stand it is returned itself; otherwise a copy in
        ``folder``, without a byte order mark and with ``\\n`` line ends.

        Raises:
            DataError: a label file has changed since it was looked at.
        """
        width = len(str(len(self.files) - 1))
        copies: Sequence[Path] = [
            Path(folder) / f"{index:0{width}d}_{findings.path.name}"
            for index, findings in enumerate(self.files)
        ]
        return [
            self._copy(findings, copy) if findings.needs_copy else findings.path
            for findings, copy in zip(self.files, copies, strict=True)
        ]

    def _copy(self, findings: FileReport, copy: Path) -> Path:
        count = 0
        with atomic_writer(copy) as stream:
            for line in read_label_file(findings.path, self.delimiter, ds_width=self.ds_width):
                count += 1
                if count > findings.total:
                    break
                if findings.is_usable(line.number):
                    stream.write(line.content + b"\n")
            if count != findings.total:
                raise DataError(
                    f"{findings.path} has changed while it was read: {findings.total} lines before, now "
                    f"{'more' if count > findings.total else count}. Start again when it is complete."
                )
        return copy


def _at(place: tuple[Path, int] | None) -> dict[str, Any] | None:
    return None if place is None else {"file": str(place[0]), "line": place[1]}
