"""A run exports its best checkpoint at its end if the config asks for it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppocr_ext import Recognizer
from ppocr_ext.errors import MissingPackageError, ModelError
from ppocr_ext.loop.events import Outcome
from ppocr_ext.loop.hooks import export_hook
from ppocr_ext.loop.hooks.export_hook import ExportHook
from ppocr_ext.loop.session import train


@pytest.mark.e2e
def test_the_folder_of_paddleocr_holds_a_model_that_reads_what_the_run_reads(tiny, captchas):
    config = tiny("distill", **{"Global.uniform_output_enabled": True, "Global.epoch_num": 1})
    outcome = train(config)
    assert outcome.status == "finished"
    run = Path(config.at("Global.save_model_dir"))
    images = sorted((captchas / "val").rglob("*.png"))
    assert images
    trained = Recognizer(run).read(images)
    for engine in ("paddle", "onnx"):
        exported = Recognizer(run / "best_accuracy" / "inference", engine=engine).read(images)
        assert [reading.text for reading in exported] == [reading.text for reading in trained]
        for one, two in zip(exported, trained, strict=True):
            assert one.confidence == pytest.approx(two.confidence, abs=1e-4)


@pytest.fixture
def hook(tmp_path):
    (tmp_path / "latest.pdparams").write_bytes(b"")
    started = ExportHook()
    context = SimpleNamespace(folder=tmp_path, options=SimpleNamespace(host_path=None))
    started.on_start(SimpleNamespace(context=context), None)  # type: ignore[arg-type]
    return started


def test_an_export_that_fails_does_not_fail_the_run(hook, tmp_path, monkeypatch, caplog):
    def fail(*args: Any) -> None:
        raise ModelError("no", code="not_compiled")

    monkeypatch.setattr(export_hook, "recogniser_config", fail)
    hook.on_end(Outcome("finished", None, {}))  # type: ignore[arg-type]
    (record,) = caplog.records
    assert "ppocr-ext export" in record.getMessage() and f"{tmp_path}/latest" in record.getMessage()


@pytest.mark.parametrize(
    ("error", "missing", "level"),
    [
        (MissingPackageError("broken", code="missing_package"), [], "WARNING"),
        (MissingPackageError("not there", code="missing_package"), ["onnx"], "INFO"),
        (ModelError("a layer", code="not_converted"), [], "WARNING"),
    ],
)
def test_only_a_finished_run_is_exported_and_without_the_converter_in_paddles_form(
    error, missing, level, hook, tmp_path, monkeypatch, caplog
):
    caplog.set_level("INFO", "ppocr_ext")
    calls: list[Any] = []
    monkeypatch.setattr(export_hook, "recogniser_config", lambda folder, options: options)

    def export(config: Any, output: Path, format: str = "both", **options: Any) -> Any:
        if format != "paddle":
            raise error
        calls.append((config, output))
        return SimpleNamespace(folder=output)

    monkeypatch.setattr(export_hook, "export_trained", export)
    monkeypatch.setattr(export_hook, "missing_packages", lambda *_: missing)
    hook.on_end(Outcome("stopped", None, {}))  # type: ignore[arg-type]
    assert calls == []
    hook.on_end(Outcome("finished", None, {}))  # type: ignore[arg-type]
    ((config, output),) = calls
    assert output == tmp_path / "latest" / "inference"
    assert config == [f"Global.checkpoints={tmp_path}/latest"]
    (record,) = caplog.records
    assert record.levelname == level and str(error) in record.getMessage()
    assert ("ppocr-ext export" in record.getMessage()) == (level == "WARNING")
