"""Compare the images of all samples of ``Train`` and ``Eval``, and warn of those that share one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from posixpath import join, realpath, split
from typing import Any

import numpy as np
from tqdm import tqdm

from ppocr_ext.config import Config
from ppocr_ext.data.preflight import BAR, SampleSource, open_sources
from ppocr_ext.data.preflight_report import EXAMPLES, PreflightReport
from ppocr_ext.issues import Issue

SHOWN = 40  # characters of a label in a message
_SHARED = {  # code -> config path, and what is wrong
    "trained_samples": (
        "Eval.dataset",
        "have an image of Train: the accuracy says nothing about new images. Fix: evaluate on other samples.",
    ),
    "conflicting_labels": (
        "",
        "have the image of an earlier sample, but another label. Fix: correct the labels.",
    ),
    "repeated_samples": (
        "",
        "have image and label of a sample in another file: they count twice. Fix: name a label file once.",
    ),
}
MOST_READ = 20_000  # samples whose images a run compares by content
_ROW = np.dtype([("image", "i8"), ("label", "i8"), ("number", "u4")])  # hashes, and the number of the sample
Place = tuple[str, str, str]  # (file and line of a sample, its image, its label)
# How many samples there are, and the first of them as pairs (earlier sample, this sample).
EqualImages = tuple[int, list[tuple[Place, Place]]]


def data_warning(config: Config, code: str, path: str, message: str, shown: str = "") -> Issue:
    """Return a warning about the value at ``path``, under the name ``shown`` if that is given."""
    where = "" if not path or config.node(path) is None else config.where(path)
    return Issue(code, "warning", shown or path, where, message)


def shared_image_warnings(
    config: Config, found: Mapping[str, PreflightReport], report: Callable[[str], None]
) -> Iterator[Issue]:
    """Yield a warning for each kind of samples that share an image with another sample.

    Args:
        config: resolved.
        found: reports on ``Train``, and on ``Eval`` if that is checked.
        report: called with a note if the contents of the images are not compared.
    """
    reports = [found[mode] for mode in ("Train", "Eval") if mode in found]
    by_content = sum(report.usable for report in reports) <= MOST_READ and not any(
        each.stopped for each in reports
    )
    if not by_content:
        report(
            f"images are compared by path; by content only if all of at most {MOST_READ:,} samples are checked"
        )
    for code, (count, examples) in compare_images(reports, by_content).items():
        path, text = _SHARED[code]
        usable = found[path.partition(".")[0]].usable if path else sum(report.usable for report in reports)
        message = f"{count:,} of {usable:,} samples ({100 * count / usable:.3g} %) {text}"
        for (first, image, label), (place, own, other) in examples:
            message += f"\n  {place}: {own} {other[:SHOWN]!r}; {first}: {image} {label[:SHOWN]!r}"
        yield data_warning(config, code, path, message)


def compare_images(reports: Sequence[PreflightReport], by_content: bool) -> dict[str, EqualImages]:
    """Return the usable samples that share an image with an earlier one, by kind; kinds without samples are left out.

    Images are sorted by a hash, so each sample needs about 60 bytes of memory.

    Args:
        reports: the reports of Train, and of Eval if that is checked; at least one sample is usable.
        by_content: compare the contents of image files. With False, their paths are compared.

    Returns:
        ``trained_samples``: samples of Eval with an image of Train; ``conflicting_labels``: samples with another label
        than the first one with this image; ``repeated_samples``: samples with the same label, in another file of the
        same section.

    Raises:
        DataError: label files or LMDBs cannot be read anymore.
    """
    with tqdm(total=sum(report.usable for report in reports), desc="images", **BAR) as bar:
        rows = np.fromiter(_rows(reports, by_content, bar), _ROW)
    # A stable sort keeps the samples of one image in their order.
    rows = rows[np.argsort(rows["image"], kind="stable")]
    starts = np.flatnonzero(np.append(True, rows["image"][1:] != rows["image"][:-1]))
    # For each row, the index of the first row with the same image.
    first = np.repeat(starts, np.diff(np.append(starts, len(rows))))
    numbers = rows["number"]
    differs = rows["label"] != rows["label"][first]
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
    # Called for folders only: images share a few, and looking one up is slow.
    real_path = lru_cache(10_000)(realpath)
    for number, (report, source, is_usable, at, item) in enumerate(_samples(reports)):
        if not is_usable:
            continue
        line = source.line(at, item)
        for name in line.images:
            folder, file = split(join(source.path if report.is_lmdb else report.data_dir, name))
            image = hash(f"{real_path(folder)}/{file}")
            if by_content:
                with suppress(OSError):  # the image was removed after the check
                    content = source.image(line._replace(images=(name,))) or b""
                    image = int.from_bytes(blake2b(content, digest_size=8).digest(), "little", signed=True)
            yield image, hash(report.rules.encoded(line.label)), number
        bar.update()


def _samples(
    reports: Sequence[PreflightReport],
) -> Iterator[tuple[PreflightReport, SampleSource, int, int, Any]]:
    """Yield (report, source, is usable, number in the source, item) of each checked sample."""
    for report in reports:
        sources = open_sources(report, [file.path for file in report.files])
        # Not strict: the check may have stopped before the last LMDB.
        for file, source in zip(report.files, sources, strict=False):
            for at, (is_usable, item) in enumerate(zip(file.lines, source.items(), strict=False), start=1):
                yield report, source, is_usable, at, item


def _equal_images(reports: Sequence[PreflightReport], numbers: Any, firsts: Any) -> EqualImages:
    """Return the samples ``numbers`` with the first samples that have their images, ``firsts``."""
    order = np.argsort(numbers, kind="stable")[:EXAMPLES]
    pairs = list(zip(firsts[order].tolist(), numbers[order].tolist(), strict=True))
    wanted = {number for pair in pairs for number in pair}
    places = dict[int, Place]()
    for number, (report, source, _, at, item) in enumerate(_samples(reports)):
        if number in wanted:
            line = source.line(at, item)
            places[number] = report.place(source.path, at), ", ".join(line.images), line.label
    return len(np.unique(numbers)), [(places[first], places[other]) for first, other in pairs]
