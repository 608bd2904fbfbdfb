"""Measure how much a model reads correctly under each width policy, and recommend one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from tqdm import tqdm

from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.errors import DataError
from ppocr_ext.export.clients import CLIENT_WIDTH
from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.images import read_image
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.resize import Kind


def accuracy_by_policy(
    parts: RecognizerParts, label_file: Path, width: int | None = None
) -> dict[str, float]:
    """Return the share of samples whose text equals the label, by width policy.

    Args:
        parts: the model, the policy that it was trained with, and its dictionary.
        label_file: ``image<TAB>label`` lines; images are relative to its folder.
        width: the only width that the model takes; None: every width.

    Raises:
        DataError: the file has no sample, or an image cannot be read.
        WeightsError: the engine's classes are not those of the dictionary.
    """
    kinds: list[Kind] = [kind for kind in get_args(Kind) if width is None or kind != "widen"]
    policies = [
        replace(parts.policy, kind=kind, max_width=CLIENT_WIDTH if kind == "widen" else None)
        for kind in kinds
    ]
    right, count = dict.fromkeys(kinds, 0), 0
    for image, label in tqdm(_samples(label_file), desc="width policies", unit=" images", disable=None):
        count += 1
        for each in policies:  # one image at a time: a batch needs one width
            found = parts.probabilities(each.prepare(image)[None])[0]
            right[each.kind] += read(found, parts.charset, reorder=parts.reorder).text == label
    if not count:
        raise DataError(f"{label_file} has no sample. Fix: write `image<TAB>label` lines.", code="no_samples")
    return {kind: correct / count for kind, correct in right.items()}


def _samples(label_file: Path) -> Iterator[tuple[np.ndarray, str]]:
    for line in read_label_file(label_file):
        if line.issue is not None:
            raise DataError(f"{label_file}:{line.number}: {line.issue}", code="bad_line")
        yield read_image(label_file.parent / line.images[0]), line.label


def recommended(accuracy: Mapping[str, float], trained: str) -> str:
    """Return the width policy that reads most; of equals the one that the model was trained with."""
    return max(accuracy, key=lambda kind: (accuracy[kind], kind == trained))
