"""A plugin: small heads that are right, each with one switch for the usual mistakes. And batches for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.models import BaseModel
from ppocr_ext.registry import BACKBONES, HEADS
from ppocr_ext.sanity.subject import switch_off_dropout

CHARSET = Charset(tuple("0123456789"))
PLACES = 8
START, END = 2, 3  # of NRTR's classes
BEFORE_SOFTMAX: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "sigmoid": F.sigmoid,
    "tanh": F.tanh,
    "softmax": lambda x: F.softmax(x, axis=-1),
    "norm": lambda x: F.layer_norm(x, x.shape[-1]),
    # twins: both leave the softmax as it is
    "log_softmax": lambda x: F.log_softmax(x, axis=-1),
    "temperature": lambda x: x * 3.0,
}


@BACKBONES.register("SmallColumns")
class SmallColumns(nn.Layer):
    """Images [B, 3, H, W] to columns [B, 32, 1, W / 4]."""

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.out_channels = 32
        self.conv = nn.Conv2D(in_channels, 32, 4, stride=4)
        self.norm = nn.BatchNorm2D(32)

    def forward(self, images: Any) -> Any:
        return F.relu(self.norm(self.conv(images))).max(axis=2, keepdim=True)


@HEADS.register("SmallDecoder")
class SmallDecoder(nn.Layer):
    """A Transformer decoder of two blocks, written as a user would.

    Faults: ``no_positions``, ``no_mask``, a name of ``BEFORE_SOFTMAX``.
    Twins: ``tied`` (logits by the embedding's weights), ``zero_positions`` and ``zero_gate`` (they begin at 0),
    ``shifts_itself`` (the label comes without a start mark).
    """

    def __init__(self, in_channels: int, out_channels: int = 15, fault: str = "", dim: int = 32) -> None:
        super().__init__()
        self.fault = fault
        self.embedding = nn.Embedding(out_channels, dim)
        zeros = nn.initializer.Constant(0.0) if fault == "zero_positions" else nn.initializer.Normal(0.0, 0.5)
        self.places = self.create_parameter([1, 40, dim], default_initializer=zeros)
        self.gate = self.create_parameter(
            [1], default_initializer=nn.initializer.Constant(float(fault != "zero_gate"))
        )
        self.project = nn.Linear(in_channels, dim)
        self.own = nn.LayerList([nn.MultiHeadAttention(dim, 2) for _ in range(2)])
        self.cross = nn.LayerList([nn.MultiHeadAttention(dim, 2) for _ in range(2)])
        self.norms = nn.LayerList([nn.LayerNorm(dim) for _ in range(4)])
        self.dropout = nn.Dropout(0.3)
        self.classifier = nn.Linear(dim, out_channels)

    def forward(self, columns: Any, targets: Any = None) -> Any:
        frames = self.project(columns.squeeze(2).transpose([0, 2, 1]))
        ids = targets[0]
        if self.fault == "shifts_itself":
            ids = paddle.concat([paddle.full_like(ids[:, :1], START), ids], axis=1)
        ids = ids[:, :-1]
        tokens = self.embedding(ids)
        if self.fault != "no_positions":
            tokens = tokens + self.places[:, : ids.shape[1]]
        length = ids.shape[1]
        mask = None if self.fault == "no_mask" else paddle.tril(paddle.ones([length, length], "bool"))
        for i in range(2):
            tokens = self.norms[2 * i](tokens + self.dropout(self.own[i](tokens, attn_mask=mask)))
            seen = self.cross[i](tokens, frames, frames)
            tokens = self.norms[2 * i + 1](tokens + self.dropout(seen) * self.gate)
        if self.fault.startswith("tied"):
            logits = paddle.matmul(tokens, self.embedding.weight, transpose_y=True)
            return F.gelu(logits) if self.fault == "tied_gelu" else logits
        logits = self.classifier(tokens)
        return BEFORE_SOFTMAX.get(self.fault, lambda x: x)(logits)


@HEADS.register("SmallRecurrent")
class SmallRecurrent(nn.Layer):
    """A decoder with a GRU, which needs no positions and no mask; ``both_ways`` sees what comes."""

    def __init__(self, in_channels: int, out_channels: int = 15, fault: str = "", dim: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(out_channels, dim)
        both = fault == "both_ways"
        self.gru = nn.GRU(dim + in_channels, dim, direction="bidirect" if both else "forward")
        self.classifier = nn.Linear(dim * (2 if both else 1), out_channels)

    def forward(self, columns: Any, targets: Any = None) -> Any:
        tokens = self.embedding(targets[0][:, :-1])
        whole = columns.mean(axis=[2, 3]).unsqueeze(1).expand([-1, tokens.shape[1], -1])
        return self.classifier(self.gru(paddle.concat([tokens, whole], axis=-1))[0])


@HEADS.register("SmallFrames")
class SmallFrames(nn.Layer):
    """A CTC head; faults: the names of ``BEFORE_SOFTMAX``."""

    def __init__(self, in_channels: int, out_channels: int = 11, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.classifier = nn.Conv1D(in_channels, out_channels, 1)

    def forward(self, columns: Any, targets: Any = None) -> Any:
        frames = columns.squeeze(2)
        return BEFORE_SOFTMAX.get(self.fault, lambda x: x)(self.classifier(frames).transpose([0, 2, 1]))


def batch(kind: str, count: int = 6) -> list[np.ndarray]:
    """Labels and lengths of ``count`` numbers of 3 to 6 digits.

    ``nrtr``: ``<s> digits </s>`` and zeros. ``plain``: without the start mark. ``endless``: without the end mark.
    ``bare``: digits and zeros, of NRTR's classes. ``ctc``: the same of CTC's. ``sar``: SAR's.
    """
    rng = np.random.default_rng(4)
    lengths = np.array([6, *rng.integers(3, 6, count - 1)], "int64")
    padding = 12 if kind == "sar" else 0
    ids = np.full((count, PLACES), padding, "int64")
    marks = {"nrtr": ([START], [END]), "plain": ([], [END]), "endless": ([START], []), "sar": ([11], [11])}
    begin, close = marks.get(kind, ([], []))
    for row, length in enumerate(lengths):
        digits = rng.integers(0, 10, length) + {"ctc": 1, "sar": 0}.get(kind, 4)
        entries = [*begin, *digits, *close]
        ids[row, : len(entries)] = entries
    return [ids, lengths]


def cross_entropy(labels: list[Any], first: int = 1, smoothing: float = 0.0) -> Callable[[Any], Any]:
    """A loss of logits [B, L, C] against the label from its entry ``first`` on; zeros do not count."""

    def loss(logits: Any) -> Any:
        wanted = F.pad(labels[0], [0, 0, 0, first])[:, first : first + logits.shape[1]]
        if not smoothing:
            return F.cross_entropy(logits, wanted, ignore_index=0)
        goal = F.label_smooth(F.one_hot(wanted, logits.shape[-1]), epsilon=smoothing)
        rows = F.cross_entropy(logits, goal, soft_label=True, reduction="none").squeeze(-1)
        counts = (wanted != 0).astype("float32")
        return (rows * counts).sum() / counts.sum()

    return loss


@dataclass(frozen=True, eq=False)
class Case:
    """A head as :func:`ppocr_ext.sanity.structure.examine_structure` takes it."""

    name: str
    model: Any
    layer: Any
    images: Any
    labels: list[Any]
    loss: Callable[[Any], Any]
    takes_labels: bool = True
    peak: float = 0.005
    charset: Charset = CHARSET
    pick: Callable[[Any], Any] = lambda out: out
    data: Callable[[list[Any]], list[Any]] = lambda labels: labels
    request: HeadRequest = HeadRequest(frozenset({"ctc", "gtc", "sar"}))

    def output(self, labels: Any = None) -> Any:
        given = self.labels if labels is None else labels
        return self.pick(self.model(self.images, data=self.data(given), request=self.request))

    def restart(self, factor: float) -> Any:
        self.model.set_state_dict(self.first)
        return paddle.optimizer.Adam(self.peak * factor, parameters=self.model.parameters())

    @cached_property
    def first(self) -> dict[str, Any]:
        """The weights when it is asked first."""
        return {name: value.clone() for name, value in self.model.state_dict().items()}


def images(count: int = 6, height: int = 32, width: int = 64) -> Any:
    drawn = np.random.default_rng(0).uniform(-1, 1, (count, 3, height, width))
    return paddle.to_tensor(drawn.astype("float32"))


def small(
    head: str,
    kind: str = "nrtr",
    loss: Callable[[list[Any]], Any] = cross_entropy,
    count: int = 6,
    peak: float = 0.005,
    **options: Any,
) -> Case:
    """One of the heads of this file behind ``SmallColumns``, with labels of ``kind`` and a loss."""
    paddle.seed(3)
    model = BaseModel({"Backbone": {"name": "SmallColumns"}, "Head": {"name": head, **options}})
    switch_off_dropout(model)
    labels = [paddle.to_tensor(each) for each in batch(kind, count)]
    return Case(head, model, model.head, images(count), labels, loss(labels), head != "SmallFrames", peak)
