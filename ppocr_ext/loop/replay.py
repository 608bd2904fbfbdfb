"""Repeat the step of an incident alone: its batch, weights and random numbers; the run's data are not needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ppocr_ext.checkpoint.files import read_plain_pickle, read_state
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.io.arrays import load_arrays
from ppocr_ext.limits import read_json_object
from ppocr_ext.loop.anomaly import AnomalyWatch
from ppocr_ext.loop.incidents import (
    BATCH,
    CONFIG,
    LOSS,
    RECORD,
    VARIANCES,
    WEIGHTS,
    Incident,
    find_incident,
    layout_of,
)
from ppocr_ext.loop.step import limits_of
from ppocr_ext.loop.step_values import StepMeter
from ppocr_ext.losses import build_loss, required_outputs
from ppocr_ext.messages import end_text, shortened
from ppocr_ext.run.context import RunContext, RunOptions, open_context
from ppocr_ext.run.freezing import freeze_guided, freeze_parts
from ppocr_ext.run.host_config import plugin_names
from ppocr_ext.run.model_setup import restrict_outputs
from ppocr_ext.run.run import build_network
from ppocr_ext.run.train_setup import loss_context, return_features

# what Paddle and NumPy raise for arrays of other shapes and types
_MISFITS = (ValueError, TypeError, LookupError, RuntimeError, AttributeError, OSError, MemoryError)


@dataclass(frozen=True)
class Replay:
    """What a replayed step gave.

    Attributes:
        incident: what is bad in it; None if every value is good.
        operator: the operator and the layer of the first value that is not finite, if there is one.
    """

    incident: Incident | None
    operator: str | None


def replay(
    folder: Path, host_path: str | None = None, options: Sequence[str] = (), *, with_plugins: bool = False
) -> Replay:
    """Repeat the step of an incident, in float32.

    Args:
        folder: of the incident.
        host_path: a PaddleOCR checkout; None searches for a host.
        options: as after ``-o``.
        with_plugins: import ``Global.plugins`` of its config, which runs their code.

    Raises:
        DataError: the folder holds no incident, or its parts do not fit each other.
        PPOCRExtError: the networks or the loss cannot be built, or need plugins.
    """
    if not (folder / RECORD).is_file():
        raise DataError(
            f"{folder} holds no incident (found no {RECORD}). Fix: give a folder in `incidents` of a run.",
            code="no_incident",
        )
    try:
        record = read_json_object(folder / RECORD)
        number, last_good, seed = (int(record[key]) for key in ("step", "last_good_step", "paddle_seed"))
        arrays = load_arrays(folder / BATCH)
        variances = arrays.pop(VARIANCES, None)
        batch = [paddle.to_tensor(arrays[str(index)]) for index in range(len(arrays))]
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(folder, error) from error
    # every weight is in the incident; nothing else is read
    config = load([folder / CONFIG], options).with_values(
        {"Global.checkpoints": None, "Global.pretrained_model": None}
    )
    if (names := plugin_names(config)) and not with_plugins:
        raise ConfigError(
            f"{folder / CONFIG}: Global.plugins names modules, whose code would run here: {shortened(names, 3)}. "
            "Fix: read them, then add --import-plugins.",
            code="plugin_not_loaded",
        )
    models = config.at("Architecture.Models", default=None) or ()
    own = {f"Architecture.Models.{name}.pretrained": None for name in models}
    context = open_context(config.with_values(own), RunOptions("predict", host_path))
    try:
        network, loss = _network_and_loss(context, folder)
        step = _Step(network, loss, batch, variances, seed)
        meter = StepMeter(network, loss, limits_of(context.config))
        predictions, reading = step.measure(meter, number)
        if reading.is_good:
            return Replay(None, None)
        layout = layout_of(context.config)
        incident = find_incident(
            meter, reading, number, last_good, predictions, batch, layout, context.charset
        )
        return Replay(incident, step.first_operator())
    except _MISFITS as error:
        raise _damaged(folder, error) from error


def _damaged(folder: Path, error: Exception) -> DataError:
    return DataError(
        f"{folder} is not complete: {end_text(error).removeprefix('internal error: ').rstrip('.')}. "
        "Fix: copy the whole folder of the incident again.",
        code="damaged_file",
    )


def _check_ids(layer: Any, inputs: Any) -> None:
    """Refuse ids that an embedding has no row for: Paddle would read memory at their places, and the process end."""
    if int(inputs[0].min()) < 0 or int(inputs[0].max()) >= layer.weight.shape[0]:
        raise DataError(
            f"{BATCH}: a label has a class outside 0 to {layer.weight.shape[0] - 1}. Fix: copy the whole folder of the "
            f"incident again.",
            code="bad_label",
        )


def _network_and_loss(context: RunContext, folder: Path) -> tuple[Any, Any]:
    """Return network and loss as the run had them, with the weights and the state of the incident."""
    config = context.config
    network = build_network(context.components)
    loss = build_loss(context.components.at("Loss").thaw(), loss_context(network, context.charset))
    outputs = required_outputs(loss)
    restrict_outputs(network, outputs, config)
    return_features(network, outputs or ())
    freeze_parts(network, config)
    freeze_guided(network, outputs)
    for layer in network.sublayers():
        if isinstance(layer, paddle.nn.Embedding):
            layer.register_forward_pre_hook(_check_ids)
    weights = read_state(folder / WEIGHTS)
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    if wanted != {name: value.shape for name, value in weights.items()}:
        raise ValueError(f"{WEIGHTS} is of another network than {CONFIG}")
    network.set_state_dict(weights)
    state = read_plain_pickle(folder / LOSS)
    if state and isinstance(loss, paddle.nn.Layer):
        loss.set_state_dict(state)
    return network, loss


@dataclass
class _Step:
    """The step to repeat; each repetition starts from the same random numbers and running statistics."""

    network: Any
    loss: Any
    batch: list[Any]
    variances: Any
    seed: int

    def measure(self, meter: StepMeter, number: int) -> tuple[Any, Any]:
        """Return the predictions and the reading of the step."""
        layers = [layer for _, layer in meter.batch_norms]
        for layer, variance in zip(layers, () if self.variances is None else self.variances, strict=False):
            layer._variance.set_value(np.full(layer._variance.shape, variance, "float32"))
            layer._mean.set_value(np.zeros(layer._mean.shape, "float32"))
        meter.begin()
        predictions = self._forward()
        losses = self.loss(predictions, self.batch)
        factor = meter.forward(predictions, self.batch, losses, number)
        (losses["loss"] * factor).backward()
        return predictions, meter.read()

    def first_operator(self) -> str | None:
        """Return the operator and the layer of the first value that is not finite; None if all are finite."""
        watch = AnomalyWatch(self.network, self.loss)
        try:
            with watch.checking("the loss"):
                total = self.loss(self._forward(), self.batch)["loss"]
            with watch.checking("the backward pass"):
                total.backward()
        except RuntimeError as error:
            said = watch.describe(error)
            if said is None:
                raise
            return said
        return None

    def _forward(self) -> Any:
        paddle.seed(self.seed)
        self.network.train()
        self.network.clear_gradients()
        return self.network(self.batch[0], data=self.batch[1:])
