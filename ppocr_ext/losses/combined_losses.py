"""Build losses from their configuration, and add several up: CombinedLoss and MultiLoss."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.base.parts import CENTER_LOSSES, MULTI_LOSSES
from ppocr_ext.config import plain_copy
from ppocr_ext.errors import ConfigError, error_below
from ppocr_ext.losses.base_loss import (
    FEATURES,
    Loss,
    LossContext,
    OutputRef,
    Parts,
    check_option,
    head_batch,
    reads_labels,
    required_outputs,
    with_total,
)
from ppocr_ext.registry import LOSSES


def build_loss(config: Mapping[str, Any], context: LossContext | None = None) -> Loss:
    """Build the loss that the ``Loss`` section of a config names; ``config`` is not changed.

    Args:
        config: the section.
        context: the facts of the run for the losses. A CenterLoss needs it, unless its ``num_classes`` and
            ``feat_dim`` are given.

    Raises:
        ConfigError: the name is missing, a name or key is unknown, or an option cannot be used.
    """
    options = plain_copy(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"Loss: `name` is missing. Fix: give one of {', '.join(LOSSES.names())}.", code="missing_key"
        )
    return _build(name, options, context)


def _build(name: str, options: Mapping[str, Any], context: LossContext | None) -> Loss:
    # A constructor with only `**kwargs` gets no context, since PaddleOCR's losses pass all arguments on to Paddle's.
    takes_context = "context" in inspect.signature(LOSSES.get(name)).parameters
    return LOSSES.build(name, options, **({"context": context} if takes_context else {}))


def _listed_losses(entries: Any, owner: str) -> list[tuple[str, dict[str, Any]]]:
    """Return ``loss_config_list``, a list of mappings with one key each, as pairs of (name, options).

    Raises:
        ConfigError: it has another form.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
        raise ConfigError(
            f"{owner}: loss_config_list must be a list of losses, but is {entries!r}.", code="bad_value"
        )
    listed = []
    for position, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or len(entry) != 1:
            raise ConfigError(
                f"{owner}: loss_config_list[{position}] must be one loss and its options, "
                f"such as `- CTCLoss: {{weight: 1.0}}`, but is {entry!r}.",
                code="bad_value",
            )
        [(name, options)] = entry.items()
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(
                f"{owner}: the options of {name} must be a mapping, but are {options!r}.", code="bad_value"
            )
        listed.append((str(name), plain_copy(options or {})))
    return listed


@LOSSES.register()
class CombinedLoss(Loss):
    """Add up weighted losses, each called as ``loss(predicts, batch)``; parts are logged with their weight.

    >>> list(CombinedLoss([{"CTCLoss": {"weight": 0.5}}])(ctc, ctc_batch))
    ['CTCLoss', 'loss']

    A loss that returns a bare tensor, or only ``loss``, is logged under its own name; PaddleOCR logs the first under
    the text of the tensor, and the second not at all. If two losses log the same name, the second one gets ``#2``, so
    that the parts always add up to ``loss``; PaddleOCR keeps only the last.

    Args:
        loss_config_list: ``[{NAME: {weight: …, options …}}, …]``.
        context: passed to the losses.

    Raises:
        ConfigError: an entry has no ``weight``, or cannot be built.
    """

    def __init__(
        self, loss_config_list: Sequence[Mapping[str, Any]] = (), context: LossContext | None = None
    ) -> None:
        super().__init__()
        self.losses: list[tuple[str, float, Any]] = []
        for position, (name, options) in enumerate(_listed_losses(loss_config_list, "CombinedLoss")):
            if "weight" not in options:
                raise ConfigError(
                    f"CombinedLoss: {name} has no `weight`. Fix: add one, such as `weight: 1.0`.",
                    code="missing_key",
                    key=("weight",),
                )
            with error_below("weight"):
                weight = check_option(options.pop("weight"), f"CombinedLoss: weight of {name}")
            loss = _build(name, options, context)
            if isinstance(loss, paddle.nn.Layer):
                self.add_sublayer(f"{position}_{name}", loss)
            self.losses.append((name, weight, loss))

    def forward(
        self,
        predicts: Any,
        batch: Sequence[paddle.Tensor],
        labelled: tuple[Any, Sequence[paddle.Tensor]] | None = None,
    ) -> Parts:
        """Return every part under its name, and the weighted sum as ``"loss"``.

        Args:
            predicts: the outputs of the sub-models.
            batch: the loader's.
            labelled: both for the samples with a label, if some have none; for the losses that read labels.
        """
        logged: Parts = {}
        total: Any = 0.0
        every = (predicts, batch)
        for name, weight, loss in self.losses:
            values = loss(*(labelled if labelled and reads_labels(loss) else every))
            if isinstance(values, paddle.Tensor):
                values = {name: values}
            parts = {key: value * weight for key, value in values.items()}
            entire = parts.pop("loss", None)
            parts = parts or {name: entire}
            total = total + (sum(parts.values()) if entire is None else entire)
            for key, value in parts.items():
                names = itertools.chain([key], (f"{key}#{count}" for count in itertools.count(2)))
                logged[next(name for name in names if name not in logged)] = value
        return {**logged, "loss": total}

    def required_outputs(self) -> set[OutputRef] | None:
        """Return the outputs that the losses require; None (unknown) if those of one loss are unknown."""
        required = [required_outputs(loss) for _, _, loss in self.losses]
        known = [refs for refs in required if refs is not None]
        return set().union(*known) if len(known) == len(required) else None


@LOSSES.register()
class MultiLoss(Loss):
    """Add up ``weight_1 · CTCLoss + weight_2 · NRTRLoss`` (or SARLoss) of one model.

    >>> list(MultiLoss([{"CTCLoss": {}}, {"NRTRLoss": {}}])(heads, batch))
    ['CTCLoss', 'NRTRLoss', 'loss']

    A CenterLoss may be listed too, with a ``weight`` of its own.

    ``predicts``: ``{"ctc": …, "gtc": …}`` of a MultiHead.
    ``batch``: ``[image, label_ctc, label_gtc, length, valid_ratio]``.

    Args:
        loss_config_list: ``[{CTCLoss: options}, {NRTRLoss: options}]``; options may be empty.
        weight_1: weight of CTCLoss.
        weight_2: weight of NRTRLoss and SARLoss.
        context: passed to the losses.

    Raises:
        ConfigError: another loss is listed, a loss is listed twice, or a required output is missing.
    """

    def __init__(
        self,
        loss_config_list: Sequence[Mapping[str, Any]] = (),
        weight_1: float = 1.0,
        weight_2: float = 1.0,
        context: LossContext | None = None,
    ) -> None:
        super().__init__()
        self.losses: dict[str, Any] = {}
        self.weights: dict[str, float] = {}
        weights = (
            check_option(weight_1, "MultiLoss: weight_1"),
            check_option(weight_2, "MultiLoss: weight_2"),
        )
        for name, options in _listed_losses(loss_config_list, "MultiLoss"):
            if name not in MULTI_LOSSES:
                raise ConfigError(
                    f"MultiLoss: found {name}, expected a loss of a branch. Fix: one of {', '.join(MULTI_LOSSES)}.",
                    code="unsupported_component",
                )
            if name in self.losses:
                raise ConfigError(f"MultiLoss: {name} is listed twice.", code="duplicate_item")
            weight = weights[0] if name == "CTCLoss" else weights[1]
            if name in CENTER_LOSSES:
                with error_below("weight"):
                    weight = check_option(options.pop("weight", 1.0), "MultiLoss: weight of CenterLoss")
            self.losses[name] = _build(name, options, context)
            self.weights[name] = weight
            self.add_sublayer(name, self.losses[name])

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return each weighted loss under its class name, and their sum as ``"loss"``."""
        parts: Parts = {}
        for name, loss in self.losses.items():
            head = MULTI_LOSSES[name]
            if not isinstance(predicts, Mapping) or head not in predicts:
                outputs = ", ".join(predicts) if isinstance(predicts, Mapping) else type(predicts).__name__
                raise ConfigError(
                    f"MultiLoss: {name} needs the output {head!r} of a MultiHead (found {outputs}). "
                    f"Fix: list its head under Architecture.Head.head_list, or remove {name}.",
                    code="missing_output",
                )
            reduced = head_batch(batch, head, multi_head=True, where=f"MultiLoss: {name}")
            parts[name] = loss(predicts[head], reduced)["loss"] * self.weights[name]
        return with_total(parts)

    def required_outputs(self) -> set[OutputRef]:
        """Return the branches of its losses, and the features if one of them requires them."""
        every = set().union(*(required_outputs(loss) or set() for loss in self.losses.values()))
        return {(None, MULTI_LOSSES[name]) for name in self.losses} | {r for r in every if r[1] == FEATURES}
