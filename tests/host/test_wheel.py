"""The paddleocr wheel as host: completed, and used through the façade."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import paddle
import pytest
from fake_checkout import run_python

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host, open_host
from ppocr_ext.host.__main__ import main as run_script
from ppocr_ext.registry import DATASETS

LOG = logging.getLogger("test")


@pytest.fixture(scope="module")
def host() -> Host:
    found = open_host()
    if found.form != "wheel":
        pytest.skip("PADDLEOCR_HOME names a checkout")
    return found


@pytest.mark.e2e
def test_the_hosts_scripts_import_with_what_we_graft() -> None:
    code = """
import importlib, sys, warnings
from ppocr_ext.host import open_host
host = open_host()
assert host.form == "wheel", host.form
assert host.grafted == ["modeling", "losses", "optimizer", "metrics"], host.grafted
for name in ("train", "eval", "export_model", "export_center", "infer_rec", "infer_det", "infer_cls"):
    script = importlib.import_module(f"tools.{name}")
    assert script.__file__ == str(host.root / "tools" / f"{name}.py"), script.__file__
from ppocr.losses import build_loss
from ppocr.metrics import build_metric
from ppocr.modeling.architectures import apply_to_static, build_model
from ppocr.modeling.backbones import build_backbone
from ppocr.modeling.heads import build_head
from ppocr.modeling.necks import build_neck
from ppocr.modeling.transforms import build_transform
from ppocr.optimizer import build_lr_scheduler, build_optimizer
import ppocr_ext.losses, ppocr_ext.metrics, ppocr_ext.modeling, ppocr_ext.optim
assert build_loss is ppocr_ext.losses.build_loss
assert build_metric is ppocr_ext.metrics.build_metric
assert build_optimizer is ppocr_ext.optim.build_optimizer
assert build_lr_scheduler is ppocr_ext.optim.build_lr_scheduler
for builder in (apply_to_static, build_model, build_backbone, build_head, build_neck, build_transform):
    assert builder is getattr(ppocr_ext.modeling, builder.__name__), builder
assert sys.modules["tools.train"].build_model is build_model
print("done")
"""
    result = run_python(code)
    assert result.stdout == "done\n", result.stderr
    assert result.stderr == ""  # the console stays clean


@pytest.mark.e2e
def test_a_paddleocr_imported_before_is_shared() -> None:
    # ppocr_ext comes first because of Paddle 2.6's zlib: see ppocr_ext/__init__.py.
    code = """
import ppocr_ext
import paddleocr
from ppocr_ext.host import open_host
host = open_host()
import ppocr, tools.program
assert paddleocr.paddleocr.ppocr is ppocr
print(host.form)
"""
    result = run_python(code)
    assert result.stdout.endswith("wheel\n"), result.stderr


def test_a_script_that_the_host_lacks_is_a_sentence(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_script(["nothing", "-c", "config.yml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {host.root}/tools has no nothing.py; it has: ")
    assert "eval" in said and "infer_rec" not in said and "Traceback" not in said
    assert run_script([]) == 2
    assert capsys.readouterr().err.startswith("usage: python -m ppocr_ext.host NAME")


@pytest.mark.parametrize(
    ("script", "instead"),
    [
        ("infer_rec", "ppocr-ext predict"),
        ("infer/predict_rec", "ppocr-ext predict"),
        ("export_model", "ppocr-ext export"),
    ],
)
def test_scripts_that_read_images_otherwise_or_export_are_refused(
    script: str, instead: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_script([script, "-c", "config.yml"]) == 2
    out, said = capfd.readouterr()
    assert out == "" and said.startswith(f"error: {script}: ") and instead in said


def test_what_the_wheel_has_and_has_not(host: Host) -> None:
    assert host.component_names("backbone") == []
    assert host.component("loss", "SARLoss") is None
    assert {"SimpleDataSet", "MultiScaleDataSet", "LMDBDataSet"} <= set(host.component_names("dataset"))
    assert DATASETS.get("SimpleDataSet").__module__ == "ppocr.data.simple_dataset"
    assert host.logger.name == "ppocr"


def test_decoders(host: Host, tmp_path: Path) -> None:
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("a\nb\n")
    settings = {"character_dict_path": str(dictionary), "use_space_char": True}
    decoder = host.build_post_process({"name": "CTCLabelDecode"}, settings)
    assert decoder.character == ["blank", "a", "b", " "]  # type: ignore[attr-defined]
    for unknown in ("Nothing", "DistillationNRTRLabelDecode", "DistillationSARLabelDecode"):
        with pytest.raises(ConfigError, match=f"PostProcess.name: the host has no decoder '{unknown}'"):
            host.build_post_process({"name": unknown}, settings)


def test_a_file_of_the_host_is_found_from_anywhere(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = "ppocr/utils/ppocr_keys_v1.txt"
    assert host.find_file(theirs) == host.root / theirs
    (tmp_path / "ppocr" / "utils").mkdir(parents=True)
    mine = tmp_path / theirs
    mine.write_text("a\n")
    assert host.find_file(theirs) == mine
    assert host.find_file(mine) == mine


# Paddle 2.6 exports an old zlib; a Python whose zlib is a module of its own must bind to the system's first


def test_whatever_uses_zlib_after_paddle_lives() -> None:
    code = "import ppocr_ext, paddle, zlib; print(zlib.decompress(zlib.compress(b'alive')).decode())"
    result = run_python(code)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("alive\n")


def test_nrtrs_decoder_reads_the_scores_of_two_lines_as_those_of_three(host: Host, tmp_path: Path) -> None:
    """PaddleOCR's own takes two lines of scores for ids and probabilities."""
    (tmp_path / "dict.txt").write_text("a\nb\nc\n")
    path = {"character_dict_path": str(tmp_path / "dict.txt"), "use_space_char": False}
    charset = Charset.from_file(tmp_path / "dict.txt")
    decoder = host.build_post_process({"name": "NRTRLabelDecode"}, path, charset)
    scores = paddle.to_tensor(np.random.default_rng(0).random((3, 5, 7), np.float32))
    label = paddle.to_tensor([[2, 4, 5, 3], [2, 6, 3, 0], [2, 4, 3, 0]])
    assert decoder(scores[:2]) == decoder(scores)[:2] and decoder(scores[:2])[0][0]
    assert [text for text, _ in decoder(scores[:2], label[:2])[1]] == ["ab", "c"]
