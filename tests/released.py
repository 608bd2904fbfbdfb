"""Released models for tests: tiny ones made of an export, and the real ones of installed packages."""

import shutil
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import helper

from ppocr_ext.inference.released import find_released, released_packages

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
