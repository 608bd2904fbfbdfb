"""Record what preflight found, and copy label files with the usable lines only; imports no Paddle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

from ppocr_ext.data.label_file import LabelLine, read_label_file
from ppocr_ext.data.sample_rules import SampleIssue, SampleRules, frames_needed, frames_needed_each
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.issues import Issue

EXAMPLES = 3
ILLEGIBLE = "###"  # PPOCRLabel and public data sets write it where a text cannot be read
_IS_NUMBER = re.compile(rb" *[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)? *|").fullmatch  # or no value


@dataclass(frozen=True)
class UnusableSample:
    """A sample that is unusable, or a misfit: where it is, and why.

    Attributes:
        file: its label file, or the folder of its LMDB.
        line: its line there, or its index in the LMDB, from 1.
        reason, detail: a key of :data:`ppocr_ext.data.sample_rules.FIXES`, and the details.
    """

    file: Path
    line: int
    reason: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "file": str(self.file)}


@dataclass
class FurtherColumns:
    """The columns after the label, which PaddleOCR leaves out, of the usable lines of one label file.

    Attributes:
        kinds: how many columns of numbers a line has; -1 for a line with text in one.
        counts: lines whose label begins with a quotation mark, as programs write CSV (``quoted_label``; where a tab
            is the delimiter, the mark is text), and other lines in which something is left out (``cut_label``).
        examples: the first lines of each: what they count as, line number, label, and what is left out.
    """

    kinds: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, int, str, str]] = field(default_factory=list)

    def add(self, first: int, lines: Sequence[bytes], usable: Sequence[int], delimiter: bytes) -> None:
        """Take the next lines with their ends, from number ``first`` on, and whether each is usable."""
        text = b"".join(lines)
        quote = b'"' if delimiter != b"\t" else b"\n"  # no label contains a line end
        if text.count(delimiter) == len(lines) and delimiter + quote not in text and 0 not in usable:
            self.kinds.add(0)  # without a look at each line
            return
        for number, line in compress(enumerate(lines, first), usable):
            _, label, *rest = line.rstrip(b"\r\n").split(delimiter)
            self.kinds.add(len(rest) if all(map(_IS_NUMBER, rest)) else -1)
            code = "quoted_label" if label.startswith(quote) and label != quote else "cut_label"
            if code == "quoted_label" or any(rest):
                self.counts[code] += 1
                if self.counts[code] <= EXAMPLES:
                    self.examples.append((code, number, label.decode(), delimiter.join(rest).decode()))


@dataclass
class FileReport:
    """Which lines of one label file (samples of one LMDB) are usable.

    Attributes:
        path: the label file, or the folder of the LMDB.
        digest: of all its lines (labels of an LMDB), hexadecimal.
        altered: line ends or a byte order mark were removed from a line.
        lines: 1 byte for each line: 1 if it is usable, else 0.
        further: the columns after the label.
    """

    path: Path
    digest: str = ""
    altered: bool = False
    lines: bytearray = field(default_factory=bytearray, repr=False)
    further: FurtherColumns = field(default_factory=FurtherColumns)

    @property
    def total(self) -> int:
        """Lines that were checked."""
        return len(self.lines)

    @property
    def usable(self) -> int:
        """Lines that are usable."""
        return self.lines.count(1)

    def usable_array(self) -> Any:
        """Return whether each line is usable: bool [total]."""
        import numpy as np

        return np.frombuffer(bytes(self.lines), bool)


def by_reason(counts: Mapping[str, int]) -> str:
    """Return ``3 too_long, 1 missing_image``: the most frequent first."""
    return ", ".join(f"{count:,} {reason}" for reason, count in Counter(counts).most_common())


@dataclass
class PreflightReport:
    """What preflight found in the label files or the LMDBs of ``Train`` or ``Eval``.

    Attributes:
        data_dir: folder of relative image paths, or of the LMDBs.
        rules: what makes a sample usable.
        delimiter: of the label files.
        ds_width: the lines have width and height.
        examples: unusable samples of each reason that are kept by name.
        is_lmdb: the samples are in LMDBs.
        files: the report on each label file or LMDB.
        counts: unusable samples by reason; exact.
        unusable_samples: the first ``examples`` of each reason.
        misfits: usable samples whose labels need more frames than T; 0 where such a sample is unusable.
        misfit_examples: the first ``examples`` of them.
        mapped: usable samples with characters that become the unknown symbol, or are dropped.
        plain: usable samples whose labels have a digit or an ASCII letter.
        longest, longest_at: characters of the longest label, usable or not; its file and line.
        longest_usable: characters of the longest usable label.
        most_frames, most_frames_at: frames that the most demanding label needs, usable or not; its file and line.
        stopped: the check ended before the last sample, because its time was over.
        looked_at: images in which text was looked for, spread over the data.
        unseen: those of them in which nothing can be read.
        illegible: usable samples whose label is :data:`ILLEGIBLE`.
    warnings: of what the samples show, with which the run can start.
    """

    data_dir: Path
    rules: SampleRules
    delimiter: str = "\t"
    ds_width: bool = False
    examples: int = 20
    is_lmdb: bool = False
    files: list[FileReport] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unusable_samples: list[UnusableSample] = field(default_factory=list)
    misfits: int = 0
    misfit_examples: list[UnusableSample] = field(default_factory=list)
    mapped: int = 0
    plain: int = 0
    longest: int = 0
    longest_at: tuple[Path, int] | None = None
    most_frames: int = 0
    most_frames_at: tuple[Path, int] | None = None
    stopped: bool = False
    longest_usable: int = 0
    looked_at: int = 0
    unseen: list[UnusableSample] = field(default_factory=list)
    illegible: int = 0
    warnings: list[Issue] = field(default_factory=list)

    def add(self, line: LabelLine, issue: SampleIssue | None) -> None:
        """Count the next sample of the last file; ``issue`` is None if it is usable."""
        file = self.files[-1]
        file.altered |= line.altered
        if issue is None:
            self.illegible += line.label == ILLEGIBLE
            self.mapped += self.rules.has_unknown(line.label)
            if (misfit := self.rules.misfit(line)) is not None:
                self.misfits += 1
                if self.misfits <= self.examples:
                    self.misfit_examples.append(UnusableSample(file.path, line.number, *misfit))
            self.longest_usable = max(self.longest_usable, len(line.label))
        else:
            self.counts[issue.reason] += 1
            if self.counts[issue.reason] <= self.examples:
                self.unusable_samples.append(UnusableSample(file.path, line.number, *issue))
        file.lines.append(issue is None)
        self._measure(line.label, file.total)

    def add_plain(self, labels: Sequence[str]) -> None:
        """Count the next samples of the last file, usable ones whose labels are encoded as they stand but for case."""
        first = self.files[-1].total + 1
        longest = max(map(len, labels))
        self.illegible += labels.count(ILLEGIBLE)
        self.files[-1].lines.extend(b"\1" * len(labels))
        self.longest_usable = max(self.longest_usable, longest)
        needed = frames_needed_each(labels, self.rules.encoded("".join(labels)))
        if longest > self.longest or needed.max() > self.most_frames:
            for number, label in enumerate(labels, first):
                self._measure(label, number)

    def _measure(self, label: str, number: int) -> None:
        """Compare a label of the last file with the longest and the most demanding one."""
        length = len(label)
        if length > self.longest:
            self.longest = length
            self.longest_at = (self.files[-1].path, number)
        if 2 * length - 1 > self.most_frames:  # as if all its characters were the same
            needed = frames_needed(self.rules.encoded(label))
            if needed > self.most_frames:
                self.most_frames = needed
                self.most_frames_at = (self.files[-1].path, number)

    def add_seen(self, file: Path, line: LabelLine, issue: SampleIssue | None) -> None:
        """Count an image that was looked at; ``issue`` is None if something can be read in it."""
        self.looked_at += 1
        if issue is not None:
            self.unseen.append(UnusableSample(file, line.number, *issue))

    @property
    def total(self) -> int:
        """Samples that were checked."""
        return sum(file.total for file in self.files)

    @property
    def unusable_count(self) -> int:
        """Samples that are unusable."""
        return self.counts.total()

    @property
    def usable(self) -> int:
        """Samples that are usable."""
        return self.total - self.unusable_count

    @property
    def problem_counts(self) -> dict[str, int]:
        """Unusable samples and misfits by reason: what counts against ``Global.max_unusable``."""
        return {**self.counts, "too_long_for_frames": self.misfits} if self.misfits else self.counts

    @property
    def problem_count(self) -> int:
        """Samples that count against ``Global.max_unusable``."""
        return self.unusable_count + self.misfits

    def place(self, file: Path, number: int) -> str:
        """Return how messages name a line (``list.txt:3``) or a sample of an LMDB (``folder#3``)."""
        return f"{file}{'#' if self.is_lmdb else ':'}{number}"

    def summary(self) -> str:
        """Return one sentence: how many samples are usable, how many are skipped and why, and the first of them."""
        total = f"{self.total:,} samples"
        if self.stopped:
            total = f"the first {total} (time was over before the last)"
        notes = f"; {self.misfits:,} with labels that need more frames than CTC has" if self.misfits else ""
        if self.mapped and self.rules.charset is not None:
            symbol = self.rules.charset.unknown_symbol
            notes += f"; {self.mapped:,} with characters {f'mapped to {symbol!r}' if symbol else 'that are dropped'}"
        if self.illegible:
            notes += (
                f"; {self.illegible:,} with the label {ILLEGIBLE}, which means illegible: remove these lines"
            )
        if not self.unusable_count:
            return f"{total}, all usable{notes}"
        first = self.unusable_samples[0]
        fix = ""
        if "too_long" in self.counts:
            fix = f"; `Global.max_text_length: {self.longest + self.rules.reserved}` keeps those that are too long"
        return (
            f"{self.usable:,} of {total} usable{notes}; skipped: {by_reason(self.counts)} "
            f"(first {self.place(first.file, first.line)}: {first.detail}){fix}"
        )

    def frames_summary(self) -> str:
        """Return T, the frames that the most demanding label needs, and their ratio; empty if T is not known."""
        limit = self.rules.frames
        if limit is None or not self.most_frames:
            return ""
        to = ""
        ratio = f" (T is {limit.frames / self.most_frames:.2g} times that)"
        most = max((limit.by_ratio or {}).values(), default=limit.frames)
        if most > limit.frames:
            to = f" to {most}"
            ratio = ""
        return (
            f"CTC has T = {limit.frames}{to} frames{' by the width of an image' if to else ''}; the longest label has "
            f"{self.longest} characters, the most demanding one needs {self.most_frames} frames{ratio}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``preflight.json``: counts, the longest label, the samples kept by name."""
        return {
            "total": self.total,
            "usable": self.usable,
            "counts": dict(self.counts.most_common()),
            "files": [{"path": str(f.path), "total": f.total, "usable": f.usable} for f in self.files],
            "data_dir": str(self.data_dir),
            "longest_label": {"characters": self.longest, "at": _at(self.longest_at)},
            "most_frames": {
                "needed": self.most_frames,
                "of": None if self.rules.frames is None else self.rules.frames.frames,
                "at": _at(self.most_frames_at),
            },
            "mapped": self.mapped,
            "misfits": self.misfits,
            "examples_per_reason": self.examples,
            "rejected": [sample.to_json() for sample in self.unusable_samples],
            "misfit_examples": [sample.to_json() for sample in self.misfit_examples],
        }

    def write_usable(self, folder: str | Path) -> list[Path]:
        """Return label files with the usable lines only; one for each source, as ``ratio_list`` requires.

        A file whose lines are all usable as they are is returned itself; otherwise a copy in
        ``folder``, without a byte order mark and with ``\\n`` line ends.

        Raises:
            DataError: a label file has changed since it was checked.
        """
        width = len(str(len(self.files) - 1))
        return [
            self._copy(file, Path(folder) / f"{index:0{width}d}_{file.path.name}")
            if file.usable < file.total or file.altered
            else file.path
            for index, file in enumerate(self.files)
        ]

    def _copy(self, file: FileReport, copy: Path) -> Path:
        """Write the usable lines of ``file`` to ``copy``, which is returned."""
        count = 0
        with atomic_writer(copy) as stream:
            for line in read_label_file(file.path, self.delimiter, ds_width=self.ds_width):
                count = line.number
                if count > file.total:
                    break
                if file.lines[count - 1]:
                    stream.write(line.content + b"\n")
            if count != file.total:
                now = "more" if count > file.total else count
                raise DataError(
                    f"{file.path} has changed while it was read: {file.total} lines before, now {now}. Fix: start "
                    "again when it is complete.",
                    code="file_changed",
                )
        return copy


def _at(place: tuple[Path, int] | None) -> dict[str, Any] | None:
    return None if place is None else {"file": str(place[0]), "line": place[1]}
