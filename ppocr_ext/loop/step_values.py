"""Measure a training step: images, losses, outputs, BatchNorm, gradients; all values are read in one small copy.

Before the gradients are computed, the total loss is multiplied by 1, or by NaN if a value of the forward pass is bad.
So a bad value in one process makes the averaged gradient bad in all processes, and they decide alike without messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ppocr_ext.checkpoint.optimizer_state import HALF
from ppocr_ext.config import Config
from ppocr_ext.data.batches import images_of
from ppocr_ext.losses.base_loss import HEADS, required_outputs
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.head_request import understands_requests
from ppocr_ext.modeling.recompute import BATCH_NORMS
from ppocr_ext.run.freezing import frozen_models

WARM_UP = 50  # steps until BatchNorm's running statistics have forgotten their start (0.9 ** 50 is 0.5 %)
_EPSILON = 1e-5  # BatchNorm adds it to the variance
LARGEST = float(np.finfo(np.float32).max)
_FLAG = "FLAGS_check_nan_inf"
# "There are NAN or INF (num_nan=2, …) in [device=cpu, op=matmul, tensor=, dtype=fp32]"
_FOUND = re.compile(r"There are NAN or INF.*?\bop=(?P<op>\w+)", re.DOTALL)


@dataclass(frozen=True)
class Limits:
    """Limits of absurd values; infinity switches a limit off.

    Attributes:
        image: the limit of the absolute values of an image.
        variance: the limit of the ratio of a BatchNorm's batch variance to its running variance, after
            :data:`WARM_UP` steps.
    """

    image: float = math.inf
    variance: float = math.inf


def limits_of(config: Config) -> Limits:
    """Return the limits that ``Global.absurd_input`` and ``Global.absurd_variance`` set; 0 switches one off."""
    settings = config.settings
    return Limits(settings.absurd_input or math.inf, settings.absurd_variance or math.inf)


@dataclass(frozen=True)
class StepReading:
    """The values of one step, as plain numbers.

    Attributes:
        values: the values by name: ``image max``, ``loss ctc``, ``output Student.ctc min``, ``batch variance``, …
        bad: names of the values of the forward pass that are not finite, or absurd.
        grad_norm: norm of the whole gradient, without the scale of mixed precision.
        blank_share: share of the frames in which the blank is the most probable class, by sub-model.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    bad: Sequence[str] = ()
    grad_norm: float = 0.0
    blank_share: Mapping[str | None, float] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """True if forward pass and gradient are finite and not absurd."""
        return not self.bad and math.isfinite(self.grad_norm)

    def to_log(self) -> dict[str, float]:
        """Return the values for ``metrics.jsonl``: ``grad_norm``, and ``blank_share`` (``blank_share_NAME``)."""
        shares = {f"blank_share_{name}" if name else "blank_share": v for name, v in self.blank_share.items()}
        return {"grad_norm": self.grad_norm, **shares}


class StepMeter:
    """Measure every step of a run: :meth:`forward` before the gradients, :meth:`read` after them.

    Args:
        network: without a wrapper.
        loss: declares which outputs it reads.
        limits: the limits of absurd values.

    Attributes:
        trained: names and parameters that get a gradient.
        batch_norms: paths and layers of the BatchNorms that are not frozen.
        ctc_models: the sub-models whose CTC output is trained, in the same order in every process; None stands for a
            model without sub-models.
        variances: mean running variance of each BatchNorm before the step, [L]; None until :meth:`begin` reads them.
    """

    def __init__(self, network: nn.Layer, loss: Callable[..., Any], limits: Limits) -> None:
        self.network = network
        self.trained = [(name, p) for name, p in network.named_parameters() if not p.stop_gradient]
        self._half = [p.dtype in HALF for _, p in self.trained]  # squares overflow in 16 bits
        frozen = frozen_models(network)
        self.batch_norms = [
            (path, layer)
            for path, layer in network.named_sublayers()
            if isinstance(layer, BATCH_NORMS) and path.partition(".")[0] not in frozen
        ]
        self.limits = limits
        outputs = trained_outputs(network, loss)
        self.ctc_models = [model for model, names in outputs.items() if "ctc" in names]
        momenta = [float(layer._momentum) for _, layer in self.batch_norms]
        self._momenta: Any = paddle.to_tensor(momenta, dtype="float32") if momenta else None
        self.variances: Any = None
        self._one = paddle.ones([])
        self._nan = paddle.full([], math.nan)

    def begin(self) -> None:
        """Read BatchNorm's running variances before the first step, and after they were restored."""
        if self.variances is None:
            self.variances = self._mean_variances()

    @paddle.no_grad()
    def forward(self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any], step: int) -> Any:
        """Measure the forward pass; return the factor of the loss, 1 or NaN, as a tensor on the device.

        Args:
            predictions: the predictions of the network.
            batch: image first.
            losses: scalars by name.
            step: number of this step, from 1.
        """
        self._names: list[str] = []
        scalars: list[Any] = []
        bounds: list[float] = []

        def add(name: str, value: Any, bound: float = LARGEST) -> None:
            value = value.detach() if value.ndim == 0 else value.mean()
            scalars.append(value if value.dtype == paddle.float32 else value.astype("float32"))
            self._names.append(name)
            bounds.append(min(bound, LARGEST))

        images = images_of(batch)
        if images.is_floating_point():
            add("image max", images.max(), self.limits.image)
            add("image min", images.min(), self.limits.image)
        outputs = dict(head_outputs(predictions, self.network))
        for name, output in outputs.items():
            called = f"output {name}".rstrip()
            add(f"{called} max", output.max())
            add(f"{called} min", output.min())
        if self.variances is not None:
            add("batch variance", self._variance_ratio(), self.limits.variance if step > WARM_UP else LARGEST)
        for name, value in losses.items():
            add("loss" if name == "loss" else f"loss {name}", value)
        self._blanks = {}
        for model in self.ctc_models:
            logits = ctc_logits(outputs, model)
            if logits is not None and logits.ndim == 3:
                self._blanks[model] = len(scalars)
                add(f"blank share {model or ''}".rstrip(), (logits.argmax(axis=-1) == 0).astype("float32"))
        self._values = paddle.stack(scalars)
        self._bound = paddle.to_tensor(bounds, dtype="float32")
        return paddle.where((self._values.abs() <= self._bound).all(), self._one, self._nan)

    def _mean_variances(self) -> Any:
        if not self.batch_norms:
            return None
        return paddle.stack([layer._variance.mean() for _, layer in self.batch_norms])

    def _variance_ratio(self) -> Any:
        """Return the greatest ratio of a layer's batch variance to its running variance before the step.

        The running variance is ``m · old + (1 - m) · batch``, so the batch variance follows from it at no cost. Both
        are means over the channels, since a single channel without variance may get one.
        """
        self._new = self._mean_variances()
        momenta = self._momenta
        batch = (self._new - momenta * self.variances) / (1.0 - momenta).clip(min=1e-6)
        self._ratios = batch / self.variances.clip(min=_EPSILON)
        return self._ratios.max()

    @paddle.no_grad()
    def read(self, scale: Any = None) -> StepReading:
        """Return the values of this step; called after its gradients were computed.

        Args:
            scale: the factor of the loss in mixed precision, [1]; the gradients still have it.
        """
        gradients = [p.grad for _, p in self.trained]
        # the sum of squares [1] that Paddle uses for clipping: 150 of them take a millisecond on a CPU
        squares = [
            paddle._C_ops.squared_l2_norm(gradient.astype("float32") if half else gradient)
            for gradient, half in zip(gradients, self._half, strict=True)
            if gradient is not None
        ]
        tail = [paddle.add_n(squares).sqrt()] if squares else []
        tail += [] if scale is None else [scale.reshape([1]).astype("float32")]
        host = paddle.concat([self._values, *tail]).numpy()
        norm = float(host[len(self._names)]) if squares else 0.0
        norm /= 1.0 if scale is None else float(host[-1])
        values = {name: float(value) for name, value in zip(self._names, host, strict=False)}
        good = np.abs(host[: len(self._names)]) <= self._bound.numpy()
        bad = [name for name, is_good in zip(self._names, good, strict=True) if not is_good]
        blanks = {model: values[self._names[index]] for model, index in self._blanks.items()}
        if not bad and self.variances is not None:
            self.variances = self._new
        return StepReading(values, bad, norm, blanks)

    def worst_batch_norm(self) -> str:
        """Return the path of the BatchNorm with the greatest ratio of variances in this step."""
        ratios = self._ratios.numpy()
        return self.batch_norms[int(np.argmax(np.where(np.isnan(ratios), np.inf, ratios)))][0]


def trained_outputs(network: nn.Layer, loss: Callable[..., Any]) -> dict[str | None, set[str]]:
    """Return the outputs that the loss trains, by sub-model; None stands for a model without sub-models."""
    frozen = frozen_models(network)
    pairs = sorted((pair for pair in required_outputs(loss) or () if pair[0] not in frozen), key=str)
    return {model: {output for name, output in pairs if name == model} for model, _ in pairs}


def head_outputs(predictions: Any, network: nn.Layer) -> Iterator[tuple[str, Any]]:
    """Yield name and output of each head that returns floating-point numbers.

    A name is ``ctc``, ``Student.gtc``, …, or empty for a single output. Of ``(features, logits)`` the logits are
    yielded.
    """
    if isinstance(network, DistillationModel) and isinstance(predictions, Mapping):
        for name, output in predictions.items():
            yield from _named(output, str(name), network.models.get(str(name)))
    else:
        yield from _named(predictions, "", network)


def _named(output: Any, prefix: str, model: nn.Layer | None) -> Iterator[tuple[str, Any]]:
    if isinstance(output, Mapping) and "head_out" in output:
        output = output["head_out"]
    if isinstance(output, (tuple, list)) and output and understands_requests(getattr(model, "head", None)):
        output = output[-1]
    if isinstance(output, Mapping):
        known = [name for name in output if name in HEADS] or list(output)
        for name in known:
            yield from _named(output[name], f"{prefix}.{name}".strip("."), model)
    elif isinstance(output, (tuple, list)):
        for index, each in enumerate(output):
            yield from _named(each, f"{prefix}.{index}".strip("."), None)
    elif isinstance(output, paddle.Tensor) and output.is_floating_point() and output.size:
        yield prefix, output


def main_head(model: str | None, trained: Collection[str]) -> str:
    """Return the name of a sub-model's main output: ``ctc`` or ``NAME.ctc``, or ``gtc`` if only that is trained."""
    return ".".join(filter(None, (model, *[head for head in HEADS if head in trained][:1])))


def named_outputs(
    predictions: Any, network: nn.Layer, trained: Mapping[str | None, Collection[str]]
) -> dict[str, Any]:
    """Return :func:`head_outputs` as a dict, in which the output of a single head has the name of the head.

    Args:
        predictions: the predictions of the network.
        network: without a wrapper.
        trained: result of :func:`trained_outputs`.
    """
    names = {model or "": main_head(model, outputs) for model, outputs in trained.items()}
    return {names.get(name, name): output for name, output in head_outputs(predictions, network)}


def ctc_logits(outputs: Mapping[str, Any], model: str | None) -> Any:
    """Return the CTC logits of a sub-model among :func:`head_outputs`, or None."""
    for name in [f"{model}.ctc", model] if model else ["ctc", ""]:
        if name in outputs:
            return outputs[name]
    return None


class AnomalyWatch:
    """Raise at the first operator whose result is not finite, and tell in which layer that was.

    Args:
        network: its layers are named by their paths.
        loss: its layers are named below ``loss``.
        active: False to check nothing.
        compiled: True if the layers run in a compiled graph, where hooks are not called.
    """

    def __init__(
        self, network: nn.Layer, loss: Callable[..., Any], *, active: bool = True, compiled: bool = False
    ) -> None:
        self.active = active
        self._entered: list[str] = []
        self._phase = "the loss"
        layers = [] if compiled or not active else list(network.named_sublayers())
        if isinstance(loss, nn.Layer) and active:
            layers += [
                (f"loss.{path}".rstrip("."), layer) for path, layer in loss.named_sublayers(include_self=True)
            ]
        for path, layer in layers:
            layer.register_forward_pre_hook(lambda layer, inputs, path=path: self._entered.append(path))
            layer.register_forward_post_hook(self._leave)

    def _leave(self, *_: Any) -> None:
        """Forget the innermost layer. Return None, since another value would replace the outputs of the layer."""
        del self._entered[-1:]

    def on(self, phase: str) -> None:
        """Check every operator from now on; ``phase`` names what runs outside of all layers."""
        self._entered.clear()
        self._phase = phase
        if self.active:
            paddle.set_flags({_FLAG: 1})

    def off(self) -> None:
        """Stop checking operators."""
        if self.active:
            paddle.set_flags({_FLAG: 0})

    def describe(self, error: BaseException) -> str | None:
        """Return operator and layer of an error that Paddle's check has raised; None for another error."""
        match = _FOUND.search(str(error)) if self.active else None
        if match is None:
            return None
        where = f"the layer {self._entered[-1]}" if self._entered else self._phase
        return f"the operator {match['op']} in {where} gave the first value that is not finite"
