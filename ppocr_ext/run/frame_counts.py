"""Count the frames of a model's CTC output, to find labels that need more before training.

The CTC loss and the gradient of such a label are 0, so it trains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import paddle
from paddle import nn

from ppocr_ext.base.parts import CTC_DECODER
from ppocr_ext.check.sub_models import loss_parts
from ppocr_ext.config import Config
from ppocr_ext.config.node import dotted
from ppocr_ext.data.preprocessing import Size, read_preprocessing
from ppocr_ext.data.sample_rules import FRAME_WIDTH, FrameLimit
from ppocr_ext.data.sample_seeds import generators_kept
from ppocr_ext.errors import ModelError
from ppocr_ext.losses import CTCLoss, DistillationCTCLoss
from ppocr_ext.messages import error_text
from ppocr_ext.modeling import BaseModel, DistillationModel, networks_of
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.host_config import decoder_models

_CTC_LOGITS = HeadRequest(frozenset({"ctc"}), as_dict=False)


@dataclass(frozen=True)
class FrameCounts:
    """T of the CTC output by the size of the images, pooled as in training (``Train``) or evaluation (``Eval``).

    Attributes:
        by_size: (height, width) of a batch → T.
        path: config path of these sizes.
        complete: True if every batch has one of these sizes.
        follows_ratio: True if the width of a batch is a multiple of its height (``ds_width``).
        train_frames: the value of this key of each backbone, by config path; empty for ``Eval``.
        fixed_by: config paths of the ``train_frames`` that give the same T at any width.
    """

    by_size: Mapping[tuple[int, int], int]
    path: str = ""
    complete: bool = False
    follows_ratio: bool = False
    train_frames: Mapping[str, int | str] = field(default_factory=dict)
    fixed_by: tuple[str, ...] = ()

    def __call__(self, height: int, width: int) -> int | None:
        """Return T for images of this size; None if it is unknown."""
        return self.by_size.get((height, width))

    @property
    def least(self) -> int | None:
        """The smallest T of a batch; None if batches may have other sizes."""
        return min(self.by_size.values(), default=None) if self.complete else None

    def limit(self, required: bool) -> FrameLimit | None:
        """Return the limit of the labels; None if T is unknown for some batch.

        Args:
            required: True if a label above the limit is unusable; False if it only counts as an error.
        """
        if self.least is None:
            return None
        by_ratio: dict[int, int] = {}  # ratio -> the smallest T of all heights
        for (height, width), count in self.by_size.items() if self.follows_ratio else ():
            ratio = width // height
            by_ratio[ratio] = min(count, by_ratio.get(ratio, count))
        narrowest = min(width for _, width in self.by_size)
        return FrameLimit(self.least, by_ratio or None, required, self.fixed_by, self.path, narrowest)

    def notes(self, most_frames: int = 0) -> list[str]:
        """Return a sentence for each ``train_frames``: what it means for the labels of ``Train``.

        Args:
            most_frames: highest number of frames that a label needs; 0 if it is unknown.
        """
        widths = sorted({width for _, width in self.by_size})
        counts = [width // FRAME_WIDTH for width in widths]
        by_width = f"one frame for each {FRAME_WIDTH} pixels"
        if widths:
            by_width = f"{_span(counts)} frames at {_span(widths)} pixels"
        needed = f"; the label that needs most frames needs {most_frames}" if most_frames else ""
        notes = []
        for key, value in self.train_frames.items():
            fixed = f"{key}: {value}: {value} frames in training at any width{needed}"
            if value == "width":
                notes.append(f"{key}: width: training frames follow the width: {by_width}{needed}.")
            elif most_frames > int(value):
                wider = " and wider images; it" if counts and most_frames > counts[-1] else ", which"
                notes.append(f"{fixed}. Fix: -o {key}=width{wider} makes {by_width}.")
            else:
                notes.append(f"{fixed}; with `train_frames: width` there would be {by_width}.")
        return notes


def _span(numbers: Sequence[int]) -> str:
    """Return ``40`` for equal numbers, or ``10 to 60`` for the first and last of them."""
    return f"{numbers[0]}" if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"


def count_frames(model: nn.Layer, config: Config, mode: str) -> FrameCounts:
    """Return the number of frames that labels of ``mode`` must fit.

    For ``"Train"``, the sub-models that a CTC loss trains are counted, pooled as in training, where some backbones make
    a fixed number of frames. For ``"Eval"``, those that a CTC decoder reads are counted, pooled as in evaluation. The
    smallest number counts. Weights, BatchNorm statistics, generators and modes do not change.

    Args:
        model: with any weights, not wrapped.
        config: resolved.
        mode: ``"Train"`` or ``"Eval"``.

    Returns:
        Counts without sizes if there is no such sub-model, or the config does not define the size of the images.

    Raises:
        ModelError: the network cannot take images of a size in the config.
    """
    prepared = read_preprocessing(config, mode)
    training = mode == "Train"
    names = trained_with_ctc(config) if training else _read_as_ctc(config)
    pooled = _train_frames(model) if training else {}
    if prepared is None or not prepared.sizes or not names:
        return FrameCounts({}, train_frames=pooled)
    networks = [model.models[str(name)] if isinstance(model, DistillationModel) else model for name in names]
    counts: dict[tuple[int, int], int] = {}
    complete = prepared.all_sizes
    for size in prepared.sizes:
        try:
            frames = [_frames(network, size, training) for network in networks]
        except Exception as error:
            where = f"{config.where(prepared.path)}: {dotted(prepared.path)}"
            raise ModelError(
                f"{where}: the network cannot take images of {list(size)}: {error_text(error)}",
                code="bad_image_size",
            ) from error
        known = [count for count in frames if count is not None]
        complete = complete and len(known) == len(frames)
        if known:
            counts[size[1:]] = min(known)
    by_ratio = training and config.at("Train.dataset.ds_width", None) is True
    fixed_by = tuple(key for key in map(_key_of, names) if pooled.get(key, "width") != "width")
    return FrameCounts(counts, dotted(prepared.path), complete, by_ratio, pooled, fixed_by)


def _train_frames(model: nn.Layer) -> dict[str, int | str]:
    """Return ``train_frames`` of each backbone that has it, by config path."""
    backbones = {name: getattr(network, "backbone", None) for name, network in networks_of(model).items()}
    values = {_key_of(name): getattr(backbone, "train_frames", None) for name, backbone in backbones.items()}
    return {key: value for key, value in values.items() if value is not None}


def _key_of(name: str | None) -> str:
    """Return the config path of ``train_frames`` of a sub-model, or (for None) of a single model."""
    return f"Architecture.{f'Models.{name}.' if name else ''}Backbone.train_frames"


def is_ctc_loss(loss: Callable[..., Any]) -> bool:
    """Return True if ``loss`` is a class of our CTC losses (of one model or of sub-models), or a subclass."""
    return isinstance(loss, type) and issubclass(loss, CTCLoss | DistillationCTCLoss)


def trained_with_ctc(config: Config) -> tuple[str | None, ...]:
    """Return the sub-models that a CTC loss trains; ``(None,)`` for a model without sub-models, ``()`` for none.

    A loss of another package may read anything, so the sub-models that a CTC decoder reads are added for it.
    """
    models = config.at("Architecture.Models", None)
    names: list[str | None] = []
    for loss, path in loss_parts(config):
        if is_ctc_loss(loss):
            named = config.at((*path, "model_name_list"), None) if models is not None else (None,)
            names += named if isinstance(named, tuple) else ()
        elif not loss.__module__.startswith("ppocr_ext."):
            names += _read_as_ctc(config)
    if models is not None:
        names = [name for name in names if name in models and not models[name].get("freeze_params")]
    return tuple(dict.fromkeys(names))


def _read_as_ctc(config: Config) -> tuple[str | None, ...]:
    if str(config.at("PostProcess.name", None)).removeprefix("Distillation") != CTC_DECODER:
        return ()
    return decoder_models(config) or (None,)


def _frames(network: nn.Layer, size: Size, training: bool) -> int | None:
    """Return T of a network for an image [C, H, W], in training or in evaluation; None if it is unknown."""
    with left_as_it_was(network), paddle.no_grad():
        for layer in network.sublayers(include_self=True):
            layer.training = training  # train() would also switch Paddle's tracer
        images = paddle.zeros([1, *size])
        request = replace(_CTC_LOGITS, for_training=training)
        output = network(images, None, request) if isinstance(network, BaseModel) else network(images)
    return _length(output)


@contextmanager
def left_as_it_was(network: nn.Layer) -> Iterator[None]:
    """Restore modes, BatchNorm statistics and generators at the end of this context, also after an error."""
    modes = [(layer, layer.training) for layer in network.sublayers(include_self=True)]
    statistics = [(t, t.clone()) for t in network.state_dict().values() if t.stop_gradient]
    generator = paddle.get_rng_state()
    try:
        with generators_kept():
            yield
    finally:
        for layer, mode in modes:
            layer.training = mode
        for tensor, before in statistics:
            tensor.set_value(before)
        paddle.set_rng_state(generator)


def _length(output: Any) -> int | None:
    """Return T of logits or probabilities [B, T, C], also in a dict or a tuple; None if there are none."""
    if isinstance(output, Mapping):
        output = next((output[key] for key in ("ctc", "head_out") if key in output), None)
        return None if output is None else _length(output)
    if isinstance(output, tuple | list):  # return_feats: (features, logits)
        output = output[-1] if output else None
    shape = list(getattr(output, "shape", []))
    return int(shape[1]) if len(shape) == 3 else None
