"""Take the features at the input of the classifier of a CTC head, of this package or of a PaddleOCR checkout."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import paddle
from paddle import nn

from ppocr_ext.errors import ModelError

_HEAD = "CTCHead"
# A head with `mid_channels` has two layers, of which the second makes the logits.
_CLASSIFIERS = ("fc2", "fc")


def ctc_head_of(network: nn.Layer) -> nn.Layer:
    """Return the only CTC head in ``network``, which may be the network itself.

    Raises:
        ModelError: it has no CTC head, or several, as a model with sub-models may have.
    """
    heads = {
        path: layer
        for path, layer in network.named_sublayers(include_self=True)
        if type(layer).__name__ == _HEAD and any(hasattr(layer, name) for name in _CLASSIFIERS)
    }
    if len(heads) == 1:
        return next(iter(heads.values()))
    if not heads:
        raise ModelError(
            f"{type(network).__name__} has no CTC head, so its frames have no features. Centers need a CTCHead, alone "
            f"or in a MultiHead.",
            code="no_ctc_head",
        )
    raise ModelError(
        f"There are {len(heads)} CTC heads ({', '.join(heads)}). Fix: name one sub-model.",
        code="several_ctc_heads",
    )


def classifier_of(head: nn.Layer) -> nn.Layer:
    """Return the layer of a CTC head that computes the logits from the features."""
    return next(getattr(head, name) for name in _CLASSIFIERS if hasattr(head, name))


def feature_sizes(model: nn.Layer) -> dict[str | None, int]:
    """Return the number of features of each sub-model's CTC head; sub-models without such a head are missing.

    The name is None in a model without sub-models.
    """
    sizes: dict[str | None, int] = {}
    for name in getattr(model, "model_name_list", (None,)):
        with suppress(ModelError):
            head = ctc_head_of(model if name is None else getattr(model, name))
            sizes[name] = int(classifier_of(head).weight.shape[0])
    return sizes


class FeatureTap:
    """Take features and logits of a network's CTC head at its last linear layer, by a forward hook.

    The output of the head does not change, and the mode does not matter::

        with FeatureTap(model) as tap, paddle.no_grad():
            model(images)
            tap.features, tap.logits

    Args:
        network: a CTC head, or a network with exactly one.

    Attributes:
        features: the features of the last forward pass, [B, T, D].
        logits: the logits of the last forward pass, [B, T, C], before any softmax.

    Raises:
        ModelError: the network has no CTC head, or several.
        AttributeError: the network has not run yet.
    """

    features: paddle.Tensor
    logits: paddle.Tensor

    def __init__(self, network: nn.Layer) -> None:
        self._classifier = classifier_of(ctc_head_of(network))
        self._handle: Any = None

    def __enter__(self) -> FeatureTap:
        self._handle = self._classifier.register_forward_post_hook(self._keep)
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.remove()

    def _keep(self, layer: nn.Layer, inputs: tuple[paddle.Tensor, ...], output: paddle.Tensor) -> None:
        self.features = inputs[0]
        self.logits = output
