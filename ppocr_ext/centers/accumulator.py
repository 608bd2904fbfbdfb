"""Sums of features by class, from which centers are computed; imports no Paddle.

Sums and counts add up: those of several processes, or of two parts of the data, give the centers of all.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ppocr_ext.characters.center_table import load_arrays
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer


class CenterAccumulator:
    """Adds features up by class, in float64; memory depends on classes and features alone.

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
        self.samples = self.correct = 0

    def add(self, features: np.ndarray, class_ids: np.ndarray) -> None:
        """Add N frames.

        Args:
            features: float [N, D].
            class_ids: int [N], class of each frame; frames with a negative one are skipped.
        """
        used = class_ids >= 0
        if not used.all():
            features, class_ids = features[used], class_ids[used]
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
        except ValueError as error:
            raise damaged from error
        if found.keys() != {*own, "identity"}:
            raise damaged
        if found["identity"].shape != () or found["identity"].dtype.kind != "U":
            raise damaged
        if str(found["identity"]) != identity:
            raise DataError(
                f"{path} belongs to another model, dictionary, label file or choice of frames. Fix: delete it, or "
                f"leave out --resume, to start again.",
                code="other_pass",
            )
        same = all(found[name].shape == x.shape and found[name].dtype == x.dtype for name, x in own.items())
        if not same or min(found["counts"].min(), found["done"].min()) < 0:
            raise damaged
        self.sums, self.counts, self.squares = found["sums"], found["counts"], found["squares"]
        done, self.samples, self.correct = (int(number) for number in found["done"])
        return done
