"""Find the step in which a reader differs from the trained network, by swapping the steps one at a time.

What the graph was given is compared with the image prepared in each known wrong way; what the graph returned, with what
the network returns for the same input; the text, with the network's dictionary on the same probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, get_args

import cv2
import numpy as np

from ppocr_ext.recognition.ctc_text import read
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.resize import Color, Kind, WidthPolicy

_SAME = 1e-3  # of values of an input, which go from -1 to 1
_NEAR = 0.1  # mean difference of an input that only another library has resized
_INTERPOLATIONS = {
    "": cv2.INTER_LINEAR,
    "the nearest pixel in place of linear interpolation": cv2.INTER_NEAREST,
    "cubic in place of linear interpolation": cv2.INTER_CUBIC,
    "the mean of an area in place of linear interpolation": cv2.INTER_AREA,
    "Lanczos in place of linear interpolation": cv2.INTER_LANCZOS4,
}
_MEAN, _DEVIATION = (
    np.array(values, np.float32)[:, None, None] for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
)
_NORMALISATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda pixels: (pixels - 0.5) / 0.5,
    "the values go from 0 to 255": lambda pixels: pixels * 255,
    "the values go from 0 to 1": lambda pixels: pixels,
    "with mean and deviation of ImageNet": lambda pixels: (pixels - _MEAN) / _DEVIATION,
}


class Fault(NamedTuple):
    """What differs: ``decode``, ``resize``, ``width policy``, ``graph``, …, and how."""

    step: str
    detail: str

    def __str__(self) -> str:
        """Return ``channel order: RGB in place of BGR``."""
        return f"{self.step}: {self.detail}"


@dataclass(frozen=True, eq=False)
class Seen:
    """What a reader made of one image.

    Attributes:
        text: what it read.
        probabilities: float32 [T, C].
        input: what it gave the graph, float32 [3, H, W].
    """

    text: str
    probabilities: np.ndarray
    input: np.ndarray


def input_faults(policy: WidthPolicy, pixels: np.ndarray, found: np.ndarray) -> list[Fault]:
    """Return the steps before the graph that differ; none if the input is right.

    Args:
        policy: how the image should be prepared.
        pixels: the image, uint8 [H, W, 3] in BGR.
        found: what the graph was given, float32 [3, H, W].
    """
    expected = policy.prepare(pixels)
    if distance(expected, found) <= _SAME:
        return []
    columns = expected.shape[2]
    wider = found.shape[:2] == expected.shape[:2] and found.shape[2] > columns
    if wider and distance(expected, found[:, :, :columns]) <= _SAME and not found[:, :, columns:].any():
        return [Fault("batch padding", f"filled up from {columns} to {found.shape[2]} columns")]
    # fewer swapped steps first, so that one wrong step is not explained by two
    for faults, prepared in sorted(_ways(policy, pixels), key=lambda way: len(way[0])):
        if distance(prepared, found) <= _SAME:
            return faults
    if found.shape != expected.shape:
        return [Fault("width policy", f"the input is {list(found.shape)}, expected {list(expected.shape)}")]
    if float(np.abs(expected - found).mean()) <= _NEAR:
        return [Fault("resize", "values that no interpolation of OpenCV gives")]
    return [Fault("decode", "the input is of other pixels than those of the image")]


def _ways(policy: WidthPolicy, pixels: np.ndarray) -> Iterator[tuple[list[Fault], np.ndarray]]:
    """Yield the image prepared in each known way, with the steps in which that differs from ``policy``."""
    images = {
        "": pixels,
        "grey": cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR),
        "turned": np.rot90(pixels, 1),
        "turned back": np.rot90(pixels, 3),
    }
    kinds, colors = get_args(Kind), get_args(Color)
    ways = product(images.items(), kinds, colors, _INTERPOLATIONS.items(), _NORMALISATIONS.items())
    for (decoding, image), kind, color, (interpolation, flag), (values, normalised) in ways:
        swapped = replace(policy, kind=kind, color=color)
        columns, filled = swapped.widths(*image.shape[:2])
        shape = (3, policy.image_shape[1], filled)
        resized = cv2.resize(image, shape[:0:-1], interpolation=flag)
        scaled = (WidthPolicy("squash", shape, color).prepare(resized) + 1) / 2  # of its own size already
        prepared = np.zeros((*shape[:2], columns), np.float32)
        prepared[:, :, :filled] = normalised(scaled)
        differing = {
            "decode": f"the image is {decoding}" if decoding else "",
            "width policy": f"{kind} in place of {policy.kind}" if kind != policy.kind else "",
            "resize": interpolation,
            "channel order": f"{color} in place of {policy.color}" if color != policy.color else "",
            "normalisation": values,
        }
        yield [Fault(step, detail) for step, detail in differing.items() if detail], prepared


def output_faults(right: RecognizerParts, seen: Seen, tolerance: float) -> list[Fault]:
    """Return ``graph`` and ``dictionary`` if they differ, on the input that the reader itself prepared.

    Args:
        right: the network.
        seen: what the reader made of an image.
        tolerance: the largest difference of probabilities that is accepted.
    """
    expected, found = right.engine.probabilities(seen.input[None])[0], seen.probabilities
    faults = []
    if distance(expected, found) > tolerance:
        powers = np.exp(expected)
        twice = distance(powers / powers.sum(axis=-1, keepdims=True), found) <= tolerance
        shape = f"the output is {list(found.shape)}, expected {list(expected.shape)}"
        what = "a second softmax" if twice else "other weights or layers"
        faults.append(Fault("graph", what if expected.shape == found.shape else shape))
    if found.shape[1:] != (right.charset.ctc_classes,):
        return faults
    text = read(found, right.charset, reorder=right.reorder).text
    if text != seen.text:
        faults.append(Fault("dictionary", f"{seen.text!r} in place of {text!r} for the same classes"))
    return faults


def distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference of two arrays; infinite if the shapes differ or a number is NaN."""
    if expected.shape != found.shape:
        return float("inf")
    largest = float(np.abs(expected - found).max())
    return largest if largest == largest else float("inf")
