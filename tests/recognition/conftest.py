"""A run folder, its images, and an export of it that is written by hand."""

import json

import onnx
import paddle
import pytest
from saved_runs import network_of, save_run
from tiny_runs import captchas, tiny, tiny_config

from ppocr_ext.config import load
from ppocr_ext.io.resources import file_digest

__all__ = ["captchas", "images", "run", "tiny"]


@pytest.fixture(scope="session")
def run(captchas, tmp_path_factory):
    """The folder of a run on the CAPTCHAs (*squash*), of random weights."""
    folder = tmp_path_factory.mktemp("runs") / "student"
    save_run(tiny_config(captchas, folder.parent, "student"), folder)
    return folder


@pytest.fixture(scope="session")
def images(captchas):
    """The images of ``Eval``."""
    return sorted((captchas / "val").rglob("*.png"))


def require_paddle_3():
    """Skip a test of exported models: Paddle 2.6 writes them in another form, and paddle2onnx refuses it."""
    if not hasattr(paddle.inference.Config, "enable_new_ir"):
        pytest.skip("models are exported with Paddle 3")


@pytest.fixture(scope="session")
def exported(run, tmp_path_factory):
    """The run's network as `ppocr-ext export` writes it."""
    require_paddle_3()
    paddle2onnx = pytest.importorskip("paddle2onnx")

    folder = tmp_path_factory.mktemp("exported")
    network, charset = network_of(load(run / "config.yml"))
    network.eval()
    spec = [paddle.static.InputSpec([None, 3, 32, None], "float32", name="x")]
    static = paddle.jit.to_static(network, input_spec=spec, full_graph=True)
    paddle.jit.save(static, str(folder / "inference"))
    files = [str(folder / name) for name in ("inference.json", "inference.pdiparams", "inference.onnx")]
    paddle2onnx.export(*files, opset_version=17, optimize_tool=None)
    policy = {"kind": "squash", "image_shape": [3, 32, 128], "color": "BGR"}
    model = onnx.load(files[2])
    metadata = {"character": "\n".join(charset.characters), "width_policy": json.dumps(policy)}
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, files[2])
    (folder / "charset.txt").write_text("".join(f"{character}\n" for character in charset.characters))
    described = {
        "format": 1,
        "image_shape": [3, 32, 128],
        "width_policy": policy,
        "classes": charset.ctc_classes,
        "files": {
            file.name: {"sha256": file_digest(file), "bytes": file.stat().st_size}
            for file in sorted(folder.iterdir())
        },
    }
    (folder / "model.json").write_text(json.dumps(described))
    return folder
