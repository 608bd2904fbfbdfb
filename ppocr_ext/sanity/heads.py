"""The heads that a config trains: each with its loss, its labels and its reading of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import paddle
from paddle import Tensor, nn

from ppocr_ext.base.parts import BRANCHES, CENTER_LOSSES, MULTI_LOSSES
from ppocr_ext.charset import Charset
from ppocr_ext.data.batches import images_of, labels_of
from ppocr_ext.errors import ModelError
from ppocr_ext.losses import (
    CenterLoss,
    CombinedLoss,
    DistillationCenterLoss,
    Loss,
    MultiLoss,
    required_outputs,
)
from ppocr_ext.losses.base_loss import HEADS, head_batch
from ppocr_ext.losses.distillation_base import PairLoss, SubModelLoss
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.freezing import frozen_models

_READ = HeadRequest(frozenset(HEADS), probabilities=True, decode=True, as_dict=False, for_training=True)


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A head as the config trains it: of a MultiHead each branch that has a loss, of a single head the head.

    Attributes:
        name: ``"ctc"``, ``"gtc"`` (NRTR) or ``"sar"`` of a MultiHead, else the class of the head; behind the name of
            the sub-model if several are trained.
        model: the BaseModel that the head belongs to, in train mode, its dropout switched off.
        layer: the head that makes the logits.
        branch: of a MultiHead; None for a single head.
        images: the batch, [B, C, H, W].
        labels: what the loss and the head get, in the order of the loader: ids [B, L], lengths [B], …
        loss: what the head returns → the config's own loss of this head, a scalar without its weight.
        charset: the dictionary.
        decoder: PaddleOCR's decoder: (output, ids) → what is read and the labels, each as [(text, …), …].
        restart: puts the first weights back and returns the config's optimizer at this multiple of its peak learning
            rate, without warm-up and decay.
    """

    name: str
    model: nn.Layer
    layer: nn.Layer
    branch: str | None
    images: Tensor
    labels: list[Tensor]
    loss: Callable[[Any], Tensor]
    charset: Charset
    decoder: Callable[..., Any]
    restart: Callable[[float], Any]

    def output(self, images: Tensor | None = None, labels: list[Tensor] | None = None) -> Any:
        """Return the logits [B, L, classes], taught, with a gradient.

        Args:
            images: others than those of the batch.
            labels: others than those of the batch, in the same order.

        Returns:
            A tensor; of a head of a plugin whatever it returns in train mode.
        """
        found = self._call(images, labels, self.model.train_request)
        return found[-1] if isinstance(found, tuple | list) and found else found

    def _call(self, images: Tensor | None, labels: list[Tensor] | None, request: HeadRequest) -> Any:
        given = self.labels if labels is None else labels
        if self.branch is not None:
            given = [given[0], *given]  # a MultiHead gets the labels of both of its branches
            request = replace(request, branches=frozenset({self.branch}))
        out = self.model(self.images if images is None else images, given, request)
        for key in ("head_out", self.branch):
            out = out[key] if isinstance(out, Mapping) and key in out else out
        return out

    def readings(self) -> list[tuple[str, str]]:
        """Return what the head reads of each sample, decoded as it will be used, and the label.

        BatchNorm takes the statistics of the batch, as in the training. A decoder reads greedily.
        """
        with paddle.no_grad():
            found = self._call(None, None, _READ)
        read, labels = self.decoder(found, self.labels[0].numpy())
        return [(str(text[0]), str(label[0])) for text, label in zip(read, labels, strict=True)]

    def chance(self) -> float:
        """Return the loss if all logits are 0, so that every class has the same probability."""
        with paddle.no_grad():
            return float(self.loss(_zeros(self.output())))

    @cached_property
    def takes_labels(self) -> bool:
        """Whether the output depends on the labels that the head is given, as that of a decoder does."""
        same = self.labels[0][:, :1].expand_as(self.labels[0])
        with paddle.no_grad():
            first = self.output()
            other = self.output(labels=[same, *self.labels[1:]])
        return isinstance(first, Tensor) and not bool(paddle.allclose(first, other))


def _zeros(output: Any) -> Any:
    if isinstance(output, Mapping):
        return {key: _zeros(value) for key, value in output.items()}
    return paddle.zeros_like(output) if isinstance(output, Tensor) else output


@dataclass(frozen=True)
class _Part:
    """A loss of one head: its sub-model, its branch of a MultiHead, and whether it takes the whole output."""

    model: str | None
    branch: str | None
    loss: Loss
    takes_whole: bool = False


def _parts(loss: Loss) -> Iterator[_Part]:
    """Yield the losses against labels that ``loss`` is made of; those between networks or to centers teach no text."""
    if isinstance(loss, CombinedLoss):
        for _, _, each in loss.losses:
            yield from _parts(each)
    elif isinstance(loss, MultiLoss):
        yield from (_Part(None, MULTI_LOSSES[n], e) for n, e in loss.losses.items() if n not in CENTER_LOSSES)
    elif isinstance(loss, SubModelLoss) and not isinstance(loss, DistillationCenterLoss):
        yield from (_Part(model, loss.path.head, each) for model, each in loss.losses.items())
    elif not isinstance(loss, SubModelLoss | PairLoss | CenterLoss):
        branches = [output for _, output in required_outputs(loss) or () if output in HEADS]
        yield _Part(None, branches[0] if len(branches) == 1 else None, loss, takes_whole=True)


def trained_heads(
    context: RunContext,
    network: nn.Layer,
    loss: Loss,
    entries: Sequence[Tensor],
    restart: Callable[[float], Any],
) -> tuple[TrainedHead, ...]:
    """Return the heads that the config trains with labels.

    Args:
        context: of a training.
        network: with weights, in train mode.
        loss: of the config.
        entries: of the batch: images, then labels.
        restart: see :class:`TrainedHead`.

    Raises:
        ModelError: there is none, or the network has no head.
    """
    models = getattr(network, "models", None) or {None: network}
    trained = models.keys() - frozen_models(network)
    parts: dict[tuple[str | None, str | None], list[_Part]] = {}
    for part in _parts(loss):
        if part.model in trained:
            branches = getattr(getattr(models[part.model], "head", None), "branches", None)
            parts.setdefault((part.model, part.branch if branches else None), []).append(part)
    heads = []
    for (model, branch), losses in parts.items():
        layer = _layer(models[model], branch)
        name = branch or type(layer).__name__
        labels = labels_of(head_batch(entries, branch, True, name) if branch else list(entries))
        decoder = _decoder(context, branch)
        heads.append(
            TrainedHead(
                name if len(trained) == 1 else f"{model}.{name}", models[model], layer, branch, images_of(entries),
                labels,
                _loss_of(losses, branch, entries, labels), context.charset, decoder, restart,
            )
        )  # fmt: skip
    if not heads:
        raise ModelError(
            "Loss: no head is trained with labels, so there is nothing that could be learned by heart. Fix: add a "
            "loss of a head, such as CTCLoss.",
            code="nothing_to_train",
        )
    return tuple(heads)


def _layer(model: nn.Layer, branch: str | None) -> nn.Layer:
    """Return the layer of a head that makes the logits.

    Raises:
        ModelError: there is none.
    """
    head = getattr(model, "head", None)
    if head is None:
        raise ModelError(
            f"Architecture: {type(model).__name__} has no head that could be tested. Fix: give it a Head.",
            code="missing_branch",
        )
    return head if branch is None else getattr(head, BRANCHES[branch].layers[-1])


def _loss_of(
    parts: Sequence[_Part], branch: str | None, entries: Sequence[Tensor], labels: list[Tensor]
) -> Callable[[Any], Tensor]:
    def compute(output: Any) -> Tensor:
        total: Any = 0.0
        for part in parts:
            if part.takes_whole and branch is not None:
                value = part.loss({branch: output}, list(entries))
            else:
                value = part.loss(output, [images_of(entries), *labels])
            total = total + (value["loss"] if isinstance(value, Mapping) else value)
        return total

    return compute


def _decoder(context: RunContext, branch: str | None) -> Callable[..., Any]:
    """Return PaddleOCR's decoder of a branch, or of the config's single head."""
    config = context.config
    options = {"name": BRANCHES[branch].decoder} if branch else config.at("PostProcess").thaw()
    options["name"] = str(options["name"]).removeprefix("Distillation")
    plain = {key: value for key, value in options.items() if key not in ("model_name", "key", "multi_head")}
    return context.host.build_post_process(plain, config.host_options())
