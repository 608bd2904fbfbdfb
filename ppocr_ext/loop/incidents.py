"""Say what went wrong in a step with a bad value, and keep its batch and weights for `ppocr-ext replay`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import tensors_to_bytes
from ppocr_ext.checkpoint.model_state import STATISTICS
from ppocr_ext.commands import command_line
from ppocr_ext.config import Config
from ppocr_ext.data.batch_layout import BatchLayout, kept_keys
from ppocr_ext.data.sample_rules import frames_needed
from ppocr_ext.io.atomic import atomic_folder, require_no_link
from ppocr_ext.loop.step_values import LARGEST, StepMeter, StepReading, ctc_logits, head_outputs
from ppocr_ext.losses import CTCLoss
from ppocr_ext.messages import shortened
from ppocr_ext.run.amp import full_precision
from ppocr_ext.run.host_config import plugin_names
from ppocr_ext.run.run import Run
from ppocr_ext.run.train_setup import loss_state

INCIDENTS = "incidents"  # in the run folder
RECORD, BATCH, WEIGHTS, LOSS, CONFIG = (
    "incident.json",
    "batch.npz",
    "weights.pdparams",
    "loss.pdparams",
    "config.yml",
)
VARIANCES = "running_variances"  # in BATCH
_MOST_KEPT = 5  # each holds all weights
_SHOWN = 5  # samples and names in the log


@dataclass(frozen=True)
class SampleFacts:
    """One sample of the batch.

    Attributes:
        row: in the batch.
        image: the greatest absolute value of its image.
        label: its text; None if the batch has no CTC label.
        frames: T of the CTC output.
        needed: frames that CTC needs for the label.
        ctc_loss: by sub-model.
    """

    row: int
    image: float
    label: str | None = None
    frames: int | None = None
    needed: int | None = None
    ctc_loss: Mapping[str, float] = field(default_factory=dict)

    def badness(self, limit: float) -> tuple[bool, bool, bool, float]:
        """Return a key to sort by: a bad image (``limit``: its greatest value), a bad loss, a misfit, a great loss."""
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
        bad: what is bad, in words.
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
    """Return what is bad in a step; it may take as long as the step.

    Args:
        meter: measured the step.
        reading: its values.
        step: its number, from 1.
        last_good: the last step whose gradient was applied.
        predictions: of the network.
        batch: of the step.
        layout: of the batch.
        charset: the dictionary.
    """
    # "min" says nothing new where "max" is not finite either
    named = [
        name for name in reading.bad if not name.endswith(" min") or f"{name[:-3]}max" not in reading.bad
    ]
    bad = [_in_words(name, reading.values[name], meter) for name in named]
    if not reading.bad:
        bad = [f"the gradient's norm is {reading.grad_norm:g}, with a finite loss and finite outputs"]
    weights = [
        name
        for name, p in meter.network.named_parameters()
        if not name.endswith(STATISTICS) and not _is_finite(p)
    ]
    # a bad value in the forward pass makes every gradient NaN on purpose
    trained = () if reading.bad else meter.trained
    gradients = [name for name, p in trained if p.grad is not None and not _is_finite(p.grad)]
    samples = _samples(meter, predictions, batch, layout, charset)
    samples.sort(key=lambda sample: sample.badness(min(meter.limits.image, LARGEST)), reverse=True)
    return Incident(step, last_good, bad, weights, gradients, dict(reading.values), samples)


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
    images = batch[0]
    highest = np.abs(images.astype("float32").numpy().reshape(len(images), -1)).max(axis=1)
    if layout.label is None or layout.length is None:
        return [SampleFacts(row, float(value)) for row, value in enumerate(highest)]
    label, length = batch[layout.label], batch[layout.length].reshape([-1])
    outputs = dict(head_outputs(predictions, meter.network))
    found = {model or "": ctc_logits(outputs, model) for model in meter.ctc_models}
    logits = {model: value.astype("float32") for model, value in found.items() if value is not None}
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


class IncidentFolder:
    """Write the incidents of a run into its folder, the first five of a process: each holds all weights.

    Args:
        run: the run.
        step_seed: returns the seed of Paddle's generator in the step after so many steps.
    """

    def __init__(self, run: Run, step_seed: Callable[[int], int]) -> None:
        self._run = run
        self._folder = require_no_link(run.folder / INCIDENTS)
        self._step_seed = step_seed
        self._count = 0

    def write(self, incident: Incident, batch: Sequence[Any], meter: StepMeter) -> Path | None:
        """Write ``incidents/step_N`` of the run folder and return it; None after the first five."""
        self._count += 1
        if self._count > _MOST_KEPT:
            return None
        run = self._run
        name = f"step_{incident.step:06d}" + (f"_rank{run.team.rank}" if run.team.size > 1 else "")
        folder = self._folder / name
        # an entry that is not a tensor, such as a path, keeps its place: no loss computes with it
        arrays: dict[str, Any] = {
            str(index): entry.numpy() if isinstance(entry, paddle.Tensor) else np.zeros(0)
            for index, entry in enumerate(batch)
        }
        if meter.variances is not None:
            arrays[VARIANCES] = meter.variances.numpy()
        record = {**asdict(incident), "paddle_seed": self._step_seed(incident.step - 1)}
        state = full_precision(run.network.state_dict(), run.optimizer, run.float32_copies)
        with atomic_folder(folder, (BATCH, WEIGHTS, LOSS, CONFIG, RECORD), force=True) as place:
            np.savez(place / BATCH, **arrays)
            (place / WEIGHTS).write_bytes(tensors_to_bytes(state))
            (place / LOSS).write_bytes(tensors_to_bytes(loss_state(run.loss)))
            (place / CONFIG).write_text(run.config.to_yaml(), encoding="utf-8")
            # JSON has no NaN and no infinity: they become text
            plain = json.loads(json.dumps(record), parse_constant=str)
            text = json.dumps(plain, indent=2, ensure_ascii=False)
            (place / RECORD).write_text(text + "\n", encoding="utf-8")
        return folder

    def replay_command(self, folder: Path) -> str:
        """Return the command that replays the incident in ``folder``."""
        plugins = ["--import-plugins"] if plugin_names(self._run.config) else []
        return command_line("replay", folder, *plugins, host=self._run.options.host_path)


def layout_of(config: Config) -> BatchLayout:
    """Return the layout of the batches of ``Train``."""
    keys = kept_keys(config.at("Train.dataset.transforms", default=None))
    return BatchLayout() if keys is None else BatchLayout.of_keys(keys)
