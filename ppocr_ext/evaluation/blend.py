"""Weights between those before a fine-tuning and those after it: most of the gain, and little is forgotten.

Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import paddle

_HALVINGS = 4  # of the way; a sixteenth of it is less than the lists can tell apart


class BlendPoint(NamedTuple):
    """What weights on the way read.

    Attributes:
        share: of the way from the weights before (0) to those after (1).
        accuracy: of the new lines, from 0 to 1.
        general: of the general lines, from 0 to 1.
    """

    share: float
    accuracy: float
    general: float


@paddle.no_grad()
def blended(before: Mapping[str, Any], after: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Return ``before + share * (after - before)``, tensors of floating point by name, exactly at both ends.

    BatchNorm's statistics too: measured again on images, they read no more of released models.
    """
    if share in (0.0, 1.0):
        return dict(after if share else before)
    return {name: before[name].astype(tensor.dtype).lerp(tensor, share) for name, tensor in after.items()}


def search_blend(read: Callable[[float], BlendPoint], least: float) -> list[BlendPoint]:
    """Find how far the weights may go until they read less than ``least`` of the general lines.

    Both accuracies change in one direction, chance aside, so the part of the way in which that happens is halved.

    Args:
        read: evaluates the weights at a share of the way.
        least: the least accuracy on the general lines, from 0 to 1.

    Returns:
        The points that were read, by share. 1 is among them, and 0 if the others read too little.
    """
    points = [read(1.0)]
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS if points[0].general < least else 0):
        points.append(read((low + high) / 2))
        if points[-1].general < least:
            high = points[-1].share
        else:
            low = points[-1].share
    if all(each.general < least for each in points):
        points.append(read(0.0))
    return sorted(points)


def best_blend(points: Sequence[BlendPoint], least: float) -> BlendPoint:
    """Return the point that reads most new lines and at least ``least`` of the general ones, or that of share 0."""
    allowed = [each for each in points if each.general >= least or not each.share]
    return max(allowed, key=lambda each: (each.accuracy, each.general))
