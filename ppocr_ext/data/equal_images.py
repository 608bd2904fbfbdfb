"""Find the samples that share an image, by its path, its content or any other key; no Paddle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count
from posixpath import join, realpath, split
from struct import Struct
from typing import Any

import numpy as np
from tqdm import tqdm

from ppocr_ext.data.label_file import LabelLine
from ppocr_ext.data.preflight import BAR, SampleSource, open_sources
from ppocr_ext.data.preflight_report import EXAMPLES, PreflightReport

_BLOCK = 1 << 12  # rows that are compared at a time
# Hash of the image, number of the sample, hash of its label; the order of the bytes is that of the numbers.
_ROW = Struct(">qII")
_FIELDS = np.dtype([("image", ">i8"), ("number", ">u4"), ("label", ">u4")])
Place = tuple[str, str, str]  # (file and line of a sample, its image, its label)
# How many samples there are, and the first of them as pairs (earlier sample, this sample).
SharedImages = tuple[int, list[tuple[Place, Place]]]


def equal_images(samples: Iterable[tuple[Hashable, str, int]]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the samples that have the image of an earlier one, in blocks.

    Rows are sorted where they stand: one takes 16 bytes, and up to 2 more while they are gathered.

    Args:
        samples: what two equal images have in common, the label, and the number of the sample. A sample of several
            images has a row for each.

    Yields:
        Three arrays: numbers of samples, that of the first sample with the same image, and whether it has the same
        label.
    """
    content = bytearray()
    for image, label, number in samples:
        content += _ROW.pack(hash(image), number, hash(label) & 0xFFFFFFFF)
    rows = np.frombuffer(content, _FIELDS)
    rows.view(f"S{_ROW.size}").sort()
    start = 0
    for at in range(1, len(rows), _BLOCK):
        places = np.arange(at, min(at + _BLOCK, len(rows)))
        again = rows["image"][places] == rows["image"][places - 1]
        first = np.maximum.accumulate(np.where(again, start, places))
        start = first[-1]
        later, earlier = rows[places[again]], rows[first[again]]
        yield later["number"], earlier["number"], later["label"] == earlier["label"]


def compare_images(
    reports: Sequence[PreflightReport], by_content: bool, trained: int = 1
) -> dict[str, SharedImages]:
    """Return the usable samples that share an image with an earlier one, by kind; kinds without samples are left out.

    Args:
        reports: the reports of Train, and of Eval if that is checked; at least one sample is usable.
        by_content: compare the contents of image files. With False, their paths are compared.
        trained: how many of the reports, from the first, are of samples that train.

    Returns:
        ``trained_samples``: samples of Eval with an image of Train; ``conflicting_labels``: samples with another label
        than the first one with this image; ``repeated_samples``: samples with the same label, in another file of the
        same section.

    Raises:
        DataError: label files or LMDBs cannot be read anymore.
    """
    evaluated = sum(each.total for each in reports[:trained])  # the first number of a sample of Eval
    ends = np.cumsum([file.total for report in reports for file in report.files])
    are_shared: defaultdict[str, Any] = defaultdict(lambda: np.zeros(ends[-1], bool))
    examples: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for later, first, same in equal_images(_images(reports, by_content)):
        leaked = (first < evaluated) & (evaluated <= later)
        is_elsewhere = np.digitize(first, ends) != np.digitize(later, ends)
        for kind, mask in (
            ("trained_samples", leaked),
            ("conflicting_labels", ~same),
            ("repeated_samples", same & ~leaked & is_elsewhere),
        ):
            are_shared[kind][later[mask]] = True
            pairs = zip(later[mask], first[mask], strict=True)
            examples[kind] = sorted(chain(examples[kind], pairs))[:EXAMPLES]
    wanted = {number for pair in chain.from_iterable(examples.values()) for number in pair}
    places = {
        number: (report.place(source.path, line.number), ", ".join(line.images), line.label)
        for number, report, source, line in (_lines(reports, wanted) if wanted else ())
    }
    return {
        kind: (int(are_shared[kind].sum()), [(places[first], places[later]) for later, first in pairs])
        for kind, pairs in examples.items()
        if pairs
    }


def _images(reports: Sequence[PreflightReport], by_content: bool) -> Iterator[tuple[int, str, int]]:
    """Yield the path or the content of each image of the usable samples, as a hash, with label and number."""
    # Called for folders only: images share a few, and looking one up is slow.
    real_path = lru_cache(10_000)(realpath)
    lines = tqdm(_lines(reports), "images", sum(report.usable for report in reports), **BAR)
    for number, report, source, line in lines:
        for name in line.images:
            folder, file = split(join(source.path if report.is_lmdb else report.data_dir, name))
            image = hash(f"{real_path(folder)}/{file}")
            if by_content:
                content = source.read(line, name)
                # else the image was removed after the check
                image = hash(content) if isinstance(content, bytes) else image
            yield image, report.rules.encoded(line.label), number


def _lines(
    reports: Sequence[PreflightReport], wanted: Container[int] | None = None
) -> Iterator[tuple[int, PreflightReport, SampleSource, LabelLine]]:
    """Yield number, report, source and line of the usable samples, or of those with the ``wanted`` numbers."""
    numbers = count()
    for report in reports:
        sources = open_sources(report, [file.path for file in report.files])
        # Not strict: the check may have stopped before the last LMDB.
        for file, source in zip(report.files, sources, strict=False):
            for at, is_usable, item, number in zip(
                count(1), file.lines, source.items(), numbers, strict=False
            ):
                if is_usable and (wanted is None or number in wanted):
                    yield number, report, source, source.line(at, item)
