"""Check the labels of a batch before it is trained on, since wrong labels give a wrong loss without an error.

The check runs where a batch is put together, in CPU memory, and in the worker processes if there are any.
Imports no Paddle.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ppocr_ext.data.batches import BatchLayout
from ppocr_ext.data.load_failures import passes_power_of_ten
from ppocr_ext.data.sample_rules import describe_frames, frames_needed
from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import DataError
from ppocr_ext.messages import LOG

_WHERE = "Train.dataset.transforms"
_NONE_FITS = 8  # samples; if none of so many fits, the frames are wrong for all, and the run ends at once
# Samples before the share of misfits is compared with the limit: one of a few is a large share.
_AT_LEAST = 100
_SHOWN = 50  # class ids of a label that a message shows
_BLANK = 0

FramesOfSize = Callable[[int, int], int | None]  # height and width of a batch's images -> T, None if unknown


def ctc_label_error(labels: np.ndarray, lengths: np.ndarray, classes: int) -> str | None:
    """Return a message with what is wrong with the CTC labels of a batch, the fix, and the label; None if all are good.

    Args:
        labels: int [B, L], padded. Entries behind a label's length are not checked.
        lengths: int [B].
        classes: C. A label has the classes 1 to C - 1, since 0 is the blank.
    """
    if not lengths.any():
        return "no label of the batch has a character. Fix: remove lines with empty labels."
    if lengths.min() < 0 or lengths.max() > labels.shape[1]:
        wrong = lengths[(lengths < 0) | (lengths > labels.shape[1])][0]
        return f"a label has the length {wrong}, but {labels.shape[1]} places. Fix: keep the length of the CTC label."
    inside = np.arange(labels.shape[1]) < lengths[:, None]
    return _class_error("a label", labels, inside, 1, classes)


def _class_error(what: str, labels: np.ndarray, inside: np.ndarray, least: int, classes: int) -> str | None:
    """Return the first of the ``labels`` [B, L] with a class outside ``least`` to ``classes`` - 1, or None."""
    rows, columns = np.nonzero(inside & ~((labels >= least) & (labels < classes)))
    if not len(rows):
        return None
    row = rows[0]
    wrong = f"{labels[row, columns[0]]}"
    fix = "encode labels with the dictionary of the head"
    if labels[row, columns[0]] == _BLANK:
        wrong = f"{_BLANK}, CTC's blank, inside"
        fix = f"encode characters as 1 to {classes - 1}"
    return (
        f"{what} has the class {wrong}, but its head has the classes {least} to {classes - 1}. Fix: {fix}.\n"
        f"{_shown(labels[row][inside[row]])}"
    )


def _shown(ids: np.ndarray) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return f"  The label: {ids[:_SHOWN].tolist()}{more}"


def misfit_rows(labels: np.ndarray, lengths: np.ndarray, frames: int) -> list[int]:
    """Return the rows of the labels that need more than ``frames`` frames.

    Args:
        labels: int [B, L].
        lengths: int [B].
        frames: T.
    """
    # The most that they can need: a blank between all characters.
    possible = np.flatnonzero(2 * lengths - 1 > frames)
    return [int(row) for row in possible if frames_needed(labels[row, : lengths[row]].tolist()) > frames]


class BatchLabelCheck:
    """Check the samples of each batch of ``Train``, in the process that puts it together.

    Misfits (labels that need more frames than CTC has) are counted over all worker processes. A few of them are not
    an error, since RecConAug may join text lines.

    Args:
        layout: positions of label and length in a sample.
        classes: C of the CTC head.
        limit: how many samples may be misfits.
        second_classes: number of classes of the second label (NRTR, SAR); None if it is not checked.
        frames: returns T for an image size; None if frames are not checked.
        fixed_by: config paths of ``train_frames`` that give T at any width.
    """

    def __init__(
        self,
        layout: BatchLayout,
        classes: int,
        limit: UnusableLimit,
        second_classes: int | None = None,
        frames: FramesOfSize | None = None,
        fixed_by: Sequence[str] = (),
    ) -> None:
        self._layout = layout
        self._classes = classes
        self._limit = limit
        self._second_classes = second_classes
        self._frames = frames
        self._fix = ", ".join(f"set {key}: width" for key in fixed_by) or "make the images wider"
        self._at_least = _AT_LEAST
        self._counts: Any = multiprocessing.Array("q", 2)  # number of samples, and of misfits among them

    def set_epoch_size(self, samples: int) -> None:
        """Compare the share of misfits with the limit after ``samples`` at the latest, the samples of an epoch."""
        self._at_least = min(_AT_LEAST, samples)

    def __call__(self, samples: Sequence[Any]) -> None:
        """Check ``samples``, which are lists as KeepKeys makes them. Samples of another form are not checked.

        Raises:
            DataError: a sample has too few entries, a label has the blank or a class that does not exist, no label
                has a character, or there are more misfits than the limit allows.
        """
        last = max(self._layout.label or 0, self._layout.length or 0)  # the loss reads both by position
        for sample in samples:
            if isinstance(sample, list | tuple) and len(sample) <= last:
                raise DataError(
                    f"Train.dataset: a sample has {len(sample)} entries, but the loss reads entry {last + 1}. Fix: "
                    f"return the entries that keep_keys names.",
                    code="missing_batch_entry",
                )
        labels = _column(samples, self._layout.label)
        lengths = _column(samples, self._layout.length)
        if labels is None or lengths is None or labels.ndim != 2 or lengths.size != len(labels):
            return
        lengths = lengths.reshape(-1).astype(np.int64)
        error = ctc_label_error(labels, lengths, self._classes)
        second = None if self._second_classes is None else _column(samples, self._layout.second_label)
        if error is None and second is not None and second.ndim == 2:
            inside = np.ones(second.shape, bool)
            error = _class_error("a second label", second, inside, 0, self._second_classes or 0)
        if error is not None:
            raise DataError(f"{_WHERE}: {error}", code="bad_label")
        self._check_frames(samples, labels, lengths)

    def _check_frames(self, samples: Sequence[Any], labels: np.ndarray, lengths: np.ndarray) -> None:
        image = samples[0][self._layout.image] if self._layout.image is not None else None
        shape: Sequence[int] = getattr(image, "shape", ())
        if self._frames is None or len(shape) != 3 or (frames := self._frames(shape[1], shape[2])) is None:
            return
        rows = misfit_rows(labels, lengths, frames)
        with self._counts.get_lock():
            before = self._counts[1]
            self._counts[0] = total = self._counts[0] + len(labels)
            self._counts[1] = count = before + len(rows)
        if not rows:
            return
        label = labels[rows[0], : lengths[rows[0]]]
        text = f"{_WHERE}: {count:,} of {total:,} labels need more frames than CTC has and train nothing"
        example = describe_frames(label.tolist(), frames)
        exceeded = ""
        if count == total >= _NONE_FITS:
            exceeded = "none of them fits"
        elif (total >= self._at_least or self._limit.strict) and not self._limit.allows(count, total):
            exceeded = self._limit.text
        if exceeded:
            raise DataError(
                f"{text}; {exceeded}.\n  {example}.\n{_shown(label)}\n"
                f"  Fix: {self._fix}, or let RecConAug join fewer characters (its max_text_length).",
                code="too_long_for_frames",
            )
        if passes_power_of_ten(before, count):
            LOG.warning("%s: %s.", text, example)


def _column(samples: Sequence[Any], position: int | None) -> np.ndarray | None:
    """Return one entry of all samples as an array [B, ...]; None if they are not numbers of one shape."""
    if position is None:
        return None
    try:
        column = np.stack([np.asarray(sample[position]) for sample in samples])
    except (TypeError, ValueError, LookupError):
        return None
    return column if column.dtype.kind in "iuf" else None
