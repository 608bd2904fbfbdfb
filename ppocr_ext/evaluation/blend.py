"""Weights between those before a fine-tuning and those after it: most of the gain, and little is forgotten.

Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import paddle
from paddle import nn

from ppocr_ext.checkpoint.checkpoints import TrainState
from ppocr_ext.checkpoint.contents import write_weights
from ppocr_ext.checkpoint.weights import full_precision, put_back
from ppocr_ext.config import Config
from ppocr_ext.errors import WeightsError
from ppocr_ext.evaluation.evaluate import evaluate_now
from ppocr_ext.evaluation.general_list import GeneralList
from ppocr_ext.io.atomic import write_text
from ppocr_ext.messages import LOG
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.general import SECTION
from ppocr_ext.run.model_setup import load_network
from ppocr_ext.run.recogniser import single_recogniser
from ppocr_ext.run.run import Run

GENERAL, DROP = "general_acc", "general_drop"  # in the metrics of an evaluation
_HALVINGS = 3  # of the way, for each of both searches
_GIVEN_UP = 0.03  # of the accuracy on the new lines at most; of two lines, one would be half
_ROUNDING = 1e-9
_FIX = "Fix: give two checkpoints of one network and dictionary, such as those of one run."


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

    def __str__(self) -> str:
        return (
            f"{self.share:.0%} of the way from the weights before to the last ones: {self.accuracy:.2%} of Eval, "
            f"{self.general:.2%} of the general list"
        )


@paddle.no_grad()
def blended(before: Mapping[str, Any], after: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Return ``before + share * (after - before)``, tensors of floating point by name, exactly at both ends.

    BatchNorm's statistics too: measured again on images, they read no more of released models.
    """
    if share in (0.0, 1.0):
        return dict(after if share else before)
    return {name: before[name].astype(tensor.dtype).lerp(tensor, share) for name, tensor in after.items()}


def blend_tensors(network: nn.Layer) -> dict[str, Any]:
    """Return the tensors of networks that change on the way, by name: those of floating point that are not frozen."""
    frozen = frozen_models(network)
    return {
        name: tensor
        for name, tensor in network.state_dict().items()
        if tensor.is_floating_point() and name.partition(".")[0] not in frozen
    }


def least_general(before: float, max_drop: float) -> float:
    """Return the least accuracy on the general lines, if at most ``max_drop`` of ``before`` may be lost."""
    return before - max_drop - _ROUNDING


def tolerance(accuracy: float, lines: int) -> float:
    """Return the standard error of an accuracy on so many lines; at least that of one line, which may be chance."""
    share = min(max(accuracy, 0.0), 1.0)
    return max(math.sqrt(share * (1 - share) / lines), 1 / lines) + _ROUNDING


def search_blend(
    read: Callable[[float], BlendPoint], least: float, lines: int, floor: float
) -> list[BlendPoint]:
    """Find how far the weights may go until they read less than ``least`` of the general lines, and need to go.

    Both accuracies change in one direction, chance aside, so the part of the way in which that happens is halved. At
    most half of the way that is allowed is gone back: few new lines tell little.

    Args:
        read: evaluates the weights at a share of the way.
        least: the least accuracy on the general lines, from 0 to 1.
        lines: how many new lines there are.
        floor: the least accuracy on the new lines, such as that of the weights before.

    Returns:
        The points that were read, by share. 1 is among them, and 0 if the others read too little.
    """
    points = [read(1.0)]

    def halve(low: float, high: float, is_far: Callable[[BlendPoint], bool]) -> float:
        for _ in range(_HALVINGS):
            points.append(read((low + high) / 2))
            low, high = (low, points[-1].share) if is_far(points[-1]) else (points[-1].share, high)
        return low

    far = halve(0.0, 1.0, lambda point: point.general < least) if points[0].general < least else 1.0
    if far:
        enough = _enough([each for each in points if each.general >= least], lines, floor)
        halve(far / 2, far, lambda point: point.accuracy >= enough)
    else:
        points.append(read(0.0))
    return sorted(points)


def _enough(points: Sequence[BlendPoint], lines: int, floor: float) -> float:
    """Return the accuracy a standard error, or one line, below the highest one, at most 3 points; at least ``floor``.

    Breiman et al., Classification and Regression Trees, 1984: the simplest within one standard error of the best.
    """
    most = max(each.accuracy for each in points)
    return max(floor, most - min(tolerance(most, lines), _GIVEN_UP + _ROUNDING))


def best_blend(points: Sequence[BlendPoint], least: float, lines: int, floor: float) -> BlendPoint:
    """Return the point nearest to the weights before that reads at least ``least`` of the general lines.

    It reads as many new lines as the best such point, within a standard error or one line, at most 3 points. It is the
    weights before only if none reads more. Arguments are those of :func:`search_blend`.
    """
    allowed = [each for each in points if each.general >= least or not each.share]
    most = max(allowed, key=lambda each: (each.accuracy, each.general))
    enough = _enough(allowed, lines, floor)
    near = [each for each in allowed if each.share and each.accuracy >= enough]
    return min(near) if most.share and near else most


def read_way(
    tensors: Mapping[str, Any],
    ends: tuple[Mapping[str, Any], Mapping[str, Any]],
    read: Callable[[float], BlendPoint],
    *limits: Any,
) -> list[BlendPoint]:
    """Return the points of :func:`search_blend` between the weights before and after; those after stay in place.

    Args:
        tensors: those of the network.
        ends: the weights before and after.
        read: evaluates the network, which has the weights at this share of the way.
        limits: the other arguments of :func:`search_blend`.
    """

    def point(share: float) -> BlendPoint:
        put_back(blended(*ends, share), tensors)
        LOG.info("%s: %s", SECTION, found := read(share))
        return found

    points = search_blend(point, *limits)
    put_back(ends[1], tensors)
    return points


def blend_record(
    before: float, max_drop: float, points: Sequence[BlendPoint], report: Mapping[str, Any]
) -> str:
    """Return the content of ``general.json``.

    Args:
        before: the accuracy of the weights before on the lines that choose.
        max_drop: how much of it may be lost.
        points: what was read on the way.
        report: what the other lines lose with the chosen weights.
    """
    read = [each._asdict() for each in points]
    content = {"before": before, "max_drop": max_drop, "points": read, "report": report}
    return json.dumps(content, indent=1) + "\n"


def blend_checkpoints(
    config: Config, before: str, max_drop: float, *, target: Path | None, host_path: str | None = None
) -> tuple[list[BlendPoint], BlendPoint]:
    """Read weights between two checkpoints, and write the best that keep a general list.

    Args:
        config: of a recogniser, with the checkpoint after as ``Global.checkpoints``, the new lines in ``Eval`` and the
            general ones in ``Eval.general``.
        before: the checkpoint before, or a name of released weights.
        max_drop: how much of the general accuracy may be lost, from 0 to 1.
        target: the checkpoint to write, if any is better than the weights before, with the points as ``TARGET.json``.
        host_path: a PaddleOCR checkout; None searches for a host.

    Returns:
        What was read, by share, with the weights before as the first, and the best of these points.

    Raises:
        WeightsError: weights cannot be used, or are of another network or dictionary.
        PPOCRExtError: the run of the evaluation cannot be built; the message says what to change.
    """
    single, name = single_recogniser(config, None)
    # with all features, the output would be that of a sub-model
    single = single.without(["Architecture.return_all_feats"])
    run = Run.build(single, "eval", host_path=host_path, weights_of=name or "Student")
    general = GeneralList(run, max_drop, partial(evaluate_now, run))
    tensors = blend_tensors(run.network)
    after = {name: tensor.clone() for name, tensor in tensors.items()}
    _load_same_network(run.context, run.network, before)
    first = {name: tensor.clone() for name, tensor in tensors.items()}
    indicator = run.metric.main_indicator

    def read(share: float) -> BlendPoint:
        new = float(evaluate_now(run, run.data.eval_loader, run.metric)[indicator])
        return BlendPoint(share, new, general.accuracy())

    start = read(0.0)
    right = general.right()
    limits = (least_general(start.general, max_drop), len(run.data.eval_loader.dataset), start.accuracy)
    points = sorted({start, *read_way(tensors, (first, after), read, *limits)})
    best = best_blend(points, *limits)
    put_back(blended(first, after, best.share), tensors)
    report = general.compare(right) if best.share else {}
    if target and best.share:
        before_all, after_all = report.get("before", start.general), report.get("after", best.general)
        metrics = {indicator: best.accuracy, GENERAL: after_all, DROP: before_all - after_all}
        state = TrainState(best=metrics, charset_digest=run.context.charset.digest)
        weights = full_precision(run.network.state_dict())
        write_weights(target, {name: each.numpy() for name, each in weights.items()}, state)
        write_text(Path(f"{target}.json"), blend_record(start.general, max_drop, points, report))
    return points, best


def _load_same_network(context: RunContext, network: nn.Layer, path: str) -> None:
    """Load weights into the network of a run, as a training does that begins from them.

    Raises:
        WeightsError: they are of another network, or lack characters of the dictionary.
    """
    try:
        prefix = f"{context.options.weights_of}."
        rows = load_network(context, network, path, "Architecture", first_prefix=prefix).carried
    except WeightsError as fault:  # its fix is one for a training
        raise WeightsError(f"{str(fault).partition('Fix: ')[0]}{_FIX}", code=fault.code) from fault
    if rows is not None and rows.new:
        lacks = f"{path}: its dictionary lacks {rows.new_characters()} of {context.charset.name}"
        raise WeightsError(f"{lacks}. {_FIX}", code="charset_mismatch")
