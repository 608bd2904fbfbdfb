"""Open what a config trains, with one batch: the networks, the loss, and each head with its own loss and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import paddle
from paddle import Tensor, nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from ppocr_ext.base.parts import BRANCH_ROWS, CENTER_LOSSES, MULTI_LOSSES
from ppocr_ext.charset import Charset
from ppocr_ext.check.sub_models import ALLOW_UNTRAINED
from ppocr_ext.config import Config
from ppocr_ext.data.batches import images_of, labels_of
from ppocr_ext.errors import ModelError
from ppocr_ext.issues import report_issues
from ppocr_ext.losses import (
    CenterLoss,
    CombinedLoss,
    DistillationCenterLoss,
    Loss,
    MultiLoss,
    required_outputs,
)
from ppocr_ext.losses.base_loss import HEADS, head_batch
from ppocr_ext.losses.pair_losses import PairLoss
from ppocr_ext.losses.sub_model_losses import SubModelLoss
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.optim import build_lr_scheduler, build_optimizer
from ppocr_ext.run.context import RunContext, RunOptions, open_context
from ppocr_ext.run.dry_step import try_config
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.loader_setup import RunData
from ppocr_ext.run.one_batch import OneBatch, one_batch
from ppocr_ext.run.train_setup import set_up_training

_DROPOUT = (nn.Dropout, nn.Dropout2D, nn.Dropout3D, nn.AlphaDropout)
_SEARCHED = 1000  # if a schedule names no rate, the highest of so many steps is taken


@dataclass(frozen=True, eq=False)
class Subject:
    """The networks and loss of a config, and the batch that they learn.

    Attributes:
        context: context of the training.
        network: the networks in train mode, but without dropout.
        loss: the config's loss.
        batch: a batch of ``Train``.
        first: the first weights, by name.
        first_of_loss: the first state of the loss, by name.
        peak: the highest learning rate of the config.
    """

    context: RunContext
    network: nn.Layer
    loss: nn.Layer
    batch: OneBatch
    first: Mapping[str, Tensor]
    first_of_loss: Mapping[str, Tensor]
    peak: float

    def heads(self) -> tuple[TrainedHead, ...]:
        """Return the heads that the config trains."""
        return trained_heads(self.context, self.network, self.loss, self.batch.entries, self.restart)

    def total(self) -> Tensor:
        """Return the config's own loss of all heads, a scalar with a gradient."""
        entries = self.batch.entries
        value = self.loss(self.network(images_of(entries), labels_of(entries)), entries)
        return value["loss"] if isinstance(value, Mapping) else value

    def drop_gradients(self) -> None:
        """Leave no parameter a gradient. Paddle 2.6 can do so for a single parameter only."""
        for parameter in self.network.parameters():
            parameter.clear_gradient(False)

    def restart(self, factor: float = 1.0) -> Optimizer:
        """Restore the first weights, and return the config's optimizer at a constant ``factor`` times the peak rate."""
        self.network.set_state_dict(self.first)
        if self.first_of_loss:
            self.loss.set_state_dict(self.first_of_loss)
        self.drop_gradients()
        options = self.context.components.at("Optimizer").thaw()
        options.pop("lr_mult", None)  # the parameters already have these factors
        options["lr"] = {"name": "Const", "learning_rate": self.peak * factor}
        return build_optimizer(options, epochs=1, step_each_epoch=1, model=self.network)[0]


def open_subject(
    config: Config, samples: int, host_path: str | None = None, old_dictionary: str | None = None
) -> Subject:
    """Open a config as a training does, with one batch of ``Train`` in place of the data.

    Nothing is written. Augmentation, dropout, stochastic depth, mixed precision, compilation, `recompute`, and the
    optimizer state of a checkpoint are not used.

    Args:
        config: as loaded.
        samples: the most samples of the batch.
        host_path: a PaddleOCR checkout; None searches for a host.
        old_dictionary: dictionary of the weights, if it differs from the config's.

    Raises:
        PPOCRExtError: something cannot be built; the message says what to change.
    """
    resumed = config.settings.checkpoints
    if resumed:  # only the weights of the checkpoint, not its position in the run
        config = config.with_values({"Global.checkpoints": None, "Global.pretrained_model": resumed})
    # A teacher may be untrained, since only heads are tested.
    config = config.with_values({f"Global.{ALLOW_UNTRAINED}": True})
    context = open_context(config, RunOptions("train", host_path, old_dictionary, evaluates=False))
    plain = {"Global.use_amp": False, "Global.to_static": False, "Global.recompute": False, "Train.mix": None}
    context = replace(context, config=context.config.with_values(plain))
    network, issues = try_config(context, LOG.info)
    report_issues(issues)
    batch = one_batch(context, network, samples)
    loaders: Any = {"Train": [batch.entries]}  # a list with one batch is read as a loader is
    data = RunData(loaders=loaders, preflight={}, load_failures={}, usable_files={})
    network, training = set_up_training(context, network, data)
    loss = training.loss
    network.train()
    switch_off_dropout(network)
    of_loss = loss.state_dict() if isinstance(loss, nn.Layer) else {}
    return Subject(
        context,
        network,
        loss,
        batch,
        {name: value.clone() for name, value in network.state_dict().items()},
        {name: value.clone() for name, value in of_loss.items()},
        peak_rate(context.components.at("Optimizer.lr").thaw()),
    )


def peak_rate(options: Mapping[str, Any]) -> float:
    """Return the highest rate that ``Optimizer.lr`` names, or that of its first steps if it names none."""
    named = options.get("learning_rate", options.get("max_lr"))
    if isinstance(named, int | float):
        return float(named)
    schedule = build_lr_scheduler(options, epochs=_SEARCHED, step_each_epoch=1)
    if not isinstance(schedule, LRScheduler):
        return float(schedule)
    highest = 0.0
    for _ in range(_SEARCHED):
        highest = max(highest, float(schedule.get_lr()))
        schedule.step()
    return highest


def switch_off_dropout(network: nn.Layer) -> None:
    """Switch dropout and stochastic depth off in the trained networks, which stay in train mode.

    Frozen sub-models are in eval mode. A plugin's layer that calls ``F.dropout`` keeps its dropout.
    """
    models = network.models if isinstance(network, DistillationModel) else {"": network}
    trained = models.keys() - frozen_models(network)
    for layer in (layer for name in trained for layer in models[name].sublayers()):
        if isinstance(layer, _DROPOUT):
            layer.p = 0.0
        elif isinstance(layer, nn.MultiHeadAttention | nn.layer.rnn.RNNBase):
            layer.dropout = 0.0
        elif getattr(layer, "has_dropout", False):
            layer.training = False


_READ = HeadRequest(frozenset(HEADS), probabilities=True, decode=True, as_dict=False, for_training=True)


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """A head as the config trains it: a single head, or a branch of a MultiHead that has a loss.

    Attributes:
        name: ``"ctc"``, ``"gtc"`` (NRTR) or ``"sar"`` for a branch of a MultiHead; otherwise the class of the head. If
            several sub-models are trained, the name of the sub-model comes first.
        model: the BaseModel with the head, in train mode, without dropout.
        layer: the layer that makes the logits.
        branch: the branch of a MultiHead; None for a single head.
        images: images of the batch, [B, C, H, W].
        labels: the labels for loss and head, in the order of the loader: ids [B, L], lengths [B], …
        loss: output of the head → the config's loss of this head, a scalar without its weight.
        charset: the dictionary.
        decoder: PaddleOCR's decoder: (output, ids) → readings and labels, each as [(text, …), …].
        restart: restores the first weights, and returns the config's optimizer with a constant rate: this multiple of
            the peak learning rate.
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

    def output(self, labels: list[Tensor] | None = None) -> Any:
        """Return the logits [B, L, classes] in train mode, with a gradient.

        Args:
            labels: labels in place of those of the batch, in the same order.

        Returns:
            A tensor; a plugin's head may return something else.
        """
        output = self._call(self.labels if labels is None else labels, self.model.train_request)
        return output[-1] if isinstance(output, tuple | list) and output else output

    def _call(self, labels: list[Tensor], request: HeadRequest) -> Any:
        if self.branch is not None:
            labels = [labels[0], *labels]  # a MultiHead gets the labels of both branches
            request = replace(request, branches=frozenset({self.branch}))
        out = self.model(self.images, labels, request)
        for key in ("head_out", self.branch):
            out = out[key] if isinstance(out, Mapping) and key in out else out
        return out

    def readings(self) -> list[tuple[str, str]]:
        """Return the text that the head reads in each sample, as in an evaluation, and the label.

        BatchNorm uses the statistics of the batch, as in training. A decoder reads greedily.
        """
        with paddle.no_grad():
            output = self._call(self.labels, _READ)
        texts, labels = self.decoder(output, self.labels[0].numpy())
        return [(str(text[0]), str(label[0])) for text, label in zip(texts, labels, strict=True)]

    def chance(self) -> float:
        """Return the loss for logits of 0, which give every class the same probability."""
        with paddle.no_grad():
            return float(self.loss(_zeros(self.output())))

    @cached_property
    def takes_labels(self) -> bool:
        """Return True if the output depends on the labels that the head gets, as in a decoder."""
        same = self.labels[0][:, :1].expand_as(self.labels[0])
        with paddle.no_grad():
            first = self.output()
            other = self.output([same, *self.labels[1:]])
        return isinstance(first, Tensor) and not bool(paddle.allclose(first, other))


def _zeros(output: Any) -> Any:
    if isinstance(output, Mapping):
        return {key: _zeros(value) for key, value in output.items()}
    return paddle.zeros_like(output) if isinstance(output, Tensor) else output


@dataclass(frozen=True)
class _Part:
    """A loss of one head: its sub-model, its branch of a MultiHead, and whether it takes all outputs of that."""

    model: str | None
    branch: str | None
    loss: Loss
    takes_whole: bool = False


def _parts(loss: Loss) -> Iterator[_Part]:
    """Yield the parts of ``loss`` that compare with labels, since losses of features and of pairs teach no text."""
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
        context: context of a training.
        network: with weights, in train mode.
        loss: the config's loss.
        entries: the batch: images, then labels.
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
            "Loss: no head is trained with labels, so nothing can be learned by heart. Fix: add a loss of a head, such "
            "as CTCLoss.",
            code="nothing_to_train",
        )
    return tuple(heads)


def _layer(model: nn.Layer, branch: str | None) -> nn.Layer:
    """Return the layer of a head that makes the logits.

    Raises:
        ModelError: there is none.
    """
    if (head := getattr(model, "head", None)) is None:
        raise ModelError(
            f"Architecture: {type(model).__name__} has no head to test. Fix: give it a Head.",
            code="missing_branch",
        )
    return head if branch is None else getattr(head, BRANCH_ROWS[branch].layers[-1])


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
    options = {"name": BRANCH_ROWS[branch].decoder} if branch else context.config.at("PostProcess").thaw()
    options["name"] = str(options["name"]).removeprefix("Distillation")
    return context.decoder(
        {key: value for key, value in options.items() if key not in ("model_name", "key", "multi_head")}
    )
