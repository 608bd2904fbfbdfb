"""The two convolutions in front of NRTR's Transformer (Sheng et al., arXiv 1806.00926)."""

from __future__ import annotations

from paddle import Tensor, nn

from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling.recompute import Recomputable
from ppocr_ext.registry import BACKBONES

CHANNELS = (32, 64)


@BACKBONES.register()
class MTB(Recomputable):
    """Make a token of each column of features: images [B, C, H, W] become tokens [B, W / 4, 16 * H].

    The ``Transformer`` head reads them with a ``d_model`` of 16 times the height of the images.

    Args:
        cnn_num: must be 2, the number of convolutions.
        in_channels: channels of the image.

    Raises:
        ConfigError: ``cnn_num`` is not 2.
    """

    def __init__(self, cnn_num: int, in_channels: int = 3) -> None:
        super().__init__()
        if cnn_num != len(CHANNELS):
            raise ConfigError(
                f"MTB.cnn_num is {cnn_num!r}, but must be 2.", code="bad_value", key=("cnn_num",)
            )
        self.block = nn.Sequential()
        before = in_channels
        for index, after in enumerate(CHANNELS):
            self.block.add_sublayer(f"conv_{index}", nn.Conv2D(before, after, 3, 2, 1))
            self.block.add_sublayer(f"relu_{index}", nn.ReLU())
            self.block.add_sublayer(f"bn_{index}", nn.BatchNorm2D(after))
            before = after
        self.out_channels = in_channels  # PaddleOCR's; the features of a token depend on the height

    def forward(self, images: Tensor) -> Tensor:
        """Map [B, in_channels, H, W] to tokens [B, W / 4, H / 4 * 64]; a token has row after row."""
        return self.block(images).transpose([0, 3, 2, 1]).flatten(2)
