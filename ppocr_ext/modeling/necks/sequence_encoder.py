"""The neck that makes frames of features, with one of four encoders."""

from __future__ import annotations

from typing import Any

from paddle import Tensor, nn

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.necks.light_svtr import LightSVTR
from ppocr_ext.modeling.necks.svtr import RecurrentEncoder, SVTREncoder
from ppocr_ext.registry import NECKS, known_options

# PaddleOCR has others by this neck's name: `fc`, `cascadernn`, …
ENCODERS: dict[str, type[nn.Layer] | None] = {
    "reshape": None,
    "rnn": RecurrentEncoder,
    "svtr": SVTREncoder,
    "lightsvtr": LightSVTR,
}


@NECKS.register()
class SequenceEncoder(nn.Layer):
    """Features of a line of height 1 as frames, with an optional encoder.

    Args:
        in_channels: channels of the backbone.
        encoder_type: `reshape` (frames as they are), `rnn`, `svtr` or `lightsvtr`. For another,
            :func:`ppocr_ext.modeling.build_neck` builds the host's neck of this name.
        **options: options of the encoder.

    Raises:
        ModelError: another encoder is named.
        ConfigError: an option is misspelt.
    """

    def __init__(self, in_channels: int, encoder_type: str, **options: Any) -> None:
        super().__init__()
        if encoder_type not in ENCODERS:
            raise ModelError(
                f"Neck: there is no encoder {encoder_type!r}; use {', '.join(ENCODERS)}, or name a PaddleOCR "
                f"checkout, which has others, with `--host DIR`.",
                code="unsupported_component",
            )
        self.encoder_type = encoder_type
        self.encoder: nn.Layer | None = None
        self.out_channels = in_channels
        build = ENCODERS[encoder_type]
        if build is not None:
            self.encoder = build(in_channels, **known_options(build, options, f"neck {encoder_type}"))
            self.out_channels = self.encoder.out_channels

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, 1, T] to frames [B, T, out_channels].

        Raises:
            ModelError: the height is not 1.
        """
        if len(images.shape) != 4 or images.shape[2] not in (1, -1):
            raise ModelError(
                f"Neck {self.encoder_type}: frames are made of features [B, C, 1, T], the backbone gave "
                f"{list(images.shape)}. Let it pool the height away (SVTRv2: use_pool: true).",
                code="shape_mismatch",
            )
        takes_frames = isinstance(self.encoder, RecurrentEncoder)
        if self.encoder is not None and not takes_frames:
            images = self.encoder(images)
        # `flatten` and not `squeeze`: if there are as many frames as channels, Paddle Inference with oneDNN fails on
        # squeeze and transpose in a graph of fixed width
        frames = images.flatten(2).transpose([0, 2, 1])
        return self.encoder(frames) if self.encoder is not None and takes_frames else frames
