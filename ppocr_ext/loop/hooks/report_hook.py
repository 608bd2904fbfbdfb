"""Write ``samples.json`` (samples of the last evaluation, errors first) and the page ``report.html`` with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ppocr_ext.commands import command_line
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position
from ppocr_ext.loop.hooks.nrtr_reading import NrtrReader
from ppocr_ext.loop.proxies import Proxy
from ppocr_ext.messages import LOG
from ppocr_ext.report.page_samples import SAMPLES_FILE, SampleSelection, normalised_png
from ppocr_ext.report.run_page import REPORT_FILE, write_report
from ppocr_ext.run.run import Run


class _Read(NamedTuple):
    """An evaluated sample, with the image as the model saw it: float [channels, height, width]."""

    label: str
    text: str
    confidence: float
    right: bool
    image: np.ndarray


class _WatchedMetric(Proxy):
    """The run's metric as the host calls it, which selects samples."""

    def __init__(self, metric: Any) -> None:
        super().__init__(metric)
        self._is_right: Callable[[str, str], bool] = getattr(metric, "is_right", str.__eq__)
        self._passing: SampleSelection[_Read] = SampleSelection()
        self.seen: SampleSelection[_Read] = SampleSelection()  # up to the last `get_metric`

    def __call__(self, decoded: Any, batch: Any = None, **kwargs: Any) -> Any:
        lines = decoded.get(getattr(self.real, "key", None)) if isinstance(decoded, dict) else decoded
        images = batch[0] if isinstance(batch, Sequence) and len(batch) else None
        if lines is not None and _are_lines(lines) and isinstance(images, np.ndarray) and images.ndim == 4:
            for read, truth, image in zip(lines[0], lines[1], images, strict=False):
                self._add(str(read[0]), float(read[1]), str(truth[0]), image)
        return self.real(decoded, batch, **kwargs)

    def _add(self, text: str, confidence: float, label: str, image: np.ndarray) -> None:
        right = self._is_right(text, label)
        if not text or not math.isfinite(confidence):  # the mean over no character
            confidence = 0.0
        # a copy of the image, or the whole batch would be kept
        self._passing.add(right, confidence, lambda: _Read(label, text, confidence, right, image.copy()))

    def get_metric(self) -> Any:
        """Return the metric's own values. Training batches (``cal_metric_during_train``) end here too."""
        self.seen, self._passing = self._passing, SampleSelection()
        return self.real.get_metric()


def _are_lines(decoded: Any) -> bool:
    """Return True for the form ([(text, confidence), …], [(label, …), …]); some decoders return another."""
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

    A hook of rank 0; it comes after the hooks that write what the page shows. The samples come from what the host
    passes to the metric, so nothing is decoded twice. If the run trains an NRTR branch, its reading of them is added.
    """

    def on_start(self, run: Run, position: Position) -> None:
        self._folder, self._nrtr = run.folder, NrtrReader(run)

    def wrap_metric(self, metric: Any) -> Any:
        self._metric = _WatchedMetric(metric)
        return self._metric

    def on_eval(self, result: EvalDone) -> None:
        selection = self._metric.seen
        samples = selection.selected()
        nrtr = self._nrtr.read([read.image for read in samples]) if self._nrtr.exists and samples else []
        written = {
            "step": result.position.global_step,
            "judged": selection.count,
            "wrong": selection.wrong,
            "samples": [
                {
                    "label": read.label,
                    "text": read.text,
                    "confidence": round(read.confidence, 4),
                    "right": read.right,
                    **({} if second is None else {"nrtr": second}),
                    "png": normalised_png(read.image),
                }
                for read, second in zip_longest(samples, nrtr)
            ],
        }
        write_text(self._folder / SAMPLES_FILE, json.dumps(written) + "\n")

    def on_end(self, outcome: Outcome) -> None:
        path = self._folder / REPORT_FILE
        try:
            write_report([self._folder], path)
        except Exception as error:  # the weights are saved: a page must not make the run fail
            again = command_line("report", self._folder, "--debug")
            LOG.warning("no report: %s: %s (details: `%s`)", type(error).__name__, error, again)
        else:
            LOG.info("report: %s", path)
