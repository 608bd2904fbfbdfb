"""Keep what the weights read before the training: ``Eval.general``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.checkpoint.contents import BEFORE, BEST, POINTS, is_start, write_weights
from ppocr_ext.checkpoint.files import remove_checkpoints
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.data.mixing import mixed_lists
from ppocr_ext.evaluation.blend import (
    DROP,
    GENERAL,
    BlendPoint,
    best_blend,
    blend_record,
    blend_tensors,
    blended,
    least_general,
    read_way,
    tolerance,
)
from ppocr_ext.evaluation.evaluate import evaluate_now
from ppocr_ext.evaluation.general_list import GeneralList
from ppocr_ext.evaluation.uncertainty import Rate
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import Hook
from ppocr_ext.messages import LOG, command_line
from ppocr_ext.run.general import SECTION, weights_before
from ppocr_ext.run.run import Run, Training

_LITTLE = 0.5  # general accuracy before the training
# Lines read for each sample that trains: a quarter of the time, since a line takes a third of that of a sample.
_MOST_READ = 0.25 * 3


class KeepGeneral(Hook):
    """Let only weights be the best that still read the general list (a hook of process 0).

    Whenever an evaluation is better than all before, some lines of the list choose, if that takes little of the
    training's time. At the end, the last weights are drawn back towards those before, as far as these lines take and
    the new lines allow. The other lines, which choose nothing, are read before and then, and tell what is lost.

    Args:
        max_drop: how much of the general accuracy may be lost, from 0 to 1.
    """

    def __init__(self, max_drop: float) -> None:
        self._max_drop = max_drop
        self._chosen: Mapping[str, Any] = {}  # the best weights, if they are not the network's

    def on_start(self, run: Run, training: Training) -> None:
        """Read the list with the weights before the training, or take what was read from a checkpoint.

        Raises:
            DataError: the list cannot be used.
            WeightsError: the weights before the training are not beside the checkpoint.
        """
        self._run = run
        self._folder = run.context.folder
        self._indicator = run.metric.main_indicator
        self._tensors = blend_tensors(run.network)
        self._exact = training.full_precision
        self._list = general = GeneralList(run, self._max_drop, self._read)
        self._before = self._begin()
        (self._folder / POINTS).unlink(missing_ok=True)
        loader = run.data.train_loader
        mixed = sum(float(each.ratio) for each in mixed_lists(run.context.config))
        self._samples_a_step = (1 + mixed) * len(loader.dataset) / len(loader) / run.context.team.size
        self._state = dict(training.hook_states.get(type(self).__name__, {}))
        if self._state.get("list") != general.digest:
            self._read_before()
        read = f"{self._state['before']:.2%} of {general.chooses} lines, which choose; {general.reports} others report"
        LOG.info("%s: the weights before the training read %s", SECTION, read)
        if self._state["before"] < _LITTLE:
            LOG.warning("%s: that is less than half of it, so there is little to keep", SECTION)

    def _begin(self) -> dict[str, Any]:
        """Return the weights before the training; they are in the run folder, since a resumed run needs them too."""
        own = self._folder / BEFORE
        resumed = self._run.context.checkpoint
        if resumed is None or resumed.prefix.parent.resolve() != self._folder.resolve():
            remove_checkpoints(own.parent, [BEFORE])  # of another run
        if resumed is None:
            weights = {name: tensor.numpy() for name, tensor in self._exact(self._tensors).items()}
        else:
            weights = weights_before(resumed)
        if not Path(f"{own}.pdparams").is_file():
            write_weights(own, weights, TrainState(charset_digest=self._run.context.charset.digest))
        return {name: paddle.to_tensor(value) for name, value in weights.items()}

    def _read_before(self) -> None:
        """Read the list with the weights before the training."""
        if self._state:
            LOG.warning(
                "%s: another list than before the stop; the weights before the training read it", SECTION
            )
        now = self._put(self._before)
        self._state |= {
            "is_other": bool(self._state),
            "list": self._list.digest,
            "before": self._list.accuracy(),
            "right": self._list.right(),
            "read": self._state.get("read", 0) + self._list.chooses + self._list.reports,
        }
        put_back(now, self._tensors)

    def _put(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Put weights into the network; return those that it had."""
        now = {name: tensor.clone() for name, tensor in self._tensors.items()}
        put_back({name: weights[name] for name in now}, self._tensors)
        return now

    def state(self) -> Mapping[str, Any]:
        return self._state

    def saved_weights(self, name: str) -> Mapping[str, Any]:
        return self._chosen if name == BEST else {}

    def judge_best(self, metrics: Mapping[str, float], step: int) -> tuple[bool, Mapping[str, float]]:
        accuracy = metrics[self._indicator]
        if not step:
            self._state["start"] = accuracy  # of the new lines, with the weights before
            return True, {GENERAL: self._state["before"], DROP: 0.0}
        read = self._state["read"] + self._list.chooses
        if read > _MOST_READ * self._samples_a_step * step:
            LOG.info("%s: not read, and so not the best: reading would take over 25 %% of the time", SECTION)
            return False, {}
        self._state["read"] = read
        general = self._list.accuracy()
        LOG.info("%s", f"{SECTION}: {general:.2%} ({self._state['before']:.2%} before)")
        accepted = general >= least_general(self._state["before"], self._max_drop)
        accepted = accepted and (accuracy, general) >= self._to_reach()
        self._state["is_other"] = self._state["is_other"] and not accepted
        return accepted, {GENERAL: general, DROP: self._state["before"] - general}

    def _to_reach(self) -> tuple[float, float]:
        """Return what the best weights read: new lines, and general ones, which decide between equal ones.

        Those before the training give way to trained ones that read as many new lines.
        """
        best = self.loop.best
        return best.get(self._indicator, -1.0), -1.0 if is_start(best) else best.get(GENERAL, -1.0)

    def on_trained(self) -> None:
        """Choose among the weights between those before the training and the last ones, and write what was read."""
        metrics: dict[float, dict[str, float]] = {}
        loader = self._run.data.eval_loader
        lines = len(loader.dataset)
        last = {name: tensor.clone() for name, tensor in self._exact(self._tensors).items()}

        def read(share: float) -> BlendPoint:
            found = self._read(loader, self._run.metric)
            metrics[share] = {name: float(value) for name, value in found.items()}
            return BlendPoint(share, metrics[share][self._indicator], self._list.accuracy())

        start = BlendPoint(0.0, self._state["start"], self._state["before"])
        reached = max(0.0, self._to_reach()[0])
        # the best of many evaluations owes something to chance, and later weights have a lower rate
        chance = 0.0 if is_start(self.loop.best) else math.sqrt(8) * tolerance(reached, lines)
        limits = (least_general(start.general, self._max_drop), lines, max(start.accuracy, reached - chance))
        LOG.info("%s: weights on the way back are read now, by some evaluations of %d lines", SECTION, lines)
        points = read_way(self._tensors, (self._before, last), read, *limits)
        # the best weights so far may be elsewhere, or have lost what another list has
        is_known = (self._folder / f"{BEST}.pdparams").is_file() and not self._state["is_other"]
        best = best_blend(points, *limits)
        best = best if is_known or best.accuracy >= start.accuracy else start
        if is_new := bool(best.share and best.accuracy >= limits[2]) or not is_known:
            self._chosen = blended(self._before, last, best.share)
        report = {}
        if is_new or not is_start(self.loop.best):  # those before have lost nothing
            self._put(self._chosen or Checkpoint(self._folder / BEST).weights())
            report = self._list.compare(self._state["right"])
            put_back(last, self._tensors)
        if is_new:
            # the lines that chose would promise too much
            was, now = report.get("before", start.general), report.get("after", best.general)
            found = {
                **metrics.get(best.share, {self._indicator: start.accuracy}),
                GENERAL: now,
                DROP: was - now,
                "share": best.share,
            }
            self.loop.save_best(found, is_start=not best.share)
            LOG.info("%s: the best checkpoint has the weights of %s", SECTION, best)
        write_text(self._folder / POINTS, blend_record(start.general, self._max_drop, points, report))
        if is_start(self.loop.best):
            self.loop.request_stop(self._why_not_kept(points, start), status="not_kept")
        elif not is_new:
            why = f"no later weights that keep the list read {limits[2]:.2%}"
            LOG.info("%s: an earlier best stays (%s): %s", SECTION, Rate(round(reached * lines), lines), why)

    def _why_not_kept(self, points: Sequence[BlendPoint], start: BlendPoint) -> str:
        """Return why the weights before the training stay the best, and how others can be had."""
        fix = "Fix: let such real lines train (init --general)"
        if gained := [each.general for each in points if each.share and each.accuracy >= start.accuracy]:
            drop = math.ceil(1e4 * (start.general - max(gained))) / 1e4
            words = ("--max-drop", f"{drop:g}", "--out", self._folder / "kept")
            fix += ", or allow more: " + command_line(
                "blend",
                self._folder,
                self._folder / "latest",
                *words,
                host=self._run.context.options.host_path,
            )
        return (
            "no weights of this training read as many new lines as those before, and lose at most "
            f"{self._max_drop:.2%} of {SECTION}. {fix}"
        )

    def _read(self, loader: Any, metric: Any) -> Mapping[str, float]:
        """Evaluate as :func:`evaluate_now`; a stop meanwhile saves."""
        return evaluate_now(self._run, self.loop.interruptible(loader), metric)
