"""Keep what the weights read before the training: ``Eval.general``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.checkpoint.contents import BEFORE, BEST, POINTS, is_start, write_weights
from ppocr_ext.checkpoint.files import remove_checkpoints
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.evaluation.blend import (
    DROP,
    GENERAL,
    BlendPoint,
    best_blend,
    blend_record,
    blend_tensors,
    blended,
    least_general,
    search_blend,
    tolerance,
    warn_of_few_lines,
)
from ppocr_ext.evaluation.evaluate import evaluate_now
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import Hook
from ppocr_ext.messages import LOG
from ppocr_ext.run.general import SECTION, open_general
from ppocr_ext.run.run import Run, Training

_LITTLE = 0.5  # general accuracy before the training


class KeepGeneral(Hook):
    """Let only weights be the best that still read the general list (a hook of process 0).

    The list is read with the weights before the training, and whenever an evaluation is better than all before. At
    the end, the last weights are drawn back towards those before, as far as the list takes and the new lines allow.

    Args:
        max_drop: how much of the general accuracy may be lost, from 0 to 1.
    """

    def __init__(self, max_drop: float) -> None:
        self._max_drop = max_drop
        self._chosen: Mapping[str, Any] = {}  # the best weights, if they are not the network's

    def on_start(self, run: Run, training: Training) -> None:
        self._run = run
        self._folder = run.context.folder
        self._indicator = run.metric.main_indicator
        self._loader = self.loop.interruptible(open_general(run.context, run.network, run.data.preflight))
        self._tensors = blend_tensors(run.network)
        self._exact = training.full_precision
        (self._folder / POINTS).unlink(missing_ok=True)
        self._weights_before = self._begin()
        state = training.hook_states.get(type(self).__name__, {})
        self._before = float(state["before"]) if state else self._general()
        # the highest accuracy of weights that have lost too much
        self._refused = float(state.get("refused", -1.0))
        self._start = float(state.get("start", 0.0))
        lines = len(self._loader.dataset)
        LOG.info("%s", f"{SECTION}: the weights before the training read {self._before:.2%} of {lines} lines")
        if self._before < _LITTLE:
            LOG.warning("%s: that is less than half of it, so there is little to keep", SECTION)
        warn_of_few_lines(lines, self._max_drop)

    def _begin(self) -> dict[str, Any]:
        """Return the weights before the training; they are in the run folder, since a resumed run needs them too."""
        own = self._folder / BEFORE
        resumed = self._run.context.checkpoint
        if resumed is None:
            remove_checkpoints(own.parent, [BEFORE])
            weights = {name: tensor.numpy() for name, tensor in self._exact(self._tensors).items()}
        else:
            weights = Checkpoint(resumed.prefix.with_name(BEFORE)).weights()
        if not Path(f"{own}.pdparams").is_file():
            write_weights(own, weights, TrainState(charset_digest=self._run.context.charset.digest))
        return {name: paddle.to_tensor(value) for name, value in weights.items()}

    def state(self) -> Mapping[str, Any]:
        return {"before": self._before, "refused": self._refused, "start": self._start}

    def saved_weights(self, name: str) -> Mapping[str, Any]:
        return self._chosen if name == BEST else {}

    def judge_best(self, metrics: Mapping[str, float], at_start: bool) -> tuple[bool, Mapping[str, float]]:
        accuracy = metrics[self._indicator]
        if at_start:
            self._start = accuracy  # of the new lines, with the weights before
        if accuracy <= self._refused:  # reading takes time, and the last weights are read anyway
            return False, {}
        general = self._before if at_start else self._general()
        LOG.info("%s", f"{SECTION}: {general:.2%} ({self._before:.2%} before)")
        accepted = general >= least_general(self._before, self._max_drop)
        self._refused = self._refused if accepted else accuracy
        accepted = accepted and (accuracy, general) >= self._to_reach()
        return accepted, {GENERAL: general, DROP: self._before - general}

    def _to_reach(self) -> tuple[float, float]:
        """Return what the best weights read: new lines, and general ones, which decide between equal ones.

        Those before the training give way to trained ones that read as many new lines.
        """
        best = self.loop.best
        return best.get(self._indicator, -1.0), -1.0 if is_start(best) else best.get(GENERAL, -1.0)

    def on_trained(self) -> None:
        """Choose among the weights between those before the training and the last ones, and write what was read."""
        last = {name: tensor.clone() for name, tensor in self._exact(self._tensors).items()}
        before = self._weights_before
        metrics: dict[float, dict[str, float]] = {}

        def read(share: float) -> BlendPoint:
            put_back(blended(before, last, share), self._tensors)
            metrics[share] = self._evaluate(self._run.data.eval_loader)
            point = BlendPoint(share, metrics[share][self._indicator], self._general())
            LOG.info("%s: %s", SECTION, point)
            return point

        least = least_general(self._before, self._max_drop)
        lines = len(self._run.data.eval_loader.dataset)
        reached = max(0.0, self._to_reach()[0])
        # the best of many evaluations owes something to chance
        chance = 0.0 if is_start(self.loop.best) else 2 * tolerance(reached, lines)
        floor = max(self._start, reached - chance)
        points = search_blend(read, least, lines, floor)
        put_back(last, self._tensors)
        best = best_blend(points, least, lines, floor)
        if (best.share and best.accuracy >= floor) or not self.loop.best:
            self._chosen = blended(before, last, best.share)
            found = {GENERAL: best.general, DROP: self._before - best.general, "share": best.share}
            self.loop.save_best({**metrics[best.share], **found}, is_start=not best.share)
            LOG.info("%s: the best checkpoint has the weights of %s", SECTION, best)
        write_text(self._folder / POINTS, blend_record(self._before, self._max_drop, points))
        if is_start(self.loop.best):
            reason = (
                f"no weights of this training read as many new lines as those before, and lose at most "
                f"{self._max_drop:.2%} of {SECTION}. Fix: let such real lines train (init --general), or allow more "
                "(Eval.general.max_drop); `latest` has the last weights"
            )
            self.loop.request_stop(reason, status="not_kept")

    def _general(self) -> float:
        return self._evaluate(self._loader)[self._indicator]

    def _evaluate(self, loader: Any) -> dict[str, float]:
        return {
            name: float(value) for name, value in evaluate_now(self._run, loader, self._run.metric).items()
        }
