"""Find images that Eval shares with Train, and equal images with other labels; imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from posixpath import join, realpath, split
from typing import Any

import numpy as np
from tqdm import tqdm

from ppocr_ext.data.further_columns import EXAMPLES
from ppocr_ext.data.preflight import BAR
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_sources import SampleSource, open_sources

MOST_READ = 20_000  # samples whose images a run compares by content
_ROW = np.dtype([("image", "i8"), ("label", "i8"), ("number", "u4")])  # hashes, and the number of the sample
Place = tuple[str, str, str]  # of a sample in its file, its image, its label
EqualImages = tuple[
    int, list[tuple[Place, Place]]
]  # count; the first of them, each with the earlier sample before it


def compare_images(reports: Sequence[PreflightReport], by_content: bool) -> dict[str, EqualImages]:
    """Return the usable samples whose image an earlier sample has, by kind; a kind without samples is left out.

    Images are sorted by a hash, so memory grows by some 60 bytes for each sample.

    Args:
        reports: of Train, and of Eval if that is checked; one sample at least is usable.
        by_content: compare the contents of image files; False: their paths.

    Returns:
        ``trained_samples``: those of Eval with an image of Train; ``conflicting_labels``: those with another label
        than the first one; ``repeated_samples``: those with the label of one in another file of the same section.

    Raises:
        DataError: label files or LMDBs cannot be read any more.
    """
    with tqdm(total=sum(report.usable for report in reports), desc="images", **BAR) as bar:
        rows = np.fromiter(_rows(reports, by_content, bar), _ROW)
    rows = rows[
        np.argsort(rows["image"], kind="stable")
    ]  # those of one image stay in the order of the samples
    starts = np.flatnonzero(np.append(True, rows["image"][1:] != rows["image"][:-1]))
    first = np.repeat(
        starts, np.diff(np.append(starts, len(rows)))
    )  # of each row that of the first with its image
    numbers, differs = rows["number"], rows["label"] != rows["label"][first]
    ends = np.cumsum([file.total for report in reports for file in report.files])
    file = np.searchsorted(ends, numbers, "right")
    in_train = file < len(reports[0].files)
    kinds = {
        "trained_samples": in_train[first] & ~in_train,
        "conflicting_labels": differs,
        "repeated_samples": (file != file[first]) & (in_train == in_train[first]) & ~differs,
    }
    return {
        kind: _equal_images(reports, numbers[mask], numbers[first[mask]])
        for kind, mask in kinds.items()
        if mask.any()
    }


def _rows(reports: Sequence[PreflightReport], by_content: bool, bar: tqdm) -> Iterator[tuple[int, int, int]]:
    """Yield a row for each image of a usable sample."""
    real_path = lru_cache(10_000)(realpath)  # of folders
    for number, (report, source, is_usable, at, item) in enumerate(_samples(reports)):
        if not is_usable:
            continue
        line = source.line(at, item)
        for name in line.images:
            folder, file = split(join(source.path if report.is_lmdb else report.data_dir, name))
            image = hash(f"{real_path(folder)}/{file}")
            if by_content:
                with suppress(OSError):  # gone since it was checked
                    content = source.image(line._replace(images=(name,))) or b""
                    image = int.from_bytes(blake2b(content, digest_size=8).digest(), "little", signed=True)
            yield image, hash(report.rules.encoded(line.label)), number
        bar.update()


def _samples(
    reports: Sequence[PreflightReport],
) -> Iterator[tuple[PreflightReport, SampleSource, int, int, Any]]:
    """Yield the report, source, usability, number there and item of each sample that was checked."""
    for report in reports:
        sources = open_sources(report, [file.path for file in report.files])
        for file, source in zip(report.files, sources, strict=False):  # of LMDBs, the last may not be checked
            for at, (is_usable, item) in enumerate(zip(file.lines, source.items(), strict=False), start=1):
                yield report, source, is_usable, at, item


def _equal_images(reports: Sequence[PreflightReport], numbers: Any, firsts: Any) -> EqualImages:
    """Return samples by their ``numbers``, and by those of the first ones with their images."""
    order = np.argsort(numbers, kind="stable")[:EXAMPLES]
    pairs = list(zip(firsts[order].tolist(), numbers[order].tolist(), strict=True))
    wanted, places = {number for pair in pairs for number in pair}, dict[int, Place]()
    for number, (report, source, _, at, item) in enumerate(_samples(reports)):
        if number in wanted:
            line = source.line(at, item)
            places[number] = report.place(source.path, at), ", ".join(line.images), line.label
    return len(np.unique(numbers)), [(places[first], places[other]) for first, other in pairs]
