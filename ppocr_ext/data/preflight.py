"""A look at every line of the label files before training: what cannot be used is counted and named.

PaddleOCR replaces such a line by another one without a word. Here it is left out. Imports no Paddle.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from posixpath import abspath, join  # on strings: a Path a line costs more than the check

from tqdm import tqdm

from ppocr_ext.charset import Charset
from ppocr_ext.data.image_check import ImageCheck, image_fault, missing_image
from ppocr_ext.data.label_file import LabelLine, read_label_file
from ppocr_ext.data.preflight_report import FileReport, PreflightReport, UnusableSample
from ppocr_ext.data.sample_rules import FrameLimit, Gtc, LabelRules, UnknownChar
from ppocr_ext.errors import DataError

_BLOCK = 64  # images a thread looks at before it asks for more
_CHUNK = 32 * _BLOCK  # lines held in memory at a time
Fault = tuple[str, str]  # reason, detail


def check(
    label_files: str | Path | Sequence[str | Path],
    data_dir: str | Path,
    charset: Charset,
    max_text_length: int,
    *,
    gtc: Gtc | None = None,
    frames: FrameLimit | None = None,
    image_check: ImageCheck = "header",
    unknown_char: UnknownChar = "drop_line",
    allow_outside_data_dir: bool = True,
    delimiter: str = "\t",
    ds_width: bool = False,
    examples: int = 20,
    seconds: float | None = None,
) -> PreflightReport:
    """Look at every line once and say which can be used.

    Memory does not grow with the data but for one bit a line.

    Args:
        label_files: PaddleOCR label files.
        data_dir: folder that relative image paths start from.
        charset: the dictionary.
        max_text_length: ``Global.max_text_length``.
        gtc: which encoder makes the second label: ``"nrtr"``, ``"sar"`` or None.
        frames: what CTC's output holds. None: not checked.
        image_check: ``"header"`` or ``"decode"``, see :func:`ppocr_ext.data.image_check.image_fault`.
        unknown_char: what a character outside the dictionary costs: the line, or only itself.
        allow_outside_data_dir: False makes an image outside ``data_dir`` unusable.
        delimiter: what separates the columns.
        ds_width: lines must have the image's width and height.
        examples: unusable lines of each reason that are kept by name; all are counted.
        seconds: stop after this time, with ``stopped`` set in the result; None: check every line.

    Raises:
        DataError: a label file is missing or empty.
    """
    files = [Path(f) for f in ([label_files] if isinstance(label_files, str | Path) else label_files)]
    if not files:
        raise DataError("No label file is given. Name at least one in dataset.label_file_list.")
    rules = LabelRules(charset, max_text_length, gtc, frames, unknown_char)
    images = _Images(str(data_dir), image_check, allow_outside_data_dir)
    result = PreflightReport(
        Path(data_dir), rules.reserved, rules.reserved_for, delimiter, ds_width, examples, frames=frames
    )
    end = math.inf if seconds is None else time.monotonic() + seconds
    with ExitStack() as stack:
        bar = stack.enter_context(_bar(files))
        pool = stack.enter_context(ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 2)))
        for path in files:
            findings = result.begin_file(path)
            for chunk in _chunks(read_label_file(path, delimiter, ds_width=ds_width), _CHUNK):
                if result.total and time.monotonic() > end:
                    result.stopped = True
                    return result
                for line, fault in zip(chunk, _faults(chunk, rules, images, pool), strict=True):
                    result.note_label(line, path, rules, usable=fault is None)
                    _note(result, findings, line, fault)
                bar.update(sum(len(line.content) + 1 for line in chunk))
            if findings.total == 0:
                raise DataError(
                    f"{path}: the label file is empty. A line is a path, {_named(delimiter)}, a label."
                )
    return result


def _named(delimiter: str) -> str:
    return "a tab" if delimiter == "\t" else repr(delimiter)


def _note(result: PreflightReport, findings: FileReport, line: LabelLine, fault: Fault | None) -> None:
    findings.add(usable=fault is None, altered=line.altered)
    if fault is not None:
        result.reject(UnusableSample(findings.path, line.number, *fault))


def _faults(
    chunk: list[LabelLine], rules: LabelRules, images: _Images, pool: ThreadPoolExecutor
) -> Iterable[Fault | None]:
    """The fault of each line, in order: of its text, then, where that is in order, of its images."""
    faults: list[Fault | None] = [rules.fault(line) for line in chunk]
    to_open = [i for i, fault in enumerate(faults) if fault is None]
    blocks = [to_open[start : start + _BLOCK] for start in range(0, len(to_open), _BLOCK)]
    found = pool.map(lambda block: [images.fault(chunk[i].images) for i in block], blocks)
    for index, fault in zip(to_open, chain.from_iterable(found), strict=True):
        faults[index] = fault
    return faults


class _Images:
    """Image paths of label files: joined as PaddleOCR joins them, then opened.

    Args:
        data_dir: folder that relative paths start from.
        check: how closely to look.
        allow_outside: whether images may lie outside ``data_dir``.
    """

    def __init__(self, data_dir: str, check: ImageCheck, allow_outside: bool) -> None:
        self._data_dir = data_dir
        self._check = check
        self._root = None if allow_outside else join(abspath(data_dir), "")

    def fault(self, names: tuple[str, ...]) -> Fault | None:
        """The first fault among ``names``: any of them may be drawn, so each has to be good."""
        for name in names:
            path = join(self._data_dir, name)
            if self._root is not None and not abspath(path).startswith(self._root):
                return "outside_data_dir", f"{path} is outside data_dir {self._data_dir}"
            fault = image_fault(path, self._check)
            if fault is not None:
                return missing_image(self._data_dir, name) if fault[0] == "missing_image" else fault
        return None


def _chunks(lines: Iterator[LabelLine], size: int) -> Iterator[list[LabelLine]]:
    while chunk := list(islice(lines, size)):
        yield chunk


def _bar(files: list[Path]) -> tqdm:
    """A bar over bytes, since lines are not known before they are read; shown after a second of work."""
    size = sum(path.stat().st_size for path in files if path.is_file())
    return tqdm(total=size, desc="label files", unit="B", unit_scale=True, leave=False, disable=None, delay=1)
