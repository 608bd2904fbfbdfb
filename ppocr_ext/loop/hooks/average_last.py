"""Average the last checkpoints of a finished run, and evaluate the average: ``Global.average_last``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ppocr_ext.checkpoint.averages import mean_weights
from ppocr_ext.checkpoint.checkpoints import TrainState
from ppocr_ext.checkpoint.contents import write_weights
from ppocr_ext.checkpoint.run_checkpoints import epoch_names, remove_checkpoints
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.loop.events import Hook, Outcome, Position
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.run.model_setup import decoder_models
from ppocr_ext.run.run import Run, build_network

NAME = "averaged"


class AverageLast(Hook):
    """Write the mean of the last ``iter_epoch_N`` as the checkpoint ``averaged`` (a hook of rank 0, for finished runs).

    Args:
        count: checkpoints; a run that finishes early may have fewer.
        record: writes an entry of ``run.json``.
    """

    def __init__(self, count: int, record: Callable[[str, Any], None]) -> None:
        self._count, self._record = count, record

    def on_start(self, run: Run, position: Position) -> None:
        self._run = run

    def on_end(self, outcome: Outcome) -> None:
        if outcome.status != "finished":
            return
        run = self._run
        names = epoch_names(run.folder, outcome.position.completed().epoch)[-self._count :]
        if len(names) < 2:
            LOG.warning(
                "Global.average_last: the run has %d iter_epoch_N, so nothing is averaged", len(names)
            )
            return
        weights = mean_weights([run.folder / name for name in names])
        metrics = {} if run.eval_loader is None else self._evaluate(weights)
        remove_checkpoints(run.folder, [NAME])  # of the run before it was resumed
        state = TrainState(best=metrics, charset_digest=run.charset.digest)
        write_weights(run.folder / NAME, weights, state)
        self._record(NAME, {"checkpoint": NAME, "of": names, "metrics": metrics})
        indicator = run.metric.main_indicator
        found = f": {indicator} {metrics[indicator]:.4f}" if metrics else ""
        LOG.info("%s, the mean of %s%s", run.folder / NAME, ", ".join(names), found)

    def _evaluate(self, weights: dict[str, Any]) -> dict[str, float]:
        """Evaluate in a network of its own: that of the training may be in 16 bits, and is not to change."""
        run = self._run
        network = build_network(run.components)
        if isinstance(network, DistillationModel):
            network.eval_models = decoder_models(run.config) or ()
        put_back({**run.network.state_dict(), **weights}, network.state_dict())
        result = evaluate(replace(run, model=network))
        return {name: float(value) for name, value in result.metrics.items()}
