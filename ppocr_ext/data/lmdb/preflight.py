"""A look at every sample of an LMDB before training, by the rules for label files; imports no Paddle."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from ppocr_ext.charset import Charset
from ppocr_ext.data.image_check import ImageCheck, content_fault
from ppocr_ext.data.label_file import LabelLine
from ppocr_ext.data.lmdb.reader import LmdbSet, open_sets
from ppocr_ext.data.preflight_report import PreflightReport, UnusableSample
from ppocr_ext.data.sample_rules import FrameLimit, Gtc, LabelRules, UnknownChar

_CHUNK = 256  # samples held in memory at a time
_Fault = tuple[str, str]


def check_lmdb(
    data_dir: str | Path,
    charset: Charset,
    max_text_length: int,
    *,
    gtc: Gtc | None = None,
    frames: FrameLimit | None = None,
    image_check: ImageCheck = "header",
    unknown_char: UnknownChar = "drop_line",
    examples: int = 20,
    seconds: float | None = None,
) -> PreflightReport:
    """Look at every sample once and say which can be used.

    A file of the result is the folder of an LMDB, a line of it the index of a sample, from 1. Memory
    does not grow with the data but for one bit a sample. Arguments are those of
    :func:`ppocr_ext.data.preflight.check`.

    Raises:
        DataError: there is no LMDB, or one cannot be read.
    """
    rules = LabelRules(charset, max_text_length, gtc, frames, unknown_char)
    result = PreflightReport(
        Path(data_dir), rules.reserved, rules.reserved_for, examples=examples, frames=frames, unit="sample"
    )
    sets = open_sets(data_dir)
    end = math.inf if seconds is None else time.monotonic() + seconds
    bar = tqdm(total=sum(s.count for s in sets), desc="samples", leave=False, disable=None, delay=1)
    with bar, ThreadPoolExecutor(4) as pool:
        for each in sets:
            _look_at(each, result, rules, image_check, pool, bar, end)
    return result


def _look_at(
    lmdb_set: LmdbSet,
    result: PreflightReport,
    rules: LabelRules,
    image_check: ImageCheck,
    pool: ThreadPoolExecutor,
    bar: tqdm,
    end: float,
) -> None:
    findings = result.begin_file(lmdb_set.path)
    samples = _samples(lmdb_set, rules)
    while chunk := list(islice(samples, _CHUNK)):
        if result.total and time.monotonic() > end:
            result.stopped = True
            return
        faults = pool.map(lambda sample: _fault(result, lmdb_set, sample, image_check), chunk)
        for (line, _, _), fault in zip(chunk, faults, strict=True):
            findings.add(usable=fault is None, altered=False)
            result.note_label(line, lmdb_set.path, rules, usable=fault is None)
            if fault is not None:
                result.reject(UnusableSample(lmdb_set.path, line.number, *fault))
        bar.update(len(chunk))


_Sample = tuple[LabelLine, "_Fault | None", "bytes | None"]


def _samples(lmdb_set: LmdbSet, rules: LabelRules) -> Iterator[_Sample]:
    """Label, fault of the label, and image where the label is good; read here, in one thread."""
    for index in range(1, lmdb_set.count + 1):
        line = _line(index, lmdb_set.label(index))
        fault = rules.fault(line)
        yield line, fault, lmdb_set.image(index) if fault is None else None


def _line(index: int, label: bytes | None) -> LabelLine:
    name = f"image-{index:09d}"
    if label is None:
        return LabelLine(index, b"", fault=f"there is no label-{index:09d}")
    try:
        return LabelLine(index, b"", (name,), label.decode("utf-8"))
    except UnicodeDecodeError as error:
        wrong = f"0x{label[error.start]:02x} at offset {error.start}"
        return LabelLine(index, b"", fault=f"the label is not UTF-8: byte {wrong}")


def _fault(
    result: PreflightReport, lmdb_set: LmdbSet, sample: _Sample, image_check: ImageCheck
) -> _Fault | None:
    line, fault, image = sample
    if fault is not None:
        return fault
    if image is None:
        return "missing_image", f"there is no {line.images[0]}"
    return content_fault(image, line.images[0], image_check)
