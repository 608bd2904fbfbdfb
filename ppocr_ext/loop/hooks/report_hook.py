"""Write ``samples.json`` (samples of the last evaluation, errors first) and the page ``report.html``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import paddle

from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome
from ppocr_ext.loop.step import MetricProxy
from ppocr_ext.losses.base_loss import required_outputs
from ppocr_ext.messages import LOG, command_line
from ppocr_ext.metrics import comparison_of
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.recognition.ctc_text import read_sequence
from ppocr_ext.report.page_samples import SAMPLES_FILE, SampleSelection, normalised_png
from ppocr_ext.report.run_page import REPORT_FILE, write_report
from ppocr_ext.run.run import Run, Training

_GREEDY = HeadRequest(frozenset({"gtc"}), decode=True, as_dict=False)


class NrtrReader:
    """Read images by greedy decoding with the NRTR branch of the evaluated sub-model.

    Args:
        run: the run.
        training: its training.

    Attributes:
        exists: True if this sub-model has an NRTR branch, and the loss trains it.
    """

    def __init__(self, run: Run, training: Training) -> None:
        network = run.network
        name = None
        if isinstance(network, DistillationModel):
            name = getattr(run.metric, "key", None)
            network = network.models.get(str(name))
        head = getattr(network, "head", None)
        has_branch = isinstance(network, BaseModel) and "gtc" in getattr(head, "branches", ())
        self.exists = has_branch and (name, "gtc") in (required_outputs(training.loss) or ())
        self._run = run
        self._amp = training.amp
        self._network = network

    def read(self, images: Sequence[np.ndarray]) -> list[str]:
        """Return the texts.

        Args:
            images: normalised, float [C, H, W]; narrower ones are padded with zeros on the right.
        """
        if len({image.shape[:2] for image in images}) > 1:
            return [text for image in images for text in self.read([image])]
        width = max(image.shape[2] for image in images)
        padded = [np.pad(image, ((0, 0), (0, 0), (0, width - image.shape[2]))) for image in images]
        amp = self._amp
        model = self._run.model
        was_training = model.training
        model.eval()
        try:
            # Not as a decorator: after a recursive call, Paddle's decorator leaves gradients switched off.
            with (
                paddle.no_grad(),
                paddle.amp.auto_cast(
                    enable=amp.scaler is not None,
                    custom_white_list=amp.white_list,
                    custom_black_list=amp.black_list,
                    level=amp.level,
                    dtype=amp.dtype,
                ),
            ):
                # Not the instance's `forward`, which may be compiled, and then anew for each shape.
                output: Any = BaseModel.forward(
                    self._network, paddle.to_tensor(np.stack(padded)), request=_GREEDY
                )
        finally:
            if was_training:
                model.train()
        ids = output["head_out"] if isinstance(output, dict) else output
        sequences = zip(ids[0].numpy(), ids[1].numpy(), strict=True)
        return [read_sequence(*each, self._run.context.charset).text for each in sequences]


# An entry of samples.json, and the image as the model got it: float [channels, height, width].
Samples = SampleSelection[tuple[dict[str, Any], np.ndarray]]


def _kept(entry: dict[str, Any], image: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    return entry, image.copy()  # without a copy, the whole batch would stay in memory


def _are_lines(decoded: Any) -> bool:
    """Return True for the form ([(text, confidence), …], [(label, …), …]); some decoders return another form."""
    return (
        isinstance(decoded, tuple | list)
        and len(decoded) == 2
        and all(
            isinstance(part, list) and all(isinstance(line, tuple | list) and len(line) >= 2 for line in part)
            for part in decoded
        )
    )


class ReportHook(Hook):
    """Write ``samples.json`` at each evaluation, and ``report.html`` at the end, also after an error.

    A hook of process 0, after the hooks that write what the page shows. The samples are those that the host passes to
    the metric, so nothing is decoded twice. If the run trains an NRTR branch, its texts are added.
    """

    def on_start(self, run: Run, training: Training) -> None:
        self._folder = run.context.folder
        self._nrtr = NrtrReader(run, training)
        # Samples of the last evaluation that has ended, at `get_metric`.
        self._seen: Samples = SampleSelection()
        self._passing: Samples = SampleSelection()

    def wrap_metric(self, metric: Any) -> Any:
        self._model = getattr(metric, "key", None)
        self._is_right = comparison_of(metric)
        return MetricProxy(metric, self._select, self._end_selection)

    def _select(self, decoded: Any, images: np.ndarray) -> None:
        lines: Any = decoded.get(self._model) if isinstance(decoded, dict) else decoded
        for read, truth, image in zip(*lines, images, strict=False) if _are_lines(lines) else ():
            text = str(read[0])
            label = str(truth[0])
            confidence = float(read[1])
            right = self._is_right(text, label)
            if not text or not math.isfinite(confidence):  # the mean over no characters is NaN
                confidence = 0.0
            entry = {"label": label, "text": text, "confidence": round(confidence, 4), "right": right}
            self._passing.add(right, confidence, partial(_kept, entry, image))

    def _end_selection(self) -> None:
        """Keep the selection. Training batches (``cal_metric_during_train``) end here too."""
        self._seen = self._passing
        self._passing = SampleSelection()

    def on_eval(self, result: EvalDone) -> None:
        samples = self._seen.selected()
        nrtr = self._nrtr.read([image for _, image in samples]) if self._nrtr.exists and samples else []
        content = {
            "step": result.position.global_step,
            "judged": self._seen.count,
            "wrong": self._seen.wrong,
            "samples": [
                {**entry, **({} if text is None else {"nrtr": text}), "png": normalised_png(image)}
                for (entry, image), text in zip_longest(samples, nrtr)
            ],
        }
        write_text(self._folder / SAMPLES_FILE, json.dumps(content) + "\n")

    def on_end(self, outcome: Outcome) -> None:
        path = self._folder / REPORT_FILE
        try:
            write_report([self._folder], path)
        except Exception as error:  # the weights are saved, so the run must not fail
            again = command_line("report", self._folder, "--debug")
            LOG.warning("no report: %s: %s (details: `%s`)", type(error).__name__, error, again)
        else:
            LOG.info("report: %s", path)
