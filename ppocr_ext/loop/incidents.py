"""Incidents: describe a step with a bad value, store its batch and weights, and replay it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import read_plain_pickle, read_state, tensors_to_bytes
from ppocr_ext.checkpoint.weights import STATISTICS
from ppocr_ext.config import Config, load
from ppocr_ext.config.derive import is_inference_model
from ppocr_ext.data.batches import BatchLayout, images_of, labels_of
from ppocr_ext.data.sample_rules import frames_needed
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.io.atomic import atomic_folder, require_no_link
from ppocr_ext.io.plain_pickle import load_arrays
from ppocr_ext.limits import read_json_object
from ppocr_ext.loop.step_values import (
    LARGEST,
    AnomalyWatch,
    StepMeter,
    StepReading,
    ctc_logits,
    head_outputs,
    limits_of,
)
from ppocr_ext.losses import CTCLoss, required_outputs
from ppocr_ext.messages import LOG, command_line, end_text, shortened
from ppocr_ext.run.context import RunContext, RunOptions, open_context
from ppocr_ext.run.freezing import choose_trained
from ppocr_ext.run.host_config import plugin_names
from ppocr_ext.run.inference_models import inference_models
from ppocr_ext.run.networks import build_network
from ppocr_ext.run.train_setup import Training, loss_for, loss_state

INCIDENTS = "incidents"  # name of the folder in the run folder
RECORD = "incident.json"
BATCH = "batch.npz"
WEIGHTS = "weights.pdparams"
LOSS = "loss.pdparams"
CONFIG = "config.yml"
VARIANCES = "running_variances"  # key in the file BATCH
_MOST_KEPT = 5  # each holds all weights
_SHOWN = 5  # samples and names in the log


@dataclass(frozen=True)
class SampleFacts:
    """One sample of the batch.

    Attributes:
        row: its place in the batch.
        image: the greatest absolute value of its image.
        label: its text; None if the batch has no CTC label.
        frames: T of the CTC output.
        needed: number of frames that CTC needs for the label.
        ctc_loss: by sub-model.
    """

    row: int
    image: float
    label: str | None = None
    frames: int | None = None
    needed: int | None = None
    ctc_loss: Mapping[str, float] = field(default_factory=dict)

    def badness(self, limit: float) -> tuple[bool, bool, bool, float]:
        """Return a sort key: an image above ``limit``, a loss that is not finite, a misfit, the greatest loss."""
        losses = list(self.ctc_loss.values())
        finite = [value for value in losses if math.isfinite(value)]
        misfit = self.frames is not None and self.needed is not None and self.needed > self.frames
        return (not self.image <= limit, len(finite) < len(losses), misfit, max(finite, default=0.0))

    def text(self) -> str:
        """Return one line for the log."""
        parts = [f"sample {self.row}: image up to {self.image:.4g}"]
        parts += [
            f"CTC loss {f'of {name} ' if name else ''}{value:.4g}" for name, value in self.ctc_loss.items()
        ]
        if self.label is not None:
            parts.append(f"label {self.label!r} needs {self.needed} of {self.frames} frames")
        return ", ".join(parts)


@dataclass(frozen=True)
class Incident:
    """A step with a bad value.

    Attributes:
        step: its number, from 1.
        last_good_step: the last step whose gradient was applied.
        bad: descriptions of the bad values.
        weights: names of parameters that were not finite before the step.
        gradients: names of parameters whose gradient is not finite.
        values: all values of the step, by name.
        samples: the samples of the batch, the worst first.
    """

    step: int
    last_good_step: int
    bad: Sequence[str]
    weights: Sequence[str] = ()
    gradients: Sequence[str] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    samples: Sequence[SampleFacts] = ()

    @property
    def summary(self) -> str:
        """One sentence, for the reason in ``run.json``."""
        causes = [f"{shortened(self.weights, 1)} was not finite before it"] if self.weights else []
        return f"step {self.step}: {shortened([*causes, *self.bad], 2, '; ')}"

    def lines(self) -> list[str]:
        """Return the lines for the log."""
        lines = [f"step {self.step} is bad (last good step {self.last_good_step}):"]
        lines += [f"  {text}" for text in self.bad]
        if self.weights:
            lines.append(
                f"  weights that were not finite before this step: {shortened(self.weights, _SHOWN)}"
            )
        if self.gradients:
            lines.append(f"  gradients that are not finite: {shortened(self.gradients, _SHOWN)}")
        return lines + [f"  {sample.text()}" for sample in self.samples[:_SHOWN]]


def find_incident(
    meter: StepMeter,
    reading: StepReading,
    step: int,
    last_good: int,
    predictions: Any,
    batch: Sequence[Any],
    layout: BatchLayout,
    charset: Charset,
) -> Incident:
    """Return the incident of a step; this may take as long as the step.

    Args:
        meter: has measured the step.
        reading: its values.
        step: its number, from 1.
        last_good: the last step whose gradient was applied.
        predictions: the predictions of the network.
        batch: the batch of the step.
        layout: the layout of the batch.
        charset: the dictionary.
    """
    # If "max" is bad, "min" says nothing new.
    names = [
        name for name in reading.bad if not name.endswith(" min") or f"{name[:-3]}max" not in reading.bad
    ]
    problems = [_in_words(name, reading.values[name], meter) for name in names]
    if not reading.bad:
        problems = [f"the gradient's norm is {reading.grad_norm:g}, with a finite loss and finite outputs"]
    weights = [
        name
        for name, p in meter.network.named_parameters()
        if not name.endswith(STATISTICS) and not _is_finite(p)
    ]
    # After a bad forward pass all gradients are NaN, since the loss was multiplied by NaN.
    trained = () if reading.bad else meter.trained
    gradients = [name for name, p in trained if p.grad is not None and not _is_finite(p.grad)]
    samples = _samples(meter, predictions, batch, layout, charset)
    samples.sort(key=lambda sample: sample.badness(min(meter.limits.image, LARGEST)), reverse=True)
    return Incident(step, last_good, problems, weights, gradients, dict(reading.values), samples)


def _in_words(name: str, value: float, meter: StepMeter) -> str:
    limits = meter.limits
    if not math.isfinite(value):
        where = f" (in {meter.worst_batch_norm()})" if name == "batch variance" else ""
        return f"{name} is {value:g}{where}"
    if name.startswith("image"):
        return f"{name} is {value:.4g}, above Global.absurd_input: {limits.image:g}"
    return (
        f"the batch variance in {meter.worst_batch_norm()} is {value:.4g} times the running one, above "
        f"Global.absurd_variance: {limits.variance:g}"
    )


@paddle.no_grad()
def _is_finite(tensor: Any) -> bool:
    return bool(paddle.isfinite(tensor.astype("float32")).all())


@paddle.no_grad()
def _samples(
    meter: StepMeter, predictions: Any, batch: Sequence[Any], layout: BatchLayout, charset: Charset
) -> list[SampleFacts]:
    images = images_of(batch)
    highest = np.abs(images.astype("float32").numpy().reshape(len(images), -1)).max(axis=1)
    if layout.label is None or layout.length is None:
        return [SampleFacts(row, float(value)) for row, value in enumerate(highest)]
    label = batch[layout.label]
    length = batch[layout.length].reshape([-1])
    outputs = dict(head_outputs(predictions, meter.network))
    outputs_by_model = {model or "": ctc_logits(outputs, model) for model in meter.ctc_models}
    logits = {
        model: value.astype("float32") for model, value in outputs_by_model.items() if value is not None
    }
    loss = CTCLoss(zero_infinity=False)
    losses = {
        name: loss.line_losses(value, [images, label, length]).numpy() for name, value in logits.items()
    }
    frames = min((int(value.shape[1]) for value in logits.values()), default=None)
    ids = [row[:end].tolist() for row, end in zip(label.numpy(), length.numpy(), strict=True)]
    symbols = dict(enumerate(charset.ctc_symbols))
    return [
        SampleFacts(
            row,
            float(highest[row]),
            "".join(symbols.get(each, f"<{each}>") for each in ids[row]),
            frames,
            frames_needed(ids[row]),
            {model: float(values[row]) for model, values in losses.items()},
        )
        for row in range(len(images))
    ]


def step_seed(context: RunContext, steps_done: int) -> int:
    """Return the seed of Paddle's generator in the step after ``steps_done`` steps, other ones in each process."""
    return (context.seed + context.team.rank) * 1_000_003 + steps_done


class Incidents:
    """Log the incidents of a run, and store the first five of each process, since each has all weights.

    Args:
        context: the context of the run.
        training: what it trains with.
        meter: measures its steps.
    """

    def __init__(self, context: RunContext, training: Training, meter: StepMeter) -> None:
        self._context = context
        self._training = training
        self._meter = meter
        self._folder = require_no_link(context.folder / INCIDENTS)
        self._left = _MOST_KEPT

    def report(
        self,
        reading: StepReading,
        step: int,
        last_good: int,
        predictions: Any,
        batch: Sequence[Any],
        *,
        elsewhere: bool,
    ) -> Incident:
        """Log the incident, and write it with batch and weights into ``incidents/step_N`` of the run folder.

        Args:
            reading: the values of the step.
            step: its number, from 1.
            last_good: the last step whose gradient was applied.
            predictions: the predictions of the network.
            batch: the batch of the step.
            elsewhere: True if the forward pass is bad in another process, but not in this one.
        """
        context = self._context
        layout = layout_of(context.config)
        incident = find_incident(
            self._meter, reading, step, last_good, predictions, batch, layout, context.charset
        )
        if elsewhere:
            bad = ["a value is bad in another process (see its incident)"]
            incident = replace(incident, bad=bad, gradients=())
        for line in incident.lines():
            LOG.error("%s", line)
        self._left -= 1
        if self._left < 0:
            return incident
        name = f"step_{step:06d}" + (f"_rank{context.team.rank}" if context.team.size > 1 else "")
        try:
            self._write(incident, batch, self._folder / name)
        except (OSError, DataError) as error:  # a full disk must not end the run
            LOG.warning("the incident cannot be written: %s", error)
        else:
            plugins = ["--import-plugins"] if plugin_names(context.config) else []
            again = command_line("replay", self._folder / name, *plugins, host=context.options.host_path)
            LOG.error("  reproduce it: %s", again)
        return incident

    def _write(self, incident: Incident, batch: Sequence[Any], folder: Path) -> None:
        training = self._training
        variances = self._meter.variances
        # an entry that is not a tensor, such as a path, is replaced by an empty array: no loss reads it
        arrays: dict[str, Any] = {
            str(index): entry.numpy() if isinstance(entry, paddle.Tensor) else np.zeros(0)
            for index, entry in enumerate(batch)
        }
        arrays |= {} if variances is None else {VARIANCES: variances.numpy()}
        record = {**asdict(incident), "paddle_seed": step_seed(self._context, incident.step - 1)}
        # JSON has no NaN and infinity, so they become texts
        plain = json.loads(json.dumps(record), parse_constant=str)
        state = training.full_precision(self._meter.network.state_dict())
        with atomic_folder(folder, (BATCH, WEIGHTS, LOSS, CONFIG, RECORD), force=True) as place:
            np.savez(place / BATCH, **arrays)
            (place / WEIGHTS).write_bytes(tensors_to_bytes(state))
            (place / LOSS).write_bytes(tensors_to_bytes(loss_state(training.loss)))
            (place / CONFIG).write_text(self._context.config.to_yaml(), encoding="utf-8")
            text = json.dumps(plain, indent=2, ensure_ascii=False)
            (place / RECORD).write_text(text + "\n", encoding="utf-8")


def layout_of(config: Config) -> BatchLayout:
    """Return the layout of the batches of ``Train``."""
    return BatchLayout.of_transforms(config.at("Train.dataset.transforms", default=None))


# exceptions of Paddle and NumPy for arrays of wrong shapes and types
_MISFITS = (ValueError, TypeError, LookupError, RuntimeError, AttributeError, OSError, MemoryError)


@dataclass(frozen=True)
class Replay:
    """The result of a replayed step.

    Attributes:
        incident: the bad values; None if every value is good.
        operator: operator and layer of the first value that is not finite, if there is one.
    """

    incident: Incident | None
    operator: str | None


def replay(
    folder: Path, host_path: str | None = None, options: Sequence[str] = (), *, with_plugins: bool = False
) -> Replay:
    """Repeat the step of an incident, in float32.

    Args:
        folder: the folder of the incident.
        host_path: a PaddleOCR checkout; None searches for a host.
        options: as after ``-o``.
        with_plugins: import ``Global.plugins`` of its config, which runs their code.

    Raises:
        DataError: the folder has no incident, or its files do not fit together.
        PPOCRExtError: the networks or the loss cannot be built, or need plugins.
    """
    if not (folder / RECORD).is_file():
        raise DataError(
            f"{folder} has no incident (found no {RECORD}). Fix: give a folder in `incidents` of a run.",
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
    # the incident has all weights, so no others are read
    config = load([folder / CONFIG], options).with_values(
        {"Global.checkpoints": None, "Global.pretrained_model": None}
    )
    if (names := plugin_names(config)) and not with_plugins:
        raise ConfigError(
            f"{folder / CONFIG}: Global.plugins names modules, whose code would run here: {shortened(names, 3)}. "
            "Fix: read them, then add --import-plugins.",
            code="plugin_not_loaded",
        )
    own = {
        f"Architecture.Models.{name}.pretrained": None
        for name in config.at("Architecture.Models", default=None) or ()
        if not is_inference_model(config, name)
    }
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


def _check_ids(layer: nn.Layer, inputs: Any) -> None:
    """Check that an embedding has all rows that the labels need; otherwise Paddle reads outside of it and crashes.

    Raises:
        DataError: a label has another class.
    """
    if int(inputs[0].min()) < 0 or int(inputs[0].max()) >= layer.weight.shape[0]:
        raise DataError(
            f"{BATCH}: a label has a class outside 0 to {layer.weight.shape[0] - 1}. Fix: copy the whole folder of the "
            f"incident again.",
            code="bad_label",
        )


def _network_and_loss(context: RunContext, folder: Path) -> tuple[Any, Any]:
    """Return network and loss of the run, with the weights and the state of the incident."""
    config = context.config
    network = build_network(context.components, context.charset)
    loss = loss_for(network, context)
    network = choose_trained(network, config, required_outputs(loss))
    for layer in network.sublayers():
        if isinstance(layer, paddle.nn.Embedding):
            layer.register_forward_pre_hook(_check_ids)
    weights = read_state(folder / WEIGHTS)
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    if shapes != {name: value.shape for name, value in weights.items()}:
        raise ValueError(f"{WEIGHTS} belongs to another network than {CONFIG}")
    for name, head in inference_models(network).items():
        if (head.digest.numpy() != weights[f"{name}.head.digest"]).any():
            raise ValueError(f"{name} is another inference model now")
    network.set_state_dict(weights)
    state = read_plain_pickle(folder / LOSS)
    if state and isinstance(loss, paddle.nn.Layer):
        loss.set_state_dict(state)
    return network, loss


@dataclass
class _Step:
    """The step to repeat; each repetition begins with the same random numbers and running statistics."""

    network: nn.Layer
    loss: Callable[..., Any]
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
        """Return operator and layer of the first value that is not finite; None if all are finite."""
        watch = AnomalyWatch(self.network, self.loss)
        try:
            watch.on("the loss")
            total = self.loss(self._forward(), self.batch)["loss"]
            watch.on("the backward pass")
            total.backward()
        except RuntimeError as error:
            text = watch.describe(error)
            if text is None:
                raise
            return text
        finally:
            watch.off()
        return None

    def _forward(self) -> Any:
        paddle.seed(self.seed)
        self.network.train()
        self.network.clear_gradients()
        return self.network(images_of(self.batch), data=labels_of(self.batch))
