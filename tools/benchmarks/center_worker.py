"""One formula of center loss, timed and weighed in a process of its own; see :mod:`benchmarks.center`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.memory import PeakGrowth
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.charset import Charset
from ppocr_ext.losses import CenterLoss, LossContext
from ppocr_ext.run.device import tune_cpu

_CHARACTERS = 0x4E00  # the first of the CJK block: any symbols will do
_LENGTH = 25  # characters that a label has room for
_WEIGHED = 3  # passes of which the memory is measured
_FLOOR, _CEILING = 1e-12, 1e12  # between which the dense form holds its distances

Formula = Callable[[paddle.Tensor, paddle.Tensor, list[paddle.Tensor]], paddle.Tensor]


def measure(
    formula: str,
    lines: int,
    frames: int,
    classes: int,
    features: int,
    rounds: int,
    gradient: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Forward and backward pass on random features and logits.

    Args:
        formula: ``"dense"``, or ``"ours"``.
        lines: B; ``frames``: T; ``classes``: C; ``features``: D.
        rounds: passes that are timed.
        gradient: file that the gradient of the features [B, T, D] is written to (``.npy``).
        options: keys of :class:`~ppocr_ext.losses.CenterLoss`.

    Returns:
        ``seconds`` of each pass, ``growth`` in bytes over the passes before them, ``exact``: whether that is what
        :class:`~benchmarks.memory.PeakGrowth` calls exact, and ``value``.
    """
    paddle.set_device("cpu")
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((classes, features), dtype="float32")
    loss = _dense(centers) if formula == "dense" else _ours(centers, options)
    _step(loss, *_inputs(rng, 1, frames, classes, features))  # what is set up once is no growth
    given = _inputs(np.random.default_rng(1), lines, frames, classes, features)
    growth = PeakGrowth()
    for _ in range(_WEIGHED):
        _step(loss, *given)
    found: dict[str, Any] = {"growth": growth.bytes, "exact": growth.exact, "seconds": []}
    tune_cpu()  # it lets the allocator keep what is freed, which would be taken for growth
    value, of_features = _step(loss, *given)
    for _ in range(rounds):
        began = time.perf_counter()
        _step(loss, *given)
        found["seconds"].append(time.perf_counter() - began)
    if gradient is not None:
        np.save(gradient, of_features.numpy())
    return {**found, "value": float(value)}


def _inputs(
    rng: np.random.Generator, lines: int, frames: int, classes: int, features: int
) -> tuple[paddle.Tensor, paddle.Tensor, list[paddle.Tensor]]:
    """Features [B, T, D], logits [B, T, C], and a batch with labels [B, L] and lengths [B]."""
    of_frames = paddle.to_tensor(rng.standard_normal((lines, frames, features), dtype="float32"))
    logits = paddle.to_tensor(rng.standard_normal((lines, frames, classes), dtype="float32"))
    longest = min(_LENGTH, max(1, frames // 2))  # repeats need a blank between them
    label = rng.integers(1, classes, (lines, longest), dtype="int64")
    length = rng.integers(1, longest + 1, lines, dtype="int64")
    image = paddle.zeros([lines, 1, 1, 1])
    return of_frames, logits, [image, paddle.to_tensor(label), paddle.to_tensor(length)]


def _step(
    loss: Formula, features: paddle.Tensor, logits: paddle.Tensor, batch: list[paddle.Tensor]
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Value, and gradient [B, T, D]; features are a leaf of this pass alone, whose gradient goes with it."""
    leaf = features.detach()
    leaf.stop_gradient = False
    value = loss(leaf, logits, batch)
    value.backward()
    return value, leaf.grad


def _ours(centers: np.ndarray, options: dict[str, Any]) -> Formula:
    classes, features = centers.shape
    charset = Charset(tuple(chr(_CHARACTERS + i) for i in range(classes - 1)))
    known = np.ones(classes, np.int64)
    table = CenterTable(np.arange(classes), charset.ctc_symbols, centers, known, np.zeros(classes))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centers.npz"
        table.save(path)
        loss = CenterLoss(
            center_file_path=str(path), context=LossContext(charset, {None: features}), **options
        )
    return lambda features, logits, batch: loss((features, logits), batch)["loss"]


def _dense(centers: np.ndarray) -> Formula:
    """The textbook form in float64: all distances [N, C], and a mask that leaves one of each row."""
    of_classes = paddle.to_tensor(centers.astype("float64"))
    classes, size = centers.shape

    def loss(features: paddle.Tensor, logits: paddle.Tensor, batch: list[paddle.Tensor]) -> paddle.Tensor:
        rows = features.reshape([-1, size]).astype("float64")
        squares = rows.square().sum(axis=1, keepdim=True) + of_classes.square().sum(axis=1).unsqueeze(0)
        distances = squares - 2.0 * paddle.matmul(rows, of_classes, transpose_y=True)
        best = logits.argmax(axis=-1).reshape([-1, 1])
        mask = (best == paddle.arange(classes).unsqueeze(0)).astype("float64")
        return (distances * mask).clip(_FLOOR, _CEILING).sum() / rows.shape[0]

    return loss
