"""Export the best checkpoint at the end of a run, as ``ppocr-ext export`` does: ``Global.uniform_output_enabled``."""

from __future__ import annotations

import logging
from pathlib import Path

import paddle

from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.export.exporter import export_trained
from ppocr_ext.inference.formats import FORMATS
from ppocr_ext.inference.runners import missing_packages
from ppocr_ext.loop.events import Hook, Outcome
from ppocr_ext.messages import LOG, command_line, end_text, setting
from ppocr_ext.run.recogniser import BEST, recogniser_config
from ppocr_ext.run.run import Run, Training

_WITHOUT_ONNX = ("missing_package", "not_converted")  # errors after which only Paddle's form is written


class ExportHook(Hook):
    """Write ``best_accuracy/inference`` into the run folder, or ``latest/inference`` of a run without an evaluation.

    PaddleOCR and PaddleX write the same folder. The hook runs in process 0, for finished runs only. If the export
    fails, the run does not, since its weights are saved.
    """

    def on_start(self, run: Run, training: Training) -> None:
        self._folder = run.context.folder
        self._host_path = run.context.options.host_path

    def on_end(self, outcome: Outcome) -> None:
        if outcome.status != "finished":
            return
        folder = self._folder
        name = BEST if (folder / f"{BEST}.pdparams").is_file() else "latest"
        weights = setting("Global.checkpoints", folder / name)
        output = folder / name / "inference"
        device = paddle.get_device()
        words = (folder, "-o", weights, "--output", output, "--force")
        again = command_line("export", *words, host=self._host_path)
        try:
            self._export([weights], output, again)
        except Exception as error:
            LOG.warning("no inference model: %s Again: %s", end_text(error), again)
        finally:
            paddle.set_device(device)  # loading a network on the CPU has changed the device

    def _export(self, weights: list[str], output: Path, again: str) -> None:
        """Export the checkpoint; ``again`` is the command that does the same."""
        config = recogniser_config(self._folder, weights)
        try:
            exported = export_trained(config, output, force=True, host_path=self._host_path)
        except PPOCRExtError as error:
            if error.code not in _WITHOUT_ONNX:
                raise
            exported = export_trained(config, output, force=True, format="paddle", host_path=self._host_path)
            # A user without the packages does not want ONNX, so this is no warning.
            level, again = (
                (logging.INFO, "")
                if missing_packages(FORMATS["onnx"].packages)
                else (logging.WARNING, f" Again: {again}")
            )
            LOG.log(level, "inference model: %s; without ONNX: %s%s", exported.folder, end_text(error), again)
        else:
            LOG.info("inference model: %s", exported.folder)
