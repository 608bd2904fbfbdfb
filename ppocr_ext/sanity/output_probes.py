"""Test what a head's output depends on and how it ends: the image, other samples, the classifier, class count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from paddle import Tensor, nn

from ppocr_ext.sanity.head_probe import Finding, HeadProbe, centered, fault

_UNCHANGED = 1e-6  # spreads of the output
_BENT = 0.1  # share by which the output of a straight line may deviate
_NO_SOFTMAX = Finding("softmax", "ok", "The output has no probabilities.")
_MOST_MARKS = 4  # classes that are not characters, beyond CTC's blank: n + 4 rows of an NRTR head


def class_count(probe: HeadProbe) -> Finding:
    """Compare the classes of the output with the dictionary and with the labels."""
    classes, n = probe.shape[-1], probe.head.charset.ctc_classes
    known = f"{classes} classes, and the dictionary has {n - 1} characters"
    largest = _largest_id(probe)
    most = n + _MOST_MARKS
    is_ctc = largest < classes and not (probe.trouble or probe.head.takes_labels) and probe.shift is None
    if largest >= classes:
        problem = (
            f"The labels have class {largest}, but the last one of the output is {classes - 1} ({known})"
        )
    elif not n <= classes <= most:
        problem = f"The output has {known} (expected {n} to {most}, with the marks)"
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


def image(probe: HeadProbe) -> Finding:
    """Show other images with the same labels: the output must change."""
    draw = np.random.default_rng(0).standard_normal(probe.images.shape).astype("float32")
    seen = max(
        float(probe.change(probe.logits(images=other)).max())
        for other in (np.roll(probe.images, 1, axis=0), draw)
    )
    done = "Other images were shown with the same labels"
    if seen <= _UNCHANGED:
        return fault(
            "image",
            "The head ignores the image.",
            f"{done}, and the output stayed the same ({seen:.1e}).",
            "let the cross-attention take keys and values from the image's features, and use what it returns.",
        )
    return Finding("image", "ok", f"{done}, and the output changed ({seen:.1e}).")


def samples(probe: HeadProbe) -> Finding:
    """Show another image as the first sample: the outputs of the other samples must stay."""
    if len(probe.images) < 2:
        return Finding("samples", "not tested", "The batch has one sample only.")
    other = probe.images.copy()
    other[0] = np.random.default_rng(0).standard_normal(other[0].shape)
    change = probe.change(probe.logits(images=other)).max(-1)
    done = "The first image of the batch was changed"
    seen = float(change[1:].max())
    if seen > max(1e-3, float(change[0]) * 1e-3):
        return fault(
            "samples",
            "The samples of a batch are mixed.",
            f"{done}, and the outputs of other samples changed ({seen:.1e}).",
            "look for a reshape or transpose that exchanges the axes of batch and places.",
        )
    return Finding("samples", "ok", f"{done}, and those of the other samples stayed.")


def classifier(probe: HeadProbe) -> list[Finding]:
    """Test whether anything bends the output of the last linear layer: an activation, a norm, a softmax."""
    scaled = _scaled_outputs(probe)
    if scaled is None:
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
        return [
            Finding("activation", "ok", f"{done}, and the logits followed (deviation {max(bent):.1e})."),
            _NO_SOFTMAX,
        ]
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
            "remove what comes behind the last linear layer.",
        ),
        _NO_SOFTMAX,
    ]


def _guess(low: float, high: float, growth: float) -> str:
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
    hidden = Finding("activation", "not tested", "The output is probabilities: see the softmax first.")
    if not probe.loss_has_softmax:
        return [
            hidden,
            Finding("softmax", "ok", "The output is probabilities, and the loss applies no softmax."),
        ]
    return [
        hidden,
        fault(
            "softmax",
            "A softmax is applied twice, so that no class can be chosen: the second one gets numbers from 0 to 1.",
            "The output is 0 or more with the sum 1. The loss has a softmax too: it does not change if a number is "
            "added to all classes.",
            "remove the softmax of the head in training.",
        ),
    ]


def _by_distribution(probe: HeadProbe) -> list[Finding]:
    """Test a head without a linear layer of its own only by the values of its output."""
    out = probe.base
    if _are_probabilities(out):
        return _of_probabilities(probe)
    low, high = float(out.min()), float(out.max())
    seen = f"No layer was found that makes the logits; all {out.size} are between {low:.2g} and {high:.2g}."
    if high > 0 and low > -0.3 and high > -10 * low and probe.loss_has_softmax:
        meaning = f"{_guess(low, high, 1.0)} seems to stand before the softmax: hardly any logit is negative."
        return [fault("activation", meaning, seen, "remove it."), _NO_SOFTMAX]
    return [Finding("activation", "not tested", seen), _NO_SOFTMAX]


def _scaled_outputs(probe: HeadProbe) -> list[np.ndarray] | None:
    """Return the head's output with the last linear layer's times 0, 1, 2 and -1, at a spread of 2 there.

    None if no layer is found that makes the logits.
    """
    classes, calls = probe.base.shape[-1], []

    def watch(layer: nn.Layer) -> Callable[..., None]:
        def seen(_: Any, __: Any, output: Any) -> None:
            if isinstance(output, Tensor) and classes in output.shape and output.size >= classes:
                calls.append((layer, float(output.astype("float32").numpy().std())))

        return seen

    every = [
        each for each in probe.head.layer.sublayers(include_self=True) if not isinstance(each, nn.Embedding)
    ]
    layers = [each for each in every if getattr(getattr(each, "weight", None), "ndim", 0) >= 2]
    _with_hooks(probe, [(each, watch(each)) for each in layers])
    if not calls or not calls[-1][1]:
        return None
    layer, spread = calls[-1]
    outputs = [_with_hooks(probe, [(layer, _times(factor / spread))]) for factor in (0.0, 2.0, 4.0, -2.0)]
    return None if np.abs(outputs[1] - outputs[0]).max() < 1e-6 else outputs


def _times(factor: float) -> Callable[..., Any]:
    return lambda _, __, output: output * factor


def _with_hooks(probe: HeadProbe, hooks: list[tuple[nn.Layer, Callable[..., Any]]]) -> np.ndarray:
    handles = [layer.register_forward_post_hook(hook) for layer, hook in hooks]
    try:
        return probe.logits()
    finally:
        for handle in handles:
            handle.remove()
