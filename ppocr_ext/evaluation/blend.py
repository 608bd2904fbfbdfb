"""Weights between those before a fine-tuning and those after it: most of the gain, and little is forgotten.

Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import paddle
from paddle import nn

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.checkpoint.contents import write_weights
from ppocr_ext.checkpoint.weight_match import match_weights
from ppocr_ext.checkpoint.weights import full_precision, put_back
from ppocr_ext.config import Config
from ppocr_ext.errors import WeightsError
from ppocr_ext.evaluation.evaluate import evaluate_now
from ppocr_ext.io.atomic import write_text
from ppocr_ext.messages import LOG
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.general import SECTION, open_general
from ppocr_ext.run.model_setup import load_network
from ppocr_ext.run.recogniser import single_recogniser
from ppocr_ext.run.run import Run

GENERAL, DROP = "general_acc", "general_drop"  # in the metrics of an evaluation
_HALVINGS = 3  # of the way, for each of both searches
_DOUBT = 0.05  # probability that lines hide a loss
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


def warn_of_few_lines(lines: int, max_drop: float) -> None:
    """Warn if a general list has too few lines to show that at most ``max_drop`` of them are lost."""
    needed = math.ceil(math.log(_DOUBT) / math.log1p(-max_drop)) if 0 < max_drop < 1 else 0
    if lines < needed:
        of = f"it takes {needed:,} lines to show that at most {max_drop:.2%} are lost"
        LOG.warning("%s: %s (found %d)", SECTION, of, lines)


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


def blend_record(before: float, max_drop: float, points: Sequence[BlendPoint]) -> str:
    """Return the content of ``general.json``: the general accuracy before, its limit, and what was read."""
    content = {"before": before, "max_drop": max_drop, "points": [each._asdict() for each in points]}
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
    loader = open_general(run.context, run.network, run.data.preflight)
    warn_of_few_lines(len(loader.dataset), max_drop)
    tensors = blend_tensors(run.network)
    after = {name: tensor.clone() for name, tensor in tensors.items()}
    _load_same_network(run.context, run.network, before)
    first = {name: tensor.clone() for name, tensor in tensors.items()}
    indicator = run.metric.main_indicator

    def read(share: float) -> BlendPoint:
        put_back(blended(first, after, share), tensors)
        new, general = (
            float(evaluate_now(run, each, run.metric)[indicator]) for each in (run.data.eval_loader, loader)
        )
        LOG.info("%s", point := BlendPoint(share, new, general))
        return point

    start = read(0.0)
    least = least_general(start.general, max_drop)
    lines = len(run.data.eval_loader.dataset)
    limits = (least, lines, start.accuracy)
    points = sorted({start, *search_blend(lambda share: read(share) if share else start, *limits)})
    best = best_blend(points, *limits)
    if target and best.share:
        put_back(blended(first, after, best.share), tensors)
        metrics = {indicator: best.accuracy, GENERAL: best.general, DROP: start.general - best.general}
        state = TrainState(best=metrics, charset_digest=run.context.charset.digest)
        write_weights(
            target,
            {name: each.numpy() for name, each in full_precision(run.network.state_dict()).items()},
            state,
        )
        write_text(Path(f"{target}.json"), blend_record(start.general, max_drop, points))
    return points, best


def _load_same_network(context: RunContext, network: nn.Layer, path: str) -> None:
    """Load weights into the network of a run, if they are of this network and its dictionary.

    Raises:
        WeightsError: they are not; the message names the first entry that differs.
    """
    checkpoint = Checkpoint(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    prefix = f"{context.options.weights_of}."
    match = match_weights(checkpoint.weights_file(), checkpoint.weights(), shapes, prefix)
    name = next((name for name in shapes if name not in match.matched), None)
    if name is not None:
        theirs = list(match.wrong_shape[name][0]) if name in match.wrong_shape else "missing"
        raise WeightsError(
            f"{path}: of another network or dictionary than {context.config.settings.checkpoints}: {name} is {theirs} "
            f"(expected {list(shapes[name])}). {_FIX}",
            code="architecture_mismatch",
        )
    is_other = checkpoint.train_state().charset_digest not in (None, context.charset.digest)
    if is_other or load_network(context, network, path, None, first_prefix=prefix).carried is not None:
        raise WeightsError(
            f"{path}: of another dictionary than {context.charset.name}. {_FIX}", code="charset_mismatch"
        )
