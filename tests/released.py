"""Released models for tests: tiny ones made of an export, and the real ones of installed packages."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import paddle
import pytest
import yaml
from onnx import helper

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.conversion import ctc_alone
from ppocr_ext.config import load
from ppocr_ext.config.derive import with_class_counts
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.inference.graph import write_reader
from ppocr_ext.inference.released import find_released, released_packages
from ppocr_ext.io.resources import find_config
from ppocr_ext.modeling import build_model

CHARACTERS = tuple("abcdefghijklmnopqrs")
DETECTOR = {"Global": {"model_name": "PP-OCRv5_mobile_det"}, "PostProcess": {"name": "DBPostProcess"}}


def describe(folder: Path, characters, *, shape=(3, 32, 128), color="BGR", name=None, **changes) -> Path:
    """Write an `inference.yml` as PaddleOCR's exporter writes it; `changes` replace whole sections."""
    steps = [
        {"DecodeImage": {"channel_first": False, "img_mode": color}},
        {"MultiLabelEncode": {"gtc_encode": "NRTRLabelEncode"}},
        {"RecResizeImg": {"image_shape": list(shape)}},
        {"KeepKeys": {"keep_keys": ["image", "label_ctc"]}},
    ]
    content = {
        "Global": {"model_name": name} if name else {},
        "PreProcess": {"transform_ops": [step for step in steps if color or "DecodeImage" not in step]},
        "PostProcess": {"name": "CTCLabelDecode", "character_dict": list(characters)},
        **changes,
    }
    file = folder / "inference.yml"
    file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    return file


def paddle_release(exported: Path, folder: Path) -> Path:
    """Copy graph and weights of an export, and nothing else, to `folder`."""
    folder.mkdir(parents=True)
    for name in ("inference.json", "inference.pdiparams"):
        shutil.copy(exported / name, folder)
    return folder


def save_layer(layer, shape, folder: Path) -> Path:
    """Write graph and weights of any layer as Paddle writes them; return the file of weights."""
    spec = [paddle.static.InputSpec(shape, "float32", name="images")]
    paddle.jit.save(paddle.jit.to_static(layer, input_spec=spec, full_graph=True), str(folder / "inference"))
    return folder / "inference.pdiparams"


def onnx_release(exported: Path, file: Path, metadata=None, change=None) -> Path:
    """Write the ONNX file of an export with other metadata; `change` gets its graph."""
    model = onnx.load(str(exported / "inference.onnx"))
    del model.metadata_props[:]
    helper.set_model_props(model, metadata or {})
    if change is not None:
        change(model.graph)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(file))
    return file


def real_release(name: str, package: str):
    """Return the released model of an installed package; skip the test if there is none with a digest that we know."""
    for row in released_packages():
        if (row.name, row.package) == (name, package) and row.folder and (row.folder / row.path).exists():
            model = find_released(row.folder / row.path)
            if model.is_known:
                return model
    return pytest.skip(f"no {package} with the {name} of our table is installed")


def shipped_network(name, **changes):
    """Return the network of a shipped config for 20 classes with a CTC head alone, and the height of its images."""
    config = load([find_config(f"configs/{name}.yml")])
    architecture = with_class_counts(config, Charset(CHARACTERS)).at("Architecture")
    return build_model({**ctc_alone(architecture), **changes}), read_preprocessing(config, "Eval").sizes[0][1]


def write_network(name, folder: Path, width: int):
    """Write graph and weights of a shipped network with random weights, live; return it and the shape of its images."""
    paddle.seed(1)
    network, height = shipped_network(name, fused=False)
    randomise(network, 3)
    network.eval()
    write_reader(network, folder, (3, height, width))
    return network, (3, height, width)


def randomise(layer, seed):
    """Give every entry of the state its own numbers, so that no exchange of two layers stays hidden."""
    draw = np.random.default_rng(seed)
    for name, tensor in layer.state_dict().items():
        shape = list(tensor.shape)
        if len(shape) > 1:
            values = tensor.numpy() * draw.uniform(0.5, 1.2, shape)
        elif name.endswith(("_variance", "scale", "weight")):
            values = draw.uniform(0.5, 1.5, shape)
        else:
            values = draw.normal(0, 0.1, shape)
        tensor.set_value(values.astype("float32"))
