"""Check the labels of a batch before it is trained on: such faults train to a wrong number without an error.

The samples are looked at where a batch is put together: in CPU memory, in a worker process if there are any.
Imports no Paddle.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ppocr_ext.data.batch_layout import BatchLayout
from ppocr_ext.data.load_failures import passes_power_of_ten
from ppocr_ext.data.sample_rules import frames_needed, repeats_of
from ppocr_ext.data.unusable_limit import UnusableLimit
from ppocr_ext.errors import DataError

_LOG = logging.getLogger("ppocr_ext")
_WHERE = "Train.dataset.transforms"
_NONE_FITS = 8  # samples without one that fits, after which the run ends
_AT_LEAST = 100  # samples seen before a share of them is judged
_SHOWN = 50  # class ids of a label that a message shows
_BLANK = 0

Frames = Callable[[int, int], int | None]  # height and width of the images of a batch -> T, None if unknown


def ctc_label_error(labels: np.ndarray, lengths: np.ndarray, classes: int) -> str | None:
    """Return what is wrong with the CTC labels of a batch, what to do and the label; None if nothing is.

    Args:
        labels: int [B, L], padded; what stands behind a label's length is not looked at.
        lengths: int [B].
        classes: C: a label has the classes 1 to C - 1, since 0 is the blank.
    """
    if not lengths.any():
        return "no label of the batch has a character. Fix: leave lines with empty labels out."
    if lengths.min() < 0 or lengths.max() > labels.shape[1]:
        wrong = int(lengths[(lengths < 0) | (lengths > labels.shape[1])][0])
        return f"a label has the length {wrong}, but {labels.shape[1]} places. Fix: keep the length of the CTC label."
    inside = np.arange(labels.shape[1]) < lengths[:, None]
    rows, columns = np.nonzero(inside & ~((labels > _BLANK) & (labels < classes)))
    if not len(rows):
        return None
    found = labels[rows[0], columns[0]]
    label = _shown(labels[rows[0], : lengths[rows[0]]])
    if found == _BLANK:
        fix = f"Fix: encode characters as 1 to {classes - 1}."
        return f"a label has the class {_BLANK}, CTC's blank, inside. {fix}\n{label}"
    return (
        f"a label has the class {found}, but characters have the classes 1 to {classes - 1}. Fix: encode labels with "
        f"the dictionary of the head.\n{label}"
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
    possible = np.flatnonzero(2 * lengths - 1 > frames)  # as if all characters were the same
    return [int(row) for row in possible if frames_needed(labels[row, : lengths[row]].tolist()) > frames]


def describe_frames(label: np.ndarray, frames: int) -> str:
    """Return length, repeats and frames of a label (int [length]) that does not fit, for a message."""
    ids = label.tolist()
    return f"{len(ids)} characters with {repeats_of(ids)} repeats need {frames_needed(ids)} frames, CTC has {frames}"


class BatchLabelCheck:
    """Checks the samples of each batch of ``Train``, in the process that puts it together.

    Labels that need more frames than CTC has are counted over all worker processes (forked later, or given
    this object): RecConAug may join lines, so a few of them are no error.

    Args:
        layout: where label and length stand in a sample.
        classes: C of the CTC head.
        tolerance: how many of the samples may need more frames than there are.
        second_classes: of the second label (NRTR, SAR): 0 to this - 1; None: not checked.
        frames: T for an image size; None: not checked.
    """

    def __init__(
        self,
        layout: BatchLayout,
        classes: int,
        tolerance: UnusableLimit,
        second_classes: int | None = None,
        frames: Frames | None = None,
    ) -> None:
        self._layout = layout
        self._classes = classes
        self._tolerance = tolerance
        self._second_classes = second_classes
        self._frames = frames
        self._at_least = _AT_LEAST
        self._counts: Any = multiprocessing.Array("q", 2)  # samples seen, of them those that do not fit

    def expect(self, samples: int) -> None:
        """Judge the share of labels that do not fit after one epoch of ``samples``, if that is less than usual."""
        self._at_least = min(_AT_LEAST, samples)

    def __call__(self, samples: Sequence[Any]) -> None:
        """Check ``samples``, lists as KeepKeys makes them; others are left to the loss.

        Raises:
            DataError: a label has a class that does not exist or the blank, no label has a character, or more
                labels than admitted need more frames than CTC has.
        """
        labels = _column(samples, self._layout.label)
        lengths = _column(samples, self._layout.length)
        if labels is None or lengths is None or labels.ndim != 2 or lengths.size != len(labels):
            return
        lengths = lengths.reshape(-1).astype(np.int64)
        fault = ctc_label_error(labels, lengths, self._classes) or self._second_fault(samples)
        if fault is not None:
            raise DataError(f"{_WHERE}: {fault}")
        self._check_frames(samples, labels, lengths)

    def _second_fault(self, samples: Sequence[Any]) -> str | None:
        labels = None if self._second_classes is None else _column(samples, self._layout.second_label)
        if labels is None or labels.ndim != 2:
            return None
        rows, columns = np.nonzero(~((labels >= 0) & (labels < self._second_classes)))
        if not len(rows):
            return None
        return (
            f"a second label has the class {labels[rows[0], columns[0]]}, but its head has the classes 0 to "
            f"{(self._second_classes or 0) - 1}. Fix: encode labels with the dictionary of the head.\n"
            f"{_shown(labels[rows[0]])}"
        )

    def _check_frames(self, samples: Sequence[Any], labels: np.ndarray, lengths: np.ndarray) -> None:
        image = samples[0][self._layout.image] if self._layout.image is not None else None
        shape: Sequence[int] = getattr(image, "shape", ())
        frames = self._frames(shape[-2], shape[-1]) if self._frames is not None and len(shape) == 3 else None
        if frames is None:
            return
        rows = misfit_rows(labels, lengths, frames)
        with self._counts.get_lock():
            seen, before = self._counts
            self._counts[0] = together = seen + len(labels)
            self._counts[1] = count = before + len(rows)
        if not rows:
            return
        example = describe_frames(labels[rows[0], : lengths[rows[0]]], frames)
        limit = self._limit_passed(count, together)
        if limit:
            raise DataError(
                f"{_WHERE}: {count:,} of {together:,} labels do not fit CTC's frames and train nothing; {limit}.\n"
                f"  {example}.\n{_shown(labels[rows[0], : lengths[rows[0]]])}\n"
                f"  Fix: make the images wider, or let RecConAug join fewer characters (its max_text_length)."
            )
        if passes_power_of_ten(before, count):
            _LOG.warning(
                "%s: %s of %s labels do not fit CTC's frames and train nothing: %s.",
                _WHERE, f"{count:,}", f"{together:,}", example,
            )  # fmt: skip

    def _limit_passed(self, count: int, together: int) -> str:
        """Return which limit ``count`` of ``together`` samples pass; empty if the run may go on."""
        if count == together >= _NONE_FITS:
            return "not one of them fits"
        judged = together >= self._at_least or self._tolerance.strict
        return self._tolerance.limit if judged and not self._tolerance.allows(count, together) else ""


def _column(samples: Sequence[Any], place: int | None) -> np.ndarray | None:
    """Return one entry of all samples as an array [B, ...]; None where they are not numbers of one shape."""
    if place is None or not all(isinstance(s, list | tuple) and len(s) > place for s in samples):
        return None
    arrays = [_array(sample[place]) for sample in samples]
    first = arrays[0] if arrays else None
    if first is None or any(a is None or a.shape != first.shape for a in arrays):
        return None
    return np.stack(arrays)  # type: ignore[arg-type]  # none of them is None


def _array(value: Any) -> np.ndarray | None:
    place = getattr(value, "place", None)
    if place is not None:  # a tensor of Paddle's
        return value.numpy() if place.is_cpu_place() else None
    if isinstance(value, np.ndarray | np.number | int):
        array = np.asarray(value)
        return array if array.dtype.kind in "iuf" else None
    return None
