"""Keep what the weights read before the training: ``Eval.general``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import paddle

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.checkpoint.contents import BEFORE, BEST, POINTS, is_start, write_weights
from ppocr_ext.checkpoint.files import remove_checkpoints
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.evaluation.blend import BlendPoint, best_blend, blended, search_blend
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.adapter import evaluate_now
from ppocr_ext.loop.events import Hook, Position
from ppocr_ext.messages import LOG
from ppocr_ext.run.general import SECTION, open_general
from ppocr_ext.run.run import Run

GENERAL, DROP = "general_acc", "general_drop"  # in the metrics of an evaluation
_LITTLE = 0.5  # general accuracy before the training
_DOUBT = 0.05  # probability that lines hide a loss
_ROUNDING = 1e-9


class KeepGeneral(Hook):
    """Let only weights be the best that still read the general list (a hook of process 0).

    The list is read with the weights before the training, and whenever an evaluation is better than all before. At
    the end, the last weights are drawn back towards those before as far as it takes.

    Args:
        max_drop: how much of the general accuracy may be lost, from 0 to 1.
    """

    def __init__(self, max_drop: float) -> None:
        self._max_drop = max_drop
        self._chosen: Mapping[str, Any] = {}  # the best weights, if they are not the network's

    def on_start(self, run: Run, position: Position) -> None:
        self._run = run
        self._indicator = run.metric.main_indicator
        self._loader = open_general(run, run.network)
        self._tensors = {
            name: tensor
            for name, tensor in run.network.state_dict().items()
            if tensor.is_floating_point() and name.partition(".")[0] not in run.frozen
        }
        (run.folder / POINTS).unlink(missing_ok=True)
        self._weights_before = self._begin()
        state = run.hook_states.get(type(self).__name__, {})
        self._before = float(state["before"]) if state else self._read_before()
        # the highest accuracy of weights that have lost too much
        self._refused = float(state.get("refused", -1.0))
        percent, lines = 100 * self._before, len(self._loader.dataset)
        LOG.info("%s: the weights before the training read %.2f %% of %d lines", SECTION, percent, lines)
        if self._before < _LITTLE:
            LOG.warning("%s: that is less than half of it, so there is little to keep", SECTION)
        needed = math.ceil(math.log(_DOUBT) / math.log1p(-self._max_drop)) if self._max_drop else 0
        if lines < needed:
            of = f"it takes {needed:,} lines to show that at most {self._max_drop:.2%} are lost"
            LOG.warning("%s: %s", SECTION, of)

    def _begin(self) -> dict[str, Any]:
        """Return the weights before the training; they are in the run folder, since a resumed run needs them too."""
        own = self._run.folder / BEFORE
        resumed = self._run.checkpoint
        if resumed is None:
            remove_checkpoints(own.parent, [BEFORE])
            weights = {name: tensor.astype("float32").numpy() for name, tensor in self._tensors.items()}
        else:
            weights = Checkpoint(resumed.prefix.with_name(BEFORE)).weights()
        if not Path(f"{own}.pdparams").is_file():
            write_weights(own, weights, TrainState(charset_digest=self._run.charset.digest))
        return {name: paddle.to_tensor(value) for name, value in weights.items()}

    def state(self) -> Mapping[str, Any]:
        return {"before": self._before, "refused": self._refused}

    def saved_weights(self, name: str) -> Mapping[str, Any]:
        return self._chosen if name == BEST else {}

    def judge_best(self, metrics: Mapping[str, float], at_start: bool) -> tuple[bool, Mapping[str, float]]:
        accuracy = metrics[self._indicator]
        if accuracy <= self._refused:  # later weights have forgotten more, so the list is not read again
            return False, {}
        general = self._before if at_start else self._general()
        LOG.info("%s: %.2f %% (%.2f %% before)", SECTION, 100 * general, 100 * self._before)
        drop = self._before - general
        accepted = drop <= self._max_drop + _ROUNDING
        self._refused = self._refused if accepted else accuracy
        return accepted, {GENERAL: general, DROP: drop}

    def on_trained(self) -> None:
        """Choose among the weights between those before the training and the last ones, and write what was read."""
        last = {name: tensor.clone() for name, tensor in self._tensors.items()}
        before = self._weights_before
        metrics: dict[float, dict[str, float]] = {}

        def read(share: float) -> BlendPoint:
            put_back(blended(before, last, share), self._tensors)
            metrics[share] = self._evaluate(self._run.eval_loader)
            point = BlendPoint(share, metrics[share][self._indicator], self._general())
            LOG.info("%s: %s", SECTION, _line(point))
            return point

        least = self._before - self._max_drop - _ROUNDING
        points = search_blend(read, least)
        put_back(last, self._tensors)
        best, so_far = best_blend(points, least), self.loop.best
        if best[1:] > (so_far.get(self._indicator, -1.0), so_far.get(GENERAL, -1.0)):
            self._chosen = blended(before, last, best.share)
            found = {GENERAL: best.general, DROP: self._before - best.general}
            self.loop.save_best({**metrics[best.share], **found}, is_start=not best.share)
            LOG.info("%s: the best checkpoint has the weights of %s", SECTION, _line(best))
        content = {
            "before": self._before,
            "max_drop": self._max_drop,
            "points": [each._asdict() for each in points],
        }
        write_text(self._run.folder / POINTS, json.dumps(content, indent=1) + "\n")
        if is_start(self.loop.best):
            reason = (
                f"no weights of this training read more, and lose at most {self._max_drop:.2%} of {SECTION}"
            )
            self.loop.request_stop(reason, status="not_kept")

    @paddle.no_grad()
    def _read_before(self) -> float:
        now = {name: tensor.clone() for name, tensor in self._tensors.items()}
        put_back(self._weights_before, self._tensors)
        general = self._general()
        put_back(now, self._tensors)
        return general

    def _general(self) -> float:
        return self._evaluate(self._loader)[self._indicator]

    def _evaluate(self, loader: Any) -> dict[str, float]:
        return {
            name: float(value) for name, value in evaluate_now(self._run, loader, self._run.metric).items()
        }


def _line(point: BlendPoint) -> str:
    return (
        f"{point.share:.0%} of the way from the weights before to the last ones: {point.accuracy:.2%} of Eval, "
        f"{point.general:.2%} of the general list"
    )
