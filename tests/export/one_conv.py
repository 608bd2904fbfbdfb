"""A recogniser of one convolution, small enough to be exported in a second, and one export of it."""

from pathlib import Path
from typing import Any

import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from saved_runs import NoState

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Position, TrainState, write_checkpoint
from ppocr_ext.config import Config
from ppocr_ext.export.exporter import export_recogniser
from ppocr_ext.modeling import build_model
from ppocr_ext.registry import BACKBONES
from ppocr_ext.run.recogniser import TrainedRecogniser

CHARACTERS = "0123456789ABCDEFabc未末"
SHAPE = (3, 32, 64)


@BACKBONES.register("OneConvForExport")
class OneConv(nn.Layer):
    """A frame for each eight columns, from all rows; with two branches that can be folded into one."""

    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2D(in_channels, 24, (SHAPE[1], 9), stride=(SHAPE[1], 8), padding=(0, 4))
        self.branches = Branches(24)
        self.out_channels = 24

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.branches(F.relu(self.conv(images)))


class Branches(nn.Layer):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2D(dim, dim, 1), nn.Conv2D(dim, dim, 1)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.one(x) + self.two(x)

    def fused(self) -> nn.Conv2D:
        both = nn.Conv2D(self.one._in_channels, self.one._out_channels, 1)
        both.weight.set_value(self.one.weight + self.two.weight)
        both.bias.set_value(self.one.bias + self.two.bias)
        return both


def architecture(**head: Any) -> dict[str, Any]:
    return {
        "model_type": "rec",
        "algorithm": "CRNN",
        "Backbone": {"name": "OneConvForExport"},
        "Neck": {"name": "SequenceEncoder", "encoder_type": "reshape"},
        "Head": {"name": "CTCHead", "out_channels": len(CHARACTERS) + 2, **head},
    }


def recogniser_of(folder: Path, resize: dict[str, Any] | None = None, **head: Any) -> TrainedRecogniser:
    """A recogniser with weights in `folder`; `resize`: options of RecResizeImg."""
    transforms = [
        {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
        {"CTCLabelEncode": None},
        {"RecResizeImg": {"image_shape": list(SHAPE), **(resize or {})}},
        {"KeepKeys": {"keep_keys": ["image", "label", "length"]}},
    ]
    charset = Charset((*CHARACTERS, " "), use_space=True, path=folder / "dict.txt")
    config = Config(
        {
            "Global": {
                "character_dict_path": str(folder / "dict.txt"),
                "use_space_char": True,
                "epoch_num": 3,
            },
            "Architecture": architecture(**head),
            "Loss": {"name": "CTCLoss"},
            "Optimizer": {"name": "Adam", "lr": {"learning_rate": 0.001}},
            "Train": {"dataset": {"name": "SimpleDataSet", "label_file_list": ["somewhere/train.txt"]}},
            "Eval": {"dataset": {"name": "SimpleDataSet", "transforms": transforms}},
        }
    )
    paddle.seed(7)
    network = build_model(config.at("Architecture").thaw())
    network.eval()
    network.head.fc.weight.set_value(
        network.head.fc.weight * 20
    )  # or all classes are almost equally probable
    best = {"acc": 0.75, "norm_edit_dis": 0.9, "fps": 1.0}
    state = TrainState(Position(epoch=3), best, charset_digest=charset.digest)
    write_checkpoint(folder / "best_accuracy", network.state_dict(), NoState(), state)
    return TrainedRecogniser(config, charset, network, None, folder / "best_accuracy.pdparams", "cpu")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return recogniser_of(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory):
    """Everything that an export writes; not to be changed."""
    pytest.importorskip("paddle2onnx")
    output = tmp_path_factory.mktemp("exported") / "model"
    return export_recogniser(trained.config, trained, output)
