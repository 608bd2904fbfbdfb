"""Probe a head: its outputs for changed inputs, what its loss wants, and the tests that need no label order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.run.frame_counts import left_as_it_was
from ppocr_ext.sanity.subject import TrainedHead

Verdict = Literal["ok", "fault", "not tested"]
_SHIFTS = (1, 0, 2, -1)  # the usual ones first
_NOISE = 0.1  # share of the standard deviation of a weight
_NOISE_OF_CONSTANTS = 0.05  # standard deviation, for a weight whose numbers are all equal, such as zeros


@dataclass(frozen=True)
class Finding:
    """The result of one test of a head.

    Attributes:
        code: name of the test, such as ``positions``.
        verdict: ``fault``, ``ok`` or ``not tested``.
        message: what was done and seen. A fault has three lines: what it means, what was done and seen, and the fix.
    """

    code: str
    verdict: Verdict
    message: str


def fault(code: str, meaning: str, seen: str, fix: str) -> Finding:
    """Return the finding of a fault."""
    return Finding(code, "fault", f"{meaning}\n  {seen}\n  Fix: {fix}")


@contextmanager
def keep_weights(model: nn.Layer) -> Iterator[None]:
    """Put weights, buffers, gradients, modes and generators of ``model`` back at the end."""
    before = [
        (each, each.detach().clone(), None if each.grad is None else each.grad.clone())
        for each in model.parameters()
    ]
    with left_as_it_was(model):
        try:
            yield
        finally:
            for parameter, value, gradient in before:
                parameter.set_value(value)
                parameter.clear_gradient(False)  # Paddle 2.6 takes no None for `grad`
                if gradient is not None:
                    parameter.grad = gradient


@contextmanager
def open_probe(head: TrainedHead) -> Iterator[HeadProbe]:
    """Give a probe of ``head`` in eval mode, at its first weights, with those of its layer slightly changed.

    Without the change, a part whose weights begin at zero, such as learned positions or a gate, would seem to be
    missing.
    """
    with keep_weights(head.model):
        head.restart(1.0)
        for layer in head.model.sublayers(include_self=True):
            layer.training = False  # not eval(), which also switches Paddle's tracer
        draw = np.random.default_rng(0)
        for parameter in (each for each in head.layer.parameters() if not each.stop_gradient):
            values = parameter.astype("float32").numpy()
            spread = float(values.std()) * _NOISE or _NOISE_OF_CONSTANTS
            noise = draw.standard_normal(values.shape).astype("float32") * spread
            parameter.set_value(paddle.to_tensor(values + noise).astype(parameter.dtype))
        yield HeadProbe(head)


class HeadProbe:
    """A head whose inputs are changed to see what its output depends on.

    Args:
        head: the head.
    """

    def __init__(self, head: TrainedHead) -> None:
        self.head = head

    def logits(self, ids: np.ndarray | None = None) -> np.ndarray:
        """Return the output float64 [B, L, C], if given for other label ids [B, N]."""
        labels = list(self.head.labels)
        if ids is not None:
            labels[0] = like(labels[0], ids)
        with paddle.no_grad():
            return self.head.output(labels).astype("float32").numpy().astype("float64")

    @cached_property
    def base(self) -> np.ndarray:
        """Return the output for the batch itself."""
        return self.logits()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the output for labels of 0, a class that every head has; () if it is not a tensor."""
        labels = list(self.head.labels)
        if self.ids is not None:
            labels[0] = paddle.zeros_like(labels[0])
        with paddle.no_grad():
            output = self.head.output(labels)
        return tuple(output.shape) if isinstance(output, paddle.Tensor) else ()

    @cached_property
    def trouble(self) -> str:
        """Return why outputs cannot be compared; empty if they can."""
        if len(self.shape) != 3:
            kind = f"of the shape {list(self.shape)}" if self.shape else "no tensor"
            return f"The head's output in training is {kind}, not logits [batch, places, classes]"
        if not np.isfinite(self.base).all():
            return "The output has infinite or NaN values"
        if self.change(self.logits()).max() > 1e-3:
            return "The head gives another output for the same input each time, although dropout is off"
        return ""

    @cached_property
    def ids(self) -> np.ndarray | None:
        """Return the label ids int64 [B, N] that the head gets; None if its first label is of another form."""
        first = self.head.labels[0] if self.head.labels else None
        if first is None or first.ndim != 2 or first.is_floating_point() or first.shape[1] < 2:
            return None
        return first.numpy().astype("int64")

    @cached_property
    def counts(self) -> np.ndarray | None:
        """Return how many characters each label has, int64 [B]; None if that is not known."""
        if self.ids is None or len(self.head.labels) < 2:
            return None
        second = self.head.labels[1]
        if second.is_floating_point() or second.size != len(self.ids):
            return None
        counts = second.numpy().reshape(-1).astype("int64")
        return counts if counts.min() >= 1 and counts.max() <= self.ids.shape[1] else None

    @cached_property
    def begins_with_mark(self) -> bool:
        """Return True if all labels begin with the same entry, and it is not one of their characters."""
        if self.ids is None or self.counts is None:
            return False
        firsts = set(self.ids[:, 0].tolist())
        inside = {i for row, count in zip(self.ids, self.counts, strict=True) for i in row[1:count].tolist()}
        return len(firsts) == 1 and not firsts & inside

    @cached_property
    def wanted(self) -> np.ndarray | None:
        """Return the class that the loss wants at each place, int64 [B, L]; -1 at places that do not count.

        It is the class with the most negative gradient when all classes are equally likely. The result is None if the
        loss has no gradient there.
        """
        even = like(self.head.images, np.full(self.base.shape, 1.0 / self.base.shape[-1], "float32"))
        even.stop_gradient = False
        [gradient] = paddle.grad(self.head.loss(even).sum(), even, allow_unused=True)
        if gradient is None:
            return None
        slope = gradient.numpy()
        return np.where(slope.min(-1) < 0, slope.argmin(-1), -1)

    @cached_property
    def shift(self) -> int | None:
        """Return s if the loss wants entry i + s of the label at each place i that counts; None if no s fits all."""
        if self.ids is None or self.wanted is None or not (self.wanted >= 0).any():
            return None
        return next((s for s in _SHIFTS if self._follows(s)), None)

    def _follows(self, shift: int) -> bool:
        assert self.wanted is not None and self.ids is not None
        rows, places = np.nonzero(self.wanted >= 0)
        entries = places + shift
        inside = (entries >= 0) & (entries < self.ids.shape[1])
        return bool(inside.all() and (self.wanted[rows, places] == self.ids[rows, entries]).all())

    @cached_property
    def loss_has_softmax(self) -> bool:
        """Return True if the loss does not change when a number is added to all classes of a place."""
        draw = np.random.default_rng(1).uniform(0.1, 0.9, self.base.shape).astype("float32")
        losses = [float(self.head.loss(like(self.head.images, draw + extra))) for extra in (0.0, 1.5)]
        return abs(losses[1] - losses[0]) <= 1e-3 * abs(losses[0])

    def change(self, other: np.ndarray) -> np.ndarray:
        """Return how much each place of ``other`` [B, L, C] differs from the batch's own output.

        The unit of the result [B, L] is :attr:`spread`.
        """
        return np.abs(centered(other) - centered(self.base)).max(-1) / self.spread

    @cached_property
    def spread(self) -> float:
        """Return the standard deviation of the output over places and classes, without the mean of each place."""
        return float(centered(self.base).std()) or 1.0


def centered(logits: np.ndarray) -> np.ndarray:
    """Return ``logits`` [B, L, C] minus the mean of each place, which does not change their softmax."""
    return logits - logits.mean(-1, keepdims=True)


def like(tensor: Tensor, values: np.ndarray) -> Tensor:
    """Return ``values`` as a tensor with the type and on the device of ``tensor``."""
    return paddle.to_tensor(values, place=tensor.place).astype(tensor.dtype)


_BENT = 0.1  # relative deviation of the output from a straight line that is accepted
_NO_SOFTMAX = Finding("softmax", "ok", "The output has no probabilities.")
_MARKS = 4  # the most classes beyond characters and blank: an NRTR head has n + 4 rows


def class_count(probe: HeadProbe) -> Finding:
    """Compare the classes of the output with the dictionary and with the labels."""
    classes = probe.shape[-1]
    n = probe.head.charset.ctc_classes
    known = f"{classes} classes, and the dictionary has {n - 1} characters"
    largest = _largest_id(probe)
    # In this order, since the probe cannot be used with classes that the output lacks.
    is_ctc = largest < classes and not (probe.trouble or probe.head.takes_labels) and probe.shift is None
    if largest >= classes:
        problem = (
            f"The labels have class {largest}, but the last class of the output is {classes - 1} ({known})"
        )
    elif not n <= classes <= n + _MARKS:
        problem = f"The output has {known} (expected {n} to {n + _MARKS}, with the marks)"
    elif is_ctc and classes > n:
        problem = f"The output has {known} (expected {n}, with the blank)"
    else:
        return Finding("class_count", "ok", f"The output has {known}.")
    return fault(
        "class_count",
        "The classes of the output do not fit the dictionary.",
        f"{problem}.",
        "leave the class count of the head out of the config, so that it is computed from the dictionary.",
    )


def _largest_id(probe: HeadProbe) -> int:
    if probe.ids is None or probe.counts is None:
        return -1
    marks = 2 if probe.head.takes_labels else 0  # one at each end
    return max(int(row[: n + marks].max()) for row, n in zip(probe.ids, probe.counts, strict=True))


def classifier(probe: HeadProbe) -> list[Finding]:
    """Test whether the last linear layer makes the logits, without an activation, a norm or a softmax behind it."""
    if (scaled := _scaled_outputs(probe)) is None:
        return _by_distribution(probe)
    zero, once, twice, negative = scaled
    if _are_probabilities(once) and _are_probabilities(twice):
        return _of_probabilities(probe)
    up = centered(once - zero)
    size = float(np.sqrt(np.square(up).mean()))
    bent = [
        float(np.sqrt(np.square(centered(other - zero) - factor * up).mean())) / abs(factor) / size
        for other, factor in ((twice, 2.0), (negative, -1.0))
    ]
    done = "The output of the last linear layer was negated and doubled"
    if max(bent) <= _BENT:
        message = f"{done}, and the logits followed (deviation {max(bent):.1e})."
        return [Finding("activation", "ok", message), _NO_SOFTMAX]
    if not probe.loss_has_softmax:
        return [Finding("activation", "not tested", "The loss applies no softmax: it may want this output.")]
    low, high = (float(extreme([once, twice, negative])) for extreme in (np.min, np.max))
    guess = _guess(low, high, float(np.abs(centered(twice - once)).max()))
    return [
        fault(
            "activation",
            f"{guess} before the softmax keeps it from choosing freely.",
            f"{done}, but the logits did not follow (deviation {max(bent):.0%}; all are between {low:.2g} and "
            f"{high:.2g}).",
            "remove the layers behind the last linear layer.",
        ),
        _NO_SOFTMAX,
    ]


def _guess(low: float, high: float, growth: float) -> str:
    """Return the layer that probably bends the logits, from their range and how much they grow when doubled."""
    if growth < 0.05:
        return "A norm"
    if low >= 0:
        return "A sigmoid" if high <= 1 else "A ReLU"
    if low >= -1 and high <= 1:
        return "A tanh"
    return "A GELU, SiLU or the like" if low > -1 else "An activation"


def _are_probabilities(rows: np.ndarray) -> bool:
    return bool(rows.min() >= 0 and np.abs(rows.sum(-1) - 1).max() < 1e-3)


def _of_probabilities(probe: HeadProbe) -> list[Finding]:
    softmax = Finding("softmax", "ok", "The output is probabilities, and the loss applies no softmax.")
    if probe.loss_has_softmax:
        softmax = fault(
            "softmax",
            "A softmax is applied twice, so that no class can be chosen: the second one gets numbers from 0 to 1.",
            "The output is 0 or more with the sum 1. The loss has a softmax too: it does not change if a number is "
            "added to all classes.",
            "remove the softmax of the head in training.",
        )
    return [
        Finding("activation", "not tested", "The output is probabilities: see the softmax first."),
        softmax,
    ]


def _by_distribution(probe: HeadProbe) -> list[Finding]:
    """Test a head in which no last linear layer was found, only by the values of its output."""
    out = probe.base
    if _are_probabilities(out):
        return _of_probabilities(probe)
    low = float(out.min())
    high = float(out.max())
    seen = f"No layer was found that makes the logits; all {out.size} are between {low:.2g} and {high:.2g}."
    if high > 0 and low > -0.3 and high > -10 * low and probe.loss_has_softmax:
        meaning = f"{_guess(low, high, 1.0)} seems to stand before the softmax: hardly any logit is negative."
        return [fault("activation", meaning, seen, "remove it."), _NO_SOFTMAX]
    return [Finding("activation", "not tested", seen), _NO_SOFTMAX]


def _scaled_outputs(probe: HeadProbe) -> list[np.ndarray] | None:
    """Return the head's output when the last linear layer's output is multiplied by 0, 1, 2 and -1.

    Before that, the layer's output is scaled to a standard deviation of 2. None if no layer is found that makes the
    logits.
    """
    classes = probe.base.shape[-1]
    calls: list[tuple[nn.Layer, float]] = []

    def note(layer: nn.Layer, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and classes in output.shape and output.size >= classes:
            calls.append((layer, float(output.astype("float32").numpy().std())))

    layers = [
        each
        for each in probe.head.layer.sublayers(include_self=True)
        if getattr(getattr(each, "weight", None), "ndim", 0) >= 2 and not isinstance(each, nn.Embedding)
    ]
    _with_hook(probe, layers, note)
    if not calls or not calls[-1][1]:
        return None
    layer, spread = calls[-1]
    outputs = [
        _with_hook(probe, [layer], lambda _, __, output, times=factor / spread: output * times)
        for factor in (0.0, 2.0, 4.0, -2.0)
    ]
    return None if np.abs(outputs[1] - outputs[0]).max() < 1e-6 else outputs


def _with_hook(probe: HeadProbe, layers: Sequence[nn.Layer], hook: Callable[..., Any]) -> np.ndarray:
    handles = [layer.register_forward_post_hook(hook) for layer in layers]
    try:
        return probe.logits()
    finally:
        for handle in handles:
            handle.remove()
