"""The general list, which a fine-tuned recogniser must still read: ``Eval.general``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import paddle
from paddle import Tensor, nn

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import BEFORE, POINTS
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.config.derive import of_general
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.errors import WeightsError
from ppocr_ext.losses import ctc_of
from ppocr_ext.losses.base_loss import to_logits
from ppocr_ext.modeling.backbones.conv_parts import fused_network
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.context import RunContext, RunOptions
from ppocr_ext.run.data_check import warn_of_trained
from ppocr_ext.run.loader import Loader
from ppocr_ext.run.loader_setup import open_data
from ppocr_ext.run.team import Team

SECTION = "Eval.general"


def weights_before(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the weights before the training of a checkpoint, which stand beside it.

    Raises:
        WeightsError: they are not there.
    """
    before = checkpoint.prefix.with_name(BEFORE)
    if not Path(f"{before}.pdparams").is_file():
        raise WeightsError(
            f"{checkpoint.prefix}: the weights before its training are not beside it. Fix: copy {BEFORE}.pdparams from "
            "the folder of its run, or begin a new run: -o Global.checkpoints=null "
            f"Global.pretrained_model={checkpoint.prefix}.",
            code="missing_file",
        )
    return Checkpoint(before).weights()


def is_left_to_choose(checkpoint: Checkpoint) -> bool:
    """Return whether the run of a checkpoint has a general list, and was ended before it chose the best weights."""
    return (
        checkpoint.prefix.with_name(f"{BEFORE}.pdparams").is_file()
        and not checkpoint.prefix.with_name(POINTS).is_file()
    )


def open_general(context: RunContext, model: nn.Layer, checked: Mapping[str, PreflightReport]) -> Loader:
    """Return the loader of the general list; its labels are checked as those of ``Eval``.

    Args:
        context: the context of a run with such a list; the other processes of a training are not needed.
        model: its networks.
        checked: reports on the run's data; a warning names images that train and are in the list too.

    Raises:
        DataError: the list cannot be used; the message names the section ``Eval.general``.
    """
    alone = replace(
        context,
        config=of_general(context.config),
        components=of_general(context.components),
        options=RunOptions("eval", context.options.host_path, eval_section=SECTION),
        team=Team(),
    )
    data = open_data(alone, model)
    trained = [report for name, report in checked.items() if name.startswith("Train")]
    warn_of_trained(context.config, trained, data.preflight.get("Eval"), f"{SECTION}.dataset")
    return data.eval_loader


def teacher_before(context: RunContext, network: nn.Layer) -> Callable[[Tensor], Tensor]:
    """Return a function that gives the CTC logits of the weights before the training, for images [B, 3, H, W].

    Args:
        context: the context of a training; a resumed one takes these weights from beside its checkpoint.
        network: with the weights that the training begins from or goes on with; it is copied.

    Raises:
        WeightsError: the weights before the training are not beside the checkpoint.
    """
    before = deepcopy(network)
    if context.checkpoint is not None:
        put_back(weights_before(context.checkpoint), before.state_dict())
    before = fused_network(before)
    # as many frames as the network in training has
    request = HeadRequest(frozenset({"ctc"}), for_training=True)

    @paddle.no_grad()
    def read(images: Tensor) -> Tensor:
        return to_logits(ctc_of(before(images, request=request)), "the weights before the training")

    return read
