"""Sums of features by class, from which centers are made; imports no Paddle.

Sums and counts add up: those of several processes, or of two parts of the data, give the centers of all.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer


class CenterAccumulator:
    """Adds features up by class, in float64; memory depends on classes and features alone.

    Args:
        classes: C, CTC classes with the blank.
        feat_dim: D, features of a frame.
    """

    def __init__(self, classes: int, feat_dim: int) -> None:
        self.sums = np.zeros((classes, feat_dim), np.float64)
        self.counts = np.zeros(classes, np.int64)
        self.squares = np.zeros(classes, np.float64)
        self.lines = self.correct = 0  # kept beside the sums for a pass that goes on

    def add(self, features: np.ndarray, class_ids: np.ndarray) -> None:
        """Add N frames.

        Args:
            features: float [N, D].
            class_ids: int [N], class of each frame; a negative one leaves the frame out.
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

    def merge(self, other: CenterAccumulator) -> None:
        """Add what another one has added up."""
        self.sums += other.sums
        self.counts += other.counts
        self.squares += other.squares

    @property
    def present(self) -> np.ndarray:
        """int64 [K]: classes that have frames."""
        return np.flatnonzero(self.counts)

    def centers(self) -> np.ndarray:
        """float64 [K, D]: mean feature of each class of :attr:`present`."""
        return self.sums[self.present] / self.counts[self.present, None]

    def spread(self) -> np.ndarray:
        """float64 [K]: mean squared distance of the frames of each present class to their center."""
        means = self.centers()
        spread = self.squares[self.present] / self.counts[self.present] - np.einsum("kd,kd->k", means, means)
        return np.maximum(spread, 0.0)  # rounding, where all frames are equal

    def save(self, path: Path, done: int, identity: str) -> None:
        """Write what was added up so far, atomically.

        Args:
            path: the file.
            done: lines that are in it.
            identity: what they were made with: only the same can go on.
        """
        with atomic_writer(path) as stream:
            np.savez(
                stream,
                sums=self.sums,
                counts=self.counts,
                squares=self.squares,
                done=np.array([done, self.lines, self.correct]),
                identity=np.array(identity),
            )

    def load(self, path: Path, identity: str) -> int:
        """Go on from a file of :meth:`save`; lines that are in it.

        Raises:
            DataError: it is damaged, or was made with something else.
        """
        try:
            with np.load(path, allow_pickle=False) as content:
                found = {name: content[name] for name in ("sums", "counts", "squares", "done", "identity")}
        except (
            ValueError,
            OSError,
            EOFError,
            KeyError,
            RuntimeError,
            zipfile.BadZipFile,
            zlib.error,
        ) as fault:
            raise _damaged(path) from fault
        if found["identity"].shape != () or found["identity"].dtype.kind != "U":
            raise _damaged(path)
        if str(found["identity"]) != identity:
            raise DataError(
                f"{path} belongs to another model, dictionary, list or way of taking frames. Delete it, or leave "
                f"--resume out, to start again."
            )
        own = {
            "sums": self.sums,
            "counts": self.counts,
            "squares": self.squares,
            "done": np.zeros(3, np.int64),
        }
        alike = all(found[name].shape == x.shape and found[name].dtype == x.dtype for name, x in own.items())
        if not alike or min(found["counts"].min(), found["done"].min()) < 0:
            raise _damaged(path)
        self.sums, self.counts, self.squares = found["sums"], found["counts"], found["squares"]
        done, self.lines, self.correct = (int(number) for number in found["done"])
        return done


def _damaged(path: Path) -> DataError:
    return DataError(
        f"{path} cannot be gone on from: it is damaged, or no such file at all. Delete it and start again."
    )
