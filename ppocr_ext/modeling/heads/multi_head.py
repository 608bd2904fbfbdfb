"""The CTC head, and the MultiHead, which adds a branch that guides the training: the head since PP-OCRv3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn
from paddle.nn.initializer import TruncatedNormal

from ppocr_ext.base.parts import POSITIONS
from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import HeadRequest, call_head, default_request
from ppocr_ext.modeling.heads.nrtr_head import Transformer
from ppocr_ext.modeling.layers import TRUNCATED_STD, Linear
from ppocr_ext.modeling.necks import SequenceEncoder
from ppocr_ext.registry import HEADS, ComponentKeys, ValueKind, known_options

# keys of the branches in ``head_list``
CTC_BRANCH = ComponentKeys(frozenset({"Neck", "Head"}))
_OF_NRTR: dict[str, ValueKind] = dict.fromkeys(
    ("nrtr_dim", "num_decoder_layers", "max_text_length"), "number"
)
NRTR_BRANCH = ComponentKeys(frozenset(_OF_NRTR), kinds=_OF_NRTR)


@HEADS.register()
class CTCHead(nn.Layer):
    """Classify frames by a linear layer (Graves et al., 2006), optionally after a narrower linear layer.

    Args:
        in_channels: features of a frame.
        out_channels: classes, the blank (0) included.
        fc_decay: L2 decay of its weights and biases, in place of the optimizer's.
        mid_channels: width of a linear layer before the classifier; None without such a layer.
        return_feats: also return the classifier's input. PaddleOCR does so in train mode only. An exported graph always
            returns only the probabilities.
        use_guide: mix neighbouring frames by convolutions before the linear layers (PP-OCRv6 tiny).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        fc_decay: float = 0.0004,
        mid_channels: int | None = None,
        return_feats: bool = False,
        use_guide: bool = False,
    ) -> None:
        super().__init__()
        self.guide_layer = _guide(in_channels) if use_guide else None
        if mid_channels is None:
            self.fc = _classifier(in_channels, out_channels, fc_decay)
        else:
            self.fc1 = _classifier(in_channels, mid_channels, fc_decay)
            self.fc2 = _classifier(mid_channels, out_channels, fc_decay)
        self.out_channels = out_channels
        self.mid_channels = mid_channels
        self.return_feats = return_feats

    def forward(
        self,
        frames: Tensor,
        targets: Sequence[Tensor] | None = None,
        request: HeadRequest | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Classify frames.

        Args:
            frames: [B, T, in_channels].
            targets: not used.
            request: only ``probabilities`` and ``features`` are used.

        Returns:
            Logits or probabilities [B, T, out_channels]; with features (features, logits), where the features [B, T, D]
            are the classifier's input (not in an exported graph).
        """
        request = request or default_request(self.training)
        if self.guide_layer is not None:
            frames = self.guide_layer(frames.transpose([0, 2, 1])).transpose([0, 2, 1])
        features = frames if self.mid_channels is None else self.fc1(frames)
        scores = self.fc(features) if self.mid_channels is None else self.fc2(features)
        if request.probabilities:
            scores = F.softmax(scores, axis=-1)
        exported = request.probabilities and not paddle.in_dynamic_mode()
        with_features = self.return_feats if request.features is None else request.features
        return (features, scores) if with_features and not exported else scores


def _classifier(in_features: int, out_features: int, decay: float) -> Linear:
    bound = 1.0 / math.sqrt(in_features)

    def attr() -> ParamAttr:
        return ParamAttr(
            regularizer=paddle.regularizer.L2Decay(decay),
            initializer=nn.initializer.Uniform(-bound, bound),
        )

    return Linear(in_features, out_features, weight_attr=attr(), bias_attr=attr())


def _guide(dim: int) -> nn.Layer:
    """Return a depthwise convolution of 5 frames and a pointwise one: [B, dim, T] to the same shape."""
    return nn.Sequential(
        nn.Conv1D(dim, dim, 5, padding=2, groups=dim, bias_attr=False),
        nn.BatchNorm1D(dim),
        nn.Hardswish(),
        nn.Conv1D(dim, dim, 1, bias_attr=False),
        nn.BatchNorm1D(dim),
        nn.Hardswish(),
    )


POOL = (3, 2)  # rows and columns that `use_pool` takes the mean of
HEAD_DIM = 32  # features of a head of the NRTR decoder's attention


# PaddleOCR's checkpoints have the names `fc` and `dec_pos_embed` of these two layers.
class FrameProjection(nn.Layer):
    """Project columns [B, C, N] to frames of the decoder's width."""

    def __init__(self, in_channels: int, dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(in_channels, dim, bias_attr=False)

    def forward(self, columns: Tensor) -> Tensor:
        """Map [B, in_channels, N] to [B, N, dim]."""
        return self.fc(columns.transpose([0, 2, 1]))


class FramePositions(nn.Layer):
    """Add a learned value to each of the first frames."""

    def __init__(self, dim: int, length: int) -> None:
        super().__init__()
        self.dec_pos_embed = self.create_parameter(
            [1, length, dim], attr=ParamAttr(initializer=TruncatedNormal(std=TRUNCATED_STD))
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Map [B, N, dim] to the same shape.

        Raises:
            ModelError: there are more frames than positions.
        """
        length = self.dec_pos_embed.shape[1]
        count = frames.shape[1]
        if paddle.in_dynamic_mode() and count > length:
            raise ModelError(
                f"MultiHead with use_pos: {count} frames, but only {length} positions. Fix: read narrower images with "
                "NRTR (no eval_mode in Eval), or read with CTC.",
                code="too_many_frames",
            )
        return frames + self.dec_pos_embed[:, :count]


@HEADS.register()
class MultiHead(nn.Layer):
    """Run a CTC branch and one that guides it in training (GTC, Hu et al., AAAI 2020): NRTR (``gtc``) or SAR (``sar``).

    Args:
        in_channels: channels of the backbone.
        out_channels_list: classes for ``CTCLabelDecode``, ``NRTRLabelDecode``, ``SARLabelDecode``.
        head_list: mappings of one key: ``CTCHead`` (with ``Neck`` and ``Head``), ``NRTRHead``
            (``nrtr_dim``, ``num_decoder_layers``, ``max_text_length``), ``SARHead``.
        use_pool: the backbone returns tokens of three rows; average 3 rows and 2 columns.
        use_pos: learned positions for the frames of the NRTR decoder.

    Raises:
        ModelError: a branch or its number of classes is missing.
        UnknownComponentError: neither this package nor the host has a branch of a name.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels_list: Mapping[str, int],
        head_list: Sequence[Mapping[str, Any]],
        use_pool: bool = False,
        use_pos: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.use_pool = use_pool
        built = [
            self._add(name, options or {}, out_channels_list, use_pos)
            for entry in head_list
            for name, options in entry.items()
        ]
        if "ctc" not in built:
            raise ModelError(
                f"MultiHead: head_list needs a CTCHead (found {[*map(list, head_list)]}).",
                code="missing_branch",
            )
        self.branches = frozenset(built)

    def _add(self, name: str, options: Mapping[str, Any], classes: Mapping[str, int], use_pos: bool) -> str:
        where = f"MultiHead {name}"
        if name == "CTCHead":
            parts = known_options(CTC_BRANCH, options, where)
            self._add_ctc(_class_count(classes, "CTCLabelDecode"), parts.get("Neck"), parts.get("Head"))
            return "ctc"
        if name == "NRTRHead":
            count = _class_count(classes, "NRTRLabelDecode")
            self._add_nrtr(count, use_pos, **known_options(NRTR_BRANCH, options, where))
            return "gtc"
        if name == "SARHead":
            self.sar_head = HEADS.build(
                name,
                options,
                in_channels=self.in_channels,
                out_channels=_class_count(classes, "SARLabelDecode"),
            )
            return "sar"
        HEADS.get(name)  # the error of an unknown name lists the known ones
        raise ModelError(
            f"MultiHead: {name} cannot be a branch. Fix: use CTCHead, NRTRHead or SARHead.",
            code="unsupported_component",
        )

    def _add_ctc(self, classes: int, neck: Mapping[str, Any] | None, head: Mapping[str, Any] | None) -> None:
        options = dict(neck or {"name": "reshape"})
        self.ctc_encoder = SequenceEncoder(self.in_channels, options.pop("name"), **options)
        chosen = known_options(CTCHead, head or {}, "MultiHead CTCHead.Head")
        self.ctc_head = CTCHead(
            **{**chosen, "in_channels": self.ctc_encoder.out_channels, "out_channels": classes}
        )

    def _add_nrtr(
        self,
        classes: int,
        use_pos: bool,
        nrtr_dim: int = 256,
        num_decoder_layers: int = 4,
        max_text_length: int = 25,
    ) -> None:
        layers: list[nn.Layer] = [nn.Flatten(2), FrameProjection(self.in_channels, nrtr_dim)]
        if use_pos:
            layers.append(FramePositions(nrtr_dim, POSITIONS))
        self.before_gtc = nn.Sequential(*layers)
        self.gtc_head = Transformer(
            d_model=nrtr_dim,
            nhead=nrtr_dim // HEAD_DIM,
            num_encoder_layers=-1,
            beam_size=-1,
            num_decoder_layers=num_decoder_layers,
            max_len=max_text_length,
            dim_feedforward=nrtr_dim * 4,
            out_channels=classes,
        )

    def forward(
        self,
        features: Tensor,
        targets: Sequence[Tensor] | None = None,
        request: HeadRequest | None = None,
    ) -> Any:
        """Run the branches of the request.

        Args:
            features: [B, in_channels, 1, T], or tokens [B, N, in_channels] with ``use_pool``.
            targets: [labels of CTC, labels of NRTR or SAR, lengths, …], in the order of PaddleOCR's loader.
            request: the outputs; by default all in train mode, CTC probabilities otherwise.

        Returns:
            The requested outputs of ``{"ctc", "ctc_neck" [B, T, D], "gtc", "sar"}``, or the bare output of the first
            one: see :class:`CTCHead` and :class:`Transformer`.

        Raises:
            ModelError: a bare output is requested, but the head has none of these branches.
        """
        request = request or default_request(self.training)
        branches = request.branches & self.branches
        if not branches and not request.as_dict:
            raise ModelError(
                f"MultiHead: the request needs one of {sorted(request.branches)} (found {sorted(self.branches)}).",
                code="unknown_branch",
            )
        if self.use_pool:
            images = features.reshape([0, POOL[0], -1, self.in_channels]).transpose([0, 3, 1, 2])
            features = F.avg_pool2d(images, POOL)
        guide = None if targets is None else targets[1:]
        out: dict[str, Any] = {}
        if "ctc" in branches:
            frames = self.ctc_encoder(features)
            out["ctc"] = self.ctc_head(frames, request=request)
            if request.as_dict:
                out["ctc_neck"] = frames
        if "gtc" in branches:
            out["gtc"] = self.gtc_head(self.before_gtc(features), guide, request)
        if "sar" in branches:
            out["sar"] = call_head(self.sar_head, features, guide, request)
        return out if request.as_dict else next(iter(out.values()))


def _class_count(classes: Mapping[str, int], decoder: str) -> int:
    if decoder not in classes:
        raise ModelError(
            f"MultiHead: out_channels_list has no {decoder} (found {sorted(classes)}). Fix: add it: n classes with the "
            f"blank for CTC, n + 2 for SAR, n + 3 for NRTR.",
            code="missing_key",
        )
    return int(classes[decoder])
