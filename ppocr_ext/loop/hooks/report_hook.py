"""Write ``samples.json`` (samples of the last evaluation, errors first) and the page ``report.html`` with them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position
from ppocr_ext.loop.hooks.nrtr_reading import NrtrReader
from ppocr_ext.loop.proxies import MetricProxy
from ppocr_ext.messages import LOG, command_line
from ppocr_ext.report.page_samples import SAMPLES_FILE, SampleSelection, normalised_png
from ppocr_ext.report.run_page import REPORT_FILE, write_report
from ppocr_ext.run.run import Run

# each with its image as the model saw it: float [channels, height, width]
Samples = SampleSelection[tuple[dict[str, Any], np.ndarray]]


def _kept(entry: dict[str, Any], image: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    return entry, image.copy()


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
        self._folder = run.folder
        self._nrtr = NrtrReader(run)
        self._seen: Samples = SampleSelection()  # up to the last `get_metric`
        self._passing: Samples = SampleSelection()

    def wrap_metric(self, metric: Any) -> Any:
        self._model = getattr(metric, "key", None)
        self._is_right: Callable[[str, str], bool] = getattr(metric, "is_right", str.__eq__)
        return MetricProxy(metric, self._select, self._end_selection)

    def _select(self, decoded: Any, images: np.ndarray) -> None:
        lines: Any = decoded.get(self._model) if isinstance(decoded, dict) else decoded
        for read, truth, image in zip(*lines, images, strict=False) if _are_lines(lines) else ():
            text = str(read[0])
            label = str(truth[0])
            confidence = float(read[1])
            right = self._is_right(text, label)
            if not text or not math.isfinite(confidence):  # the mean over no character
                confidence = 0.0
            entry = {"label": label, "text": text, "confidence": round(confidence, 4), "right": right}
            # a copy of the image, or the whole batch would be kept
            self._passing.add(right, confidence, partial(_kept, entry, image))

    def _end_selection(self) -> None:
        """Keep what was selected. Training batches (``cal_metric_during_train``) end here too."""
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
        except Exception as error:  # the weights are saved: a page must not make the run fail
            again = command_line("report", self._folder, "--debug")
            LOG.warning("no report: %s: %s (details: `%s`)", type(error).__name__, error, again)
        else:
            LOG.info("report: %s", path)
