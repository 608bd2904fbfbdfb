"""Parts of a user's own; nothing in them depends on the size of a batch, so several processes can be compared."""

import paddle

from ppocr_ext.registry import BACKBONES, LOSSES


@BACKBONES.register()
class Columns(paddle.nn.Layer):
    """A convolution down to a line, without BatchNorm."""

    def __init__(self, in_channels=3, width=12):
        super().__init__()
        self.out_channels = width
        self.conv = paddle.nn.Conv2D(in_channels, width, 3, stride=(1, 8), padding=1)

    def forward(self, x):
        return self.conv(x).mean(axis=2, keepdim=True)


@LOSSES.register()
class SilentCTC(paddle.nn.Layer):
    """CTC that does not say that it reads nothing else."""

    def __init__(self):
        super().__init__()
        self.ctc = paddle.nn.CTCLoss(blank=0)

    def forward(self, predicts, batch):
        logits = predicts["ctc"].transpose([1, 0, 2])
        frames = paddle.full([logits.shape[1]], logits.shape[0], dtype="int64")
        value = self.ctc(logits, batch[1].astype("int32"), frames, batch[3].astype("int64"))
        return {"silent": value, "loss": value}
