"""A plugin: components that know nothing of ours but the registry, written as PaddleOCR's are."""

import paddle.nn.functional as F
from paddle import nn

from ppocr_ext.registry import BACKBONES, HEADS


@BACKBONES.register("ForeignBackbone")
class ForeignBackbone(nn.Layer):
    def __init__(self, in_channels=3, width=16, **kwargs):
        super().__init__()
        self.conv = nn.Conv2D(in_channels, width, 3, stride=4, padding=1)
        self.norm = nn.BatchNorm2D(width)
        self.out_channels = width

    def forward(self, x):
        return F.adaptive_avg_pool2d(F.relu(self.norm(self.conv(x))), [1, x.shape[3] // 8])


@BACKBONES.register("ForeignWithoutChannels")
class ForeignWithoutChannels(nn.Layer):
    def __init__(self, in_channels=3):
        super().__init__()

    def forward(self, x):
        return x


@HEADS.register("ForeignHead")
class ForeignHead(nn.Layer):
    """Returns other things in train mode than in eval mode, as PaddleOCR's heads do."""

    def __init__(self, in_channels, out_channels=5, **kwargs):
        super().__init__()
        self.norm = nn.BatchNorm2D(in_channels)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(in_channels, out_channels)
        self.seen_targets = None

    def forward(self, x, targets=None):
        self.seen_targets = targets
        logits = self.fc(self.drop(self.norm(x)).squeeze(2).transpose([0, 2, 1]))
        if self.training:
            return {"char_logits": logits}
        return F.softmax(logits, axis=-1)
