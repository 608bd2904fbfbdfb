"""Record what preflight found, copy the usable lines of label files, and limit the unusable samples; no Paddle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, NamedTuple

from ppocr_ext.charset import PLAIN
from ppocr_ext.data.issue_rules import Tally
from ppocr_ext.data.label_file import LabelLine, read_label_file
from ppocr_ext.data.sample_rules import (
    SampleIssue,
    SampleRules,
    frames_needed,
    frames_needed_each,
)
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.issues import Issue
from ppocr_ext.text_direction import order_votes

EXAMPLES = 3  # that a warning names
ILLEGIBLE = "###"  # in PPOCRLabel and public data sets, the label of a text that nobody can read
_IS_NUMBER = re.compile(rb" *[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)? *|").fullmatch  # or empty


class UnusableSample(NamedTuple):
    """A sample that is unusable, or a misfit: where it is, and why.

    Attributes:
        file: its label file, or the folder of its LMDB.
        line: its line there, or its index in the LMDB, from 1.
        reason, detail: a key of :data:`ppocr_ext.data.issue_rules.RULES`, and the details.
    """

    file: Path
    line: int
    reason: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**self._asdict(), "file": str(self.file)}


@dataclass
class FurtherColumns(Tally):
    """The columns after the label, which PaddleOCR ignores, in the usable lines of one label file.

    Attributes:
        kinds: the numbers of columns of numbers that lines have; -1 for a line with a column of text.
        counts: number of lines by code. ``quoted_label``: the label begins with a quotation mark, as in CSV (with a tab
            as delimiter, the mark is text). ``cut_label``: another line has text after the label.
        examples: code, line number, label and ignored text of the first lines of each code.
    """

    most: int = EXAMPLES
    kinds: set[int] = field(default_factory=set)

    def add(self, first: int, lines: Sequence[bytes], usable: Sequence[int], delimiter: bytes) -> None:
        """Take the next lines with their ends, from number ``first`` on, and whether each is usable."""
        text = b"".join(lines)
        quote = b'"' if delimiter != b"\t" else b"\n"  # never found, since no label contains a line end
        if text.count(delimiter) == len(lines) and delimiter + quote not in text and 0 not in usable:
            self.kinds.add(0)  # no line has a further column, so they are not split one by one
            return
        for number, line in compress(enumerate(lines, first), usable):
            _, label, *rest = line.rstrip(b"\r\n").split(delimiter)
            self.kinds.add(len(rest) if all(map(_IS_NUMBER, rest)) else -1)
            code = "quoted_label" if label.startswith(quote) and label != quote else "cut_label"
            if code == "quoted_label" or any(rest):
                self.count(code, number, label.decode(), delimiter.join(rest).decode())


@dataclass
class FileReport:
    """Which lines of one label file (samples of one LMDB) are usable.

    Attributes:
        path: the label file, or the folder of the LMDB.
        digest: the digest of all its lines (labels of an LMDB), hexadecimal.
        altered: line ends or a byte order mark were removed from a line.
        lines: a byte for each line, 1 if it is usable and 0 if not.
        further: the columns after the label.
    """

    path: Path
    digest: str = ""
    altered: bool = False
    lines: bytearray = field(default_factory=bytearray, repr=False)
    further: FurtherColumns = field(default_factory=FurtherColumns)

    @property
    def total(self) -> int:
        """Return how many lines were checked."""
        return len(self.lines)

    @property
    def usable(self) -> int:
        """Return how many lines are usable."""
        return self.lines.count(1)


def by_reason(counts: Mapping[str, int]) -> str:
    """Return ``3 too_long, 1 missing_image``: the most frequent first."""
    return ", ".join(f"{count:,} {reason}" for reason, count in Counter(counts).most_common())


@dataclass
class PreflightReport:
    """What preflight found in the label files or the LMDBs of ``Train`` or ``Eval``.

    Attributes:
        data_dir: folder of relative image paths, or of the LMDBs.
        rules: what makes a sample usable.
        delimiter: the delimiter of the label files.
        ds_width: the lines have width and height.
        examples: unusable samples of each reason that are kept by name.
        is_lmdb: the samples are in LMDBs.
        files: the report on each label file or LMDB.
        counts: unusable samples by reason; exact.
        unusable_samples: the first ``examples`` of each reason.
        misfits: usable samples whose labels need more frames than T; 0 if they count as unusable.
        misfit_examples: the first ``examples`` of them.
        mapped: usable samples with characters that become the unknown symbol, or are dropped.
        other_case: samples with unknown characters that the dictionary has in the other case, and the first label.
        plain: usable samples whose labels have a digit or an ASCII letter.
        longest, longest_at: number of characters of the longest label of all samples, and its file and line.
        longest_usable: characters of the longest usable label.
        most_frames, most_frames_at: the most frames that a label of any sample needs, and its file and line.
        stopped: the check ended before the last sample, because its time was over.
        looked_at: images that were checked for visible text, spread over the data.
        unseen: the samples among them in which nothing can be read, or that have another shape than their lines say.
        illegible: usable samples whose label is :data:`ILLEGIBLE`.
        characters: those of the usable labels, as they are encoded.
        texts: labels of the usable samples, until there are two.
        orders: words of usable samples whose letters show in which order they are stored, by order.
        warnings: issues of the samples that do not keep the run from starting.
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
    other_case: tuple[int, str] = (0, "")
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
    characters: set[str] = field(default_factory=set, repr=False)
    texts: set[str] = field(default_factory=set, repr=False)
    orders: Counter[str] = field(default_factory=Counter)
    warnings: list[Issue] = field(default_factory=list)

    def add(self, line: LabelLine, issue: SampleIssue | None) -> None:
        """Count the next sample of the last file; ``issue`` is None if it is usable."""
        file = self.files[-1]
        file.altered |= line.altered
        charset = self.rules.charset
        if charset is not None and charset.has_other_case(line.label):
            self.other_case = self.other_case[0] + 1, self.other_case[1] or line.label
        if issue is None:
            self.mapped += bool(charset and charset.unknown(line.label))
            if (misfit := self.rules.misfit(line)) is not None:
                self.misfits += 1
                if self.misfits <= self.examples:
                    self.misfit_examples.append(UnusableSample(file.path, line.number, *misfit))
            self._add_usable([line.label])
        else:
            self.counts[issue.reason] += 1
            if self.counts[issue.reason] <= self.examples:
                self.unusable_samples.append(UnusableSample(file.path, line.number, *issue))
            file.lines.append(0)
        self._measure(line.label, file.total)

    def add_plain(self, labels: Sequence[str]) -> None:
        """Count the next samples of the last file, all of them usable and with labels that are encoded as they are."""
        first = self.files[-1].total + 1
        needed = frames_needed_each(labels, self._add_usable(labels))
        if max(map(len, labels)) > self.longest or needed.max() > self.most_frames:
            for number, label in enumerate(labels, first):
                self._measure(label, number)

    def _add_usable(self, labels: Sequence[str]) -> str:
        """Count the next samples of the last file, all of them usable; return their labels as they are encoded."""
        self.files[-1].lines.extend(b"\1" * len(labels))
        self.illegible += labels.count(ILLEGIBLE)
        self.plain += sum(map(bool, map(PLAIN.search, labels)))
        self.longest_usable = max(self.longest_usable, *map(len, labels))
        if len(self.texts) < 2:
            self.texts = set(islice(dict.fromkeys((*self.texts, *labels)), 2))
        if self.rules.charset is not None and self.rules.charset.is_right_to_left:
            self.orders.update(chain.from_iterable(map(order_votes, labels)))
        encoded = self.rules.encoded("".join(labels))
        self.characters.update(encoded)
        return encoded

    def _measure(self, label: str, number: int) -> None:
        """Compare a label of the last file with the longest and the most demanding one."""
        length = len(label)
        if length > self.longest:
            self.longest = length
            self.longest_at = (self.files[-1].path, number)
        if 2 * length - 1 > self.most_frames:  # the most frames that a label of this length can need
            needed = frames_needed(self.rules.encoded(label))
            if needed > self.most_frames:
                self.most_frames = needed
                self.most_frames_at = (self.files[-1].path, number)

    @property
    def key(self) -> str:
        """Return the key of the data in the section of the config."""
        return "dataset.data_dir" if self.is_lmdb else "dataset.label_file_list"

    @property
    def total(self) -> int:
        """Return how many samples were checked."""
        return sum(file.total for file in self.files)

    @property
    def unusable_count(self) -> int:
        """Return how many samples are unusable."""
        return self.counts.total()

    @property
    def usable(self) -> int:
        """Return how many samples are usable."""
        return self.total - self.unusable_count

    @property
    def problem_counts(self) -> dict[str, int]:
        """Return the counts of unusable samples and misfits, which ``Global.max_unusable`` limits, by reason."""
        return {**self.counts, "too_long_for_frames": self.misfits} if self.misfits else self.counts

    @property
    def problem_count(self) -> int:
        """Return how many samples count against ``Global.max_unusable``."""
        return self.unusable_count + self.misfits

    def place(self, file: Path, number: int) -> str:
        """Return how messages name a line (``list.txt:3``) or a sample of an LMDB (``folder#3``)."""
        return f"{file}{'#' if self.is_lmdb else ':'}{number}"

    def text(self, sample: UnusableSample) -> str:
        """Return place, reason and details of an unusable sample."""
        return f"{self.place(sample.file, sample.line)}: {sample.reason}: {sample.detail}"

    def summary(self) -> str:
        """Return a sentence: how many samples are usable, how many are skipped and why, and the first of these."""
        total = f"{self.total:,} samples"
        if self.stopped:
            total = f"the first {total} (the time limit was reached)"
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
        """Return the length of the longest label, the frames that labels need, and T; empty if T is not known."""
        limit = self.rules.frames
        if limit is None or not self.most_frames:
            return ""
        most = max((limit.by_ratio or {}).values(), default=limit.frames)
        frames = (
            f"{limit.frames} to {most}, by the width of an image" if most > limit.frames else limit.frames
        )
        return f"labels of up to {self.longest} characters need up to {self.most_frames} frames; CTC has T = {frames}"

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
        """Return label files with only the usable lines, one for each source, as ``ratio_list`` requires.

        A file is returned itself if all its lines are usable without a change. Otherwise its copy in ``folder`` is
        returned, without a byte order mark and with ``\\n`` line ends.

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
