"""Say what a checkpoint holds, and take one of its sub-models out; imports no Paddle."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState, unwrapped
from ppocr_ext.checkpoint.class_rows import class_axis
from ppocr_ext.checkpoint.serialize import read_state
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.io.atomic import atomic_writer

_PARTS = ("transform", "backbone", "neck", "head")  # of a recogniser
# kind of class index: name of its branch, and rows of its parameters that are of no class
_BRANCHES = {"ctc": ("CTC", 0), "nrtr": ("NRTR", 1), "sar_input": ("SAR", 0)}


@dataclass(frozen=True)
class Part:
    """A part of a network.

    Attributes:
        name: such as ``Student.backbone`` or ``head.ctc_head``.
        shapes: of its entries by their names in the file.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def numbers(self) -> int:
        """How many numbers the entries hold, BatchNorm's statistics included."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())


def parts_of(weights: Mapping[str, np.ndarray]) -> list[Part]:
    """Return the parts of the networks in a file, in its order: backbone, neck, and each branch of the head."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, value in weights.items():
        found.setdefault(_part(unwrapped(name)), {})[name] = tuple(value.shape)
    return [Part(name, shapes) for name, shapes in found.items()]


def _part(name: str) -> str:
    words = name.split(".")
    place = next((index for index, word in enumerate(words[:2]) if word in _PARTS), None)
    if place is None:
        return words[0]
    # a MultiHead has a layer for each branch; a single head has its weights at once
    branches = words[place] == "head" and len(words) > place + 3
    return ".".join(words[: place + 1 + branches])


def branch_classes(weights: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the classes of each branch: ``{"Student CTC": 11}``; of NRTR without the row that nothing uses."""
    counts = {}
    for name, value in weights.items():
        kind, axis = class_axis(name) or ("", 0)
        if kind in _BRANCHES and axis < value.ndim:
            branch, unused = _BRANCHES[kind]
            first = unwrapped(name).split(".", 1)[0]
            counts[branch if first in _PARTS else f"{first} {branch}"] = value.shape[axis] - unused
    return counts


def extract(checkpoint: Checkpoint, sub_model: str, target: Path) -> int:
    """Write the weights of one sub-model under the names of a single model, and read them back.

    ``TARGET.states`` gets the best evaluation and the digest of the dictionary, so that another dictionary is still
    refused.

    Args:
        checkpoint: of several sub-models.
        sub_model: the one to take.
        target: path of the new checkpoint, without an ending.

    Returns:
        How many entries were written, each equal in every bit to the one in the checkpoint.

    Raises:
        WeightsError: there is no such sub-model, or the file that was written is not equal.
        DataError: the target exists.
    """
    weights = checkpoint.weights()
    chosen = {
        plain.removeprefix(f"{sub_model}."): value
        for plain, value in ((unwrapped(name), value) for name, value in weights.items())
        if plain.startswith(f"{sub_model}.")
    }
    if not chosen:
        names = sorted({unwrapped(name).split(".", 1)[0] for name in weights})
        fix = (
            "use it as it is: it holds a single model"
            if set(names) & set(_PARTS)
            else f"choose one of {', '.join(names)} with --model; a checkpoint has a frozen teacher only with "
            "Global.save_teacher"
        )
        raise WeightsError(
            f"{checkpoint.prefix} holds no sub-model {sub_model}. Fix: {fix}.",
            code="unknown_sub_model",
        )
    write_weights(target, chosen, checkpoint.train_state())
    return len(chosen)


def write_weights(target: Path, weights: Mapping[str, np.ndarray], state: TrainState) -> None:
    """Write ``weights`` as the checkpoint ``target``, which cannot be resumed, and read them back.

    Args:
        target: path of the checkpoint, without an ending.
        weights: by name.
        state: of it only the best evaluation and the digest of the dictionary are kept.

    Raises:
        WeightsError: the file that was written is not equal.
        DataError: the target exists.
    """
    files = [Path(f"{target}{ending}") for ending in (".pdparams", ".states")]
    for file in files:
        if file.exists():
            raise DataError(
                f"{file} exists. Fix: give another name with -o, or move it away.", code="file_exists"
            )
    kept = TrainState(best=state.best, charset_digest=state.charset_digest)
    for file, content in zip(files, (dict(weights), kept.to_dict()), strict=True):
        with atomic_writer(file) as stream:
            pickle.dump(content, stream, protocol=4)  # as paddle.save does
    found = read_state(files[0])
    if found.keys() != weights.keys() or any(
        value.dtype != found[name].dtype or value.tobytes() != found[name].tobytes()
        for name, value in weights.items()
    ):
        raise WeightsError(
            f"{files[0]} does not hold what was written. Fix: check the disk.", code="damaged_file"
        )
