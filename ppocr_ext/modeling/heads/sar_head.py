"""The SAR head (Li et al., "Show, Attend and Read", arXiv 1811.00751): an LSTM that attends to the features."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import HeadRequest, default_request
from ppocr_ext.modeling.layers import HIDDEN
from ppocr_ext.registry import HEADS

LAYERS = 2  # number of layers of both LSTMs


class SARFeature(nn.Layer):
    """Compute one feature vector of the whole line: the last step of an LSTM over the columns.

    Args:
        in_channels: channels of the features.
        hidden: width of the LSTM.
        bidirectional: whether the LSTM reads both ways.
        dropout: between its layers.
    """

    def __init__(self, in_channels: int, hidden: int, bidirectional: bool, dropout: float) -> None:
        super().__init__()
        direction = "bidirectional" if bidirectional else "forward"
        self.rnn_encoder = nn.LSTM(in_channels, hidden, LAYERS, direction=direction, dropout=dropout)
        self.out_channels = hidden * (2 if bidirectional else 1)
        self.linear = nn.Linear(self.out_channels, self.out_channels)

    def forward(self, features: Tensor, widths: Tensor | None) -> Tensor:
        """Map [B, C, H, W] to [B, out_channels]; `widths` [B] is the number of columns that show text, None for all."""
        columns = F.max_pool2d(features, [features.shape[2], 1]).squeeze(2).transpose([0, 2, 1])
        steps, _ = self.rnn_encoder(columns)
        if widths is None:
            return self.linear(steps[:, -1])
        last = F.one_hot(widths - 1, columns.shape[1]).unsqueeze(-1)
        return self.linear((steps * last.astype(steps.dtype)).sum(axis=1))


class SARDecoder(nn.Layer):
    """Run an LSTM that attends to all places of the features at each step.

    Args:
        classes: number of classes: characters, `<UKN>`, the mark of both ends, and the padding, which is never
            predicted.
        in_channels: channels of the features.
        width: the size of the line's feature, the embeddings and the LSTM.
        attention: width of the attention.
        bidirectional: whether the LSTM reads both ways.
        rnn_dropout: between the layers of the LSTM.
        dropout: before the classifier's output.
        concat: classify output, attended feature and line feature together. With False, only the attended feature.
        max_length: characters that are decoded.
    """

    def __init__(
        self,
        classes: int,
        in_channels: int,
        width: int,
        attention: int,
        bidirectional: bool,
        rnn_dropout: float,
        dropout: float,
        concat: bool,
        max_length: int,
    ) -> None:
        super().__init__()
        self.start = classes - 2
        self.padding = classes - 1
        self.max_length = max_length
        self.concat = concat
        hidden = width * (2 if bidirectional else 1)
        self.conv1x1_1 = nn.Linear(hidden, attention)
        self.conv3x3_1 = nn.Conv2D(in_channels, attention, 3, padding=1)
        self.conv1x1_2 = nn.Linear(attention, 1)
        self.rnn_decoder = nn.LSTM(
            width,
            width,
            LAYERS,
            direction="bidirectional" if bidirectional else "forward",
            dropout=rnn_dropout,
        )
        self.embedding = nn.Embedding(classes, width, padding_idx=self.padding)
        self.prediction = nn.Linear(hidden + in_channels + width if concat else in_channels, classes - 1)
        self.pred_dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor, line: Tensor, labels: Tensor, widths: Tensor | None) -> Tensor:
        """Predict the character after each of `labels`.

        Args:
            features: [B, C, H, W].
            line: feature of the whole line [B, width].
            labels: classes [B, L], the start mark first.
            widths: columns [B] that show text; None for all.

        Returns:
            Logits [B, L, classes - 1].
        """
        inputs = paddle.concat([line.unsqueeze(1), self.embedding(labels)], axis=1)
        return self.pred_dropout(self._attend(features, line, inputs, widths))[:, 1:]

    def decode(self, features: Tensor, line: Tensor, widths: Tensor | None) -> Tensor:
        """Read greedily: probabilities [B, max_length, classes - 1]."""
        start = self.embedding(paddle.full([features.shape[0]], self.start, "int64"))
        inputs = [line, start]
        steps = []
        for _ in range(self.max_length):
            scores = self._attend(features, line, paddle.stack(inputs, axis=1), widths)[:, -1]
            steps.append(F.softmax(scores, axis=-1))
            inputs.append(self.embedding(scores.argmax(axis=-1)))
        return paddle.stack(steps, axis=1)

    def _attend(self, features: Tensor, line: Tensor, inputs: Tensor, widths: Tensor | None) -> Tensor:
        hidden, _ = self.rnn_decoder(inputs)
        query = self.conv1x1_1(hidden)[:, :, :, None, None]
        key = self.conv3x3_1(features).unsqueeze(1)
        scores = self.conv1x1_2(paddle.tanh(query + key).transpose([0, 1, 3, 4, 2])).squeeze(-1)
        if widths is not None:
            places = paddle.arange(features.shape[3])[None, None, None, :]
            hides = places >= widths[:, None, None, None]
            scores = paddle.where(hides.expand_as(scores), paddle.full_like(scores, HIDDEN), scores)
        weights = F.softmax(scores.flatten(2), axis=-1)
        attended = paddle.matmul(weights, features.flatten(2), transpose_y=True)
        if self.concat:
            lines = line.unsqueeze(1).expand([-1, hidden.shape[1], -1])
            attended = paddle.concat([hidden, attended, lines], axis=-1)
        return self.prediction(attended)


@HEADS.register()
class SARHead(nn.Layer):
    """Read by attention (Show, Attend and Read); guides the CTC head of PP-OCRv3 in training.

    Args:
        in_channels: channels of the features.
        out_channels: n + 2 classes; n counts the dictionary, the space if used, and CTC's blank.
        enc_dim: width of the LSTMs.
        max_text_length: characters that are decoded.
        enc_bi_rnn: whether the LSTM over the columns reads both ways.
        enc_drop_rnn: dropout in that LSTM.
        dec_bi_rnn: whether the decoder's LSTM reads both ways.
        dec_drop_rnn: dropout in that LSTM.
        d_k: width of the attention.
        pred_dropout: dropout of the classifier's output.
        pred_concat: classify output, attended feature and line feature together.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        enc_dim: int = 512,
        max_text_length: int = 30,
        enc_bi_rnn: bool = False,
        enc_drop_rnn: float = 0.1,
        dec_bi_rnn: bool = False,
        dec_drop_rnn: float = 0.0,
        d_k: int = 512,
        pred_dropout: float = 0.1,
        pred_concat: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = SARFeature(in_channels, enc_dim, enc_bi_rnn, enc_drop_rnn)
        self.decoder = SARDecoder(
            out_channels,
            in_channels,
            self.encoder.out_channels,
            d_k,
            dec_bi_rnn,
            dec_drop_rnn,
            pred_dropout,
            pred_concat,
            max_text_length,
        )
        self.out_channels = out_channels

    def forward(
        self,
        features: Tensor,
        targets: Sequence[Tensor] | None = None,
        request: HeadRequest | None = None,
    ) -> Tensor:
        """Score the labels, or read greedily.

        Args:
            features: [B, C, H, W].
            targets: [labels [B, L], lengths, …, valid ratios [B]], in the order of PaddleOCR's loader. A valid ratio is
                the share of the image's width that is not padding.
            request: with `decode` or `probabilities` the head reads greedily; otherwise it scores the labels.

        Returns:
            Logits [B, L, n + 1] of the character after each entry of the labels, or the probabilities
            [B, max_text_length, n + 1] of the characters that are read.

        Raises:
            ModelError: the labels are missing.
        """
        request = request or default_request(self.training)
        widths = None
        if targets is not None and len(targets) > 1:
            ratios = targets[1:3][-1].astype("float32").reshape([-1])
            widths = paddle.clip((features.shape[3] * ratios).ceil(), 1, features.shape[3]).astype("int64")
        line = self.encoder(features, widths)
        if request.decode or request.probabilities:
            return self.decoder.decode(features, line, widths)
        if targets is None:
            raise ModelError("SARHead: labels must be given to train it.", code="missing_labels")
        return self.decoder(features, line, targets[0].astype("int64"), widths)
