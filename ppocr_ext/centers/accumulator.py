"""Sums of features by class, from which centers are computed, and the class that each frame counts for.

Sums and counts add up: those of several processes, or of two parts of the data, give the centers of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import paddle

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.io.plain_pickle import load_arrays
from ppocr_ext.losses.center_loss import forced_alignment
from ppocr_ext.losses.functional import best_classes

Frames = Literal["argmax", "aligned"]
BLANK = 0
SKIPPED = -1


class CenterAccumulator:
    """Adds features up by class, in float64; memory depends only on classes and features.

    Args:
        classes: C, CTC classes with the blank.
        feat_dim: D, features of a frame.

    Attributes:
        sums: float64 [C, D]; ``counts``: int64 [C]; ``squares``: float64 [C], of the features.
        samples: samples that were read; ``correct``: those read correctly.
    """

    def __init__(self, classes: int, feat_dim: int) -> None:
        self.sums = np.zeros((classes, feat_dim), np.float64)
        self.counts = np.zeros(classes, np.int64)
        self.squares = np.zeros(classes, np.float64)
        self.samples = 0
        self.correct = 0

    def add(self, features: np.ndarray, class_ids: np.ndarray) -> None:
        """Add N frames.

        Args:
            features: float [N, D].
            class_ids: int [N], class of each frame; frames with a negative one are skipped.
        """
        used = class_ids >= 0
        if not used.all():
            features = features[used]
            class_ids = class_ids[used]
        if not len(class_ids):
            return
        order = np.argsort(class_ids, kind="stable")
        ids, first = np.unique(class_ids[order], return_index=True)
        rows = features[order].astype(np.float64)
        self.sums[ids] += np.add.reduceat(rows, first, axis=0)
        self.squares[ids] += np.add.reduceat(np.einsum("nd,nd->n", rows, rows), first)
        self.counts[ids] += np.diff(np.append(first, len(rows)))

    @property
    def present(self) -> np.ndarray:
        """Return int64 [K]: classes that have frames."""
        return np.flatnonzero(self.counts)

    @property
    def accuracy(self) -> float:
        """Return the share of samples read correctly; 0 without samples."""
        return self.correct / self.samples if self.samples else 0.0

    def centers(self) -> np.ndarray:
        """Return float64 [K, D]: mean feature of each class of :attr:`present`."""
        return self.sums[self.present] / self.counts[self.present, None]

    def variance(self) -> np.ndarray:
        """Return float64 [K]: mean squared distance of each present class's frames to their center."""
        means = self.centers()
        squares = self.squares[self.present] / self.counts[self.present]
        return np.maximum(squares - np.einsum("kd,kd->k", means, means), 0.0)  # rounding, if all are equal

    def save(self, path: Path, done: int, identity: str) -> None:
        """Write the sums so far, atomically.

        Args:
            path: the file.
            done: batches that are in it.
            identity: digest of what the sums are made of; only the same pass can be resumed.
        """
        with atomic_writer(path) as stream:
            np.savez(
                stream,
                sums=self.sums,
                counts=self.counts,
                squares=self.squares,
                done=np.array([done, self.samples, self.correct]),
                identity=np.array(identity),
            )

    def load(self, path: Path, identity: str) -> int:
        """Resume from a file of :meth:`save`; return how many batches are in it.

        Raises:
            DataError: it is damaged, or belongs to another pass.
        """
        own = {
            "sums": self.sums,
            "counts": self.counts,
            "squares": self.squares,
            "done": np.zeros(3, np.int64),
        }
        damaged = DataError(
            f"{path} cannot be resumed from: it is damaged. Fix: delete it and start again.",
            code="damaged_file",
        )
        try:
            found = load_arrays(path, (*own, "identity"))
            same_pass = str(found["identity"]) == identity
            fits = all(
                found[name].shape == x.shape and found[name].dtype == x.dtype for name, x in own.items()
            )
        except (ValueError, KeyError) as error:
            raise damaged from error
        if not same_pass:
            raise DataError(
                f"{path} belongs to another model, dictionary, label file or choice of frames. Fix: delete it, or "
                f"leave out --resume, to start again.",
                code="other_pass",
            )
        if not fits or min(found["counts"].min(), found["done"].min()) < 0:
            raise damaged
        self.sums = found["sums"]
        self.counts = found["counts"]
        self.squares = found["squares"]
        done, self.samples, self.correct = (int(number) for number in found["done"])
        return done


def read_correctly(best: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return whether the greedy CTC prediction of each sample equals its label.

    Args:
        best: int [B, T], the most probable class of each frame.
        labels: int [B, L], class ids, with any padding after ``lengths``.
        lengths: int [B].

    Returns:
        bool [B].
    """
    changed = np.ones(best.shape, bool)
    changed[:, 1:] = best[:, 1:] != best[:, :-1]
    read = changed & (best != BLANK)
    place = np.cumsum(read, axis=1) - 1  # position of each character in its prediction
    fits = read & (place < lengths[:, None])
    if not labels.shape[1]:
        return np.asarray(~read.any(axis=1))
    wanted = np.take_along_axis(labels, place.clip(0, labels.shape[1] - 1), axis=1)
    wrong = read & (~fits | (best != wanted))
    return np.asarray((read.sum(axis=1) == lengths) & ~wrong.any(axis=1))


def classes_of_frames(
    logits: paddle.Tensor,
    labels: paddle.Tensor,
    lengths: paddle.Tensor,
    frames: Frames = "argmax",
    all_lines: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each frame, and which samples are read correctly.

    Args:
        logits: [B, T, C] of the CTC head.
        labels: int [B, L], class ids, padded after ``lengths``.
        lengths: int [B].
        frames: ``argmax``: the most probable class of a frame, in samples read correctly (PaddleOCR's definition);
            ``aligned``: the class that CTC forced alignment of the label gives it, in all samples that fit.
        all_lines: with ``argmax``, samples read wrongly count too.

    Returns:
        int64 [B, T], ``-1`` for a frame that is skipped; bool [B].
    """
    best = best_classes(logits).numpy()
    correct = read_correctly(best, labels.numpy(), lengths.numpy().reshape(-1))
    if frames == "aligned":
        return forced_alignment(logits, labels, lengths).numpy(), correct
    if not all_lines:
        best = np.where(correct[:, None], best, SKIPPED)
    return best, correct
