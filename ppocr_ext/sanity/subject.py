"""Open what a config trains, with one batch: the networks, the loss and the heads, and how to begin again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddle import Tensor, nn
from paddle.optimizer import Optimizer
from paddle.optimizer.lr import LRScheduler

from ppocr_ext.check.sub_models import ALLOW_UNTRAINED
from ppocr_ext.config import Config
from ppocr_ext.data.batches import images_of, labels_of
from ppocr_ext.issues import report_issues
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.optim import build_lr_scheduler, build_optimizer
from ppocr_ext.run.context import RunContext, RunOptions, open_context
from ppocr_ext.run.dry_step import dry_step
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.loader_setup import RunData
from ppocr_ext.run.one_batch import OneBatch, one_batch
from ppocr_ext.run.run import build_network
from ppocr_ext.run.train_setup import set_up_training
from ppocr_ext.sanity.heads import TrainedHead, trained_heads

_DROPOUT = (nn.Dropout, nn.Dropout2D, nn.Dropout3D, nn.AlphaDropout)
_SEARCHED = 1000  # steps of a schedule that names no rate, of which the highest is taken


@dataclass(frozen=True, eq=False)
class Subject:
    """What a config trains, and the batch that it learns.

    Attributes:
        context: of the training.
        network: in train mode, but without dropout.
        loss: of the config.
        batch: of ``Train``.
        first: the first weights, by name.
        peak: highest learning rate of the config.
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

    def restart(self, factor: float = 1.0) -> Optimizer:
        """Put the first weights back, and return the config's optimizer at ``factor`` times the peak rate.

        The rate stays the same, without warm-up and decay.
        """
        self.network.set_state_dict(self.first)
        if self.first_of_loss:
            self.loss.set_state_dict(self.first_of_loss)
        self.network.clear_gradients(set_to_zero=False)
        options = self.context.components.at("Optimizer").thaw()
        options.pop("lr_mult", None)  # the parameters have these factors already
        options["lr"] = {"name": "Const", "learning_rate": self.peak * factor}
        return build_optimizer(options, epochs=1, step_each_epoch=1, model=self.network)[0]


def open_subject(
    config: Config, samples: int, host_path: str | None = None, old_dictionary: str | None = None
) -> Subject:
    """Open a config as a training does, with one batch of ``Train`` in place of the data.

    Neither a run folder nor anything else is written. Not used: augmentation, dropout, stochastic depth, mixed
    precision, compilation, `recompute`, and the state of an optimizer in a checkpoint.

    Args:
        config: as loaded.
        samples: of the batch, at most.
        host_path: a PaddleOCR checkout; None searches for a host.
        old_dictionary: dictionary of the weights, if it differs from the config's.

    Raises:
        PPOCRExtError: something cannot be built; the message says what to change.
    """
    resumed = config.settings.checkpoints
    if resumed:  # its weights alone, without the position of its run
        config = config.with_values({"Global.checkpoints": None, "Global.pretrained_model": resumed})
    # heads are tested, not what a teacher knows
    config = config.with_values({f"Global.{ALLOW_UNTRAINED}": True})
    context = open_context(config, RunOptions("train", host_path, old_dictionary))
    plain = {"Global.use_amp": False, "Global.to_static": False}
    context = replace(context, config=context.config.with_values(plain))
    network = build_network(context.components)
    if context.config.settings.dry_step:
        report_issues(
            dry_step(
                context.components,
                context.charset,
                context.host,
                network,
                ("Train",),
                context.seed,
                LOG.info,
            )
        )
    batch = one_batch(context, network, samples)
    loaders: Any = {"Train": [batch.entries]}  # a list with one batch is read as a loader is
    data = RunData(loaders=loaders, preflight={}, load_failures={}, label_files=(), usable_files={})
    training = set_up_training(context, network, data)
    network = training.model
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
    """Return the highest learning rate of ``Optimizer.lr``: what it names, else that of its first steps."""
    named = options.get("learning_rate", options.get("max_lr"))
    if isinstance(named, int | float):
        return float(named)
    schedule = build_lr_scheduler(options, epochs=_SEARCHED, step_each_epoch=1)
    if not isinstance(schedule, LRScheduler):
        return float(schedule)
    rates = []
    for _ in range(_SEARCHED):
        rates.append(float(schedule.get_lr()))
        schedule.step()
    return max(rates)


def switch_off_dropout(network: nn.Layer) -> None:
    """Switch dropout and stochastic depth off in the trained networks, which stay in train mode.

    Frozen sub-models are in eval mode. A layer of a plugin that calls ``F.dropout`` itself is not found.
    """
    models = network.models if isinstance(network, DistillationModel) else {"": network}
    trained = [models[name] for name in models.keys() - frozen_models(network)]
    for layer in (layer for each in trained for layer in each.sublayers()):
        if isinstance(layer, _DROPOUT):
            layer.p = 0.0
        elif isinstance(layer, nn.MultiHeadAttention | nn.layer.rnn.RNNBase):
            layer.dropout = 0.0
        elif getattr(layer, "has_dropout", False):
            layer.training = False
