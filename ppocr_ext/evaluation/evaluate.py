"""Evaluate a recogniser: which sub-model, which head, and what it read on each image."""

from __future__ import annotations

import csv
import io
import itertools
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.predictions import HEADER
from ppocr_ext.io.atomic import write_text
from ppocr_ext.metrics import build_metric
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.registry import said_once
from ppocr_ext.run.datasets import image_names
from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")
HEADS = ("ctc", "gtc")


@dataclass(frozen=True)
class Prediction:
    """What was read on one image.

    Attributes:
        image: path as in the label file, ``folder#12`` for a sample of an LMDB, else empty.
        label: the true text.
        text: the text that was read.
        confidence: mean probability of the characters read, 0 where none was.
    """

    image: str
    label: str
    text: str
    confidence: float


@dataclass(frozen=True)
class Evaluation:
    """Result of :func:`evaluate`: the metric's numbers, and the predictions in the data's order."""

    metrics: dict[str, float]
    predictions: list[Prediction]
    judged: int
    left_out: int


class _Recorder:
    """A metric that also keeps each text that was judged."""

    def __init__(self, metric: Any, model_name: str | None) -> None:
        self._metric = metric
        self._model_name = model_name
        self.main_indicator = metric.main_indicator
        self.seen: list[tuple[str, float, str]] = []

    def __call__(self, decoded: Any, batch: Any, **kwargs: Any) -> Any:
        texts, labels = decoded[self._model_name] if self._model_name is not None else decoded
        for (text, confidence), (label, _) in zip(texts, labels, strict=True):
            self.seen.append((label, float(confidence) if text else 0.0, text))
        return self._metric(decoded, batch, **kwargs)

    def get_metric(self) -> dict[str, float]:
        return self._metric.get_metric()


class _GtcDecoder:
    """Decodes the NRTR branch, which PaddleOCR's CTC decoders never look at.

    The host hands decoders the CTC label; it is turned into text by the CTC rule, and the branch's
    own output by the NRTR rule.
    """

    def __init__(self, nrtr: Any, ctc: Any, model_name: str | None) -> None:
        self._nrtr = nrtr
        self._ctc = ctc
        self._model_name = model_name

    def __call__(self, predictions: Any, label: Any = None, *args: Any, **kwargs: Any) -> Any:
        output = predictions[self._model_name] if self._model_name is not None else predictions
        if isinstance(output, dict):
            output = output["head_out"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Mean of empty slice")  # a line without a character
            warnings.filterwarnings("ignore", message="invalid value encountered")
            texts = self._nrtr(output)
        decoded = (texts, self._ctc.decode(label))
        return {self._model_name: decoded} if self._model_name is not None else decoded


def for_model(config: Config, name: str) -> Config:
    """``config`` with the sub-model ``name`` decoded and judged, and no other.

    Raises:
        ConfigError: there is no such sub-model.
    """
    models = config.at("Architecture.Models", default=None)
    if models is None:
        raise ConfigError(f"--model {name}: this config has one model, without names. Leave --model out.")
    if name not in models:
        raise ConfigError(f"--model {name}: Architecture.Models has {', '.join(models)}.")
    return config.with_values({"PostProcess.model_name": [name], "Metric.key": name})


def evaluate(run: Run, head: str = "ctc") -> Evaluation:
    """Evaluate ``run`` (built with role ``"eval"``) through the host's own loop.

    Of several sub-models that are decoded, predictions are those of the metric's ``key``.

    Args:
        run: built with role ``"eval"``; :func:`for_model` chooses the sub-model.
        head: ``"ctc"``, or ``"gtc"`` for the NRTR branch (greedy decoding).

    Raises:
        ConfigError: there is no such head.
    """
    name = run.metric.key if isinstance(run.model, DistillationModel) else None
    with said_once(run.said):
        metric = build_metric(run.config.at("Metric").thaw(), run.charset.has_space)
    recorder = _Recorder(metric, name)
    model_type = run.config.at("Architecture.model_type", default=None)
    with _reading(run, head, name) as decoder:
        metrics = run.host.evaluate(run.model, run.eval_loader, decoder, recorder, model_type)
    delimiter = run.config.at("Eval.dataset.delimiter", default="\t")
    # a dataset without names gives empty ones
    names = itertools.chain(image_names(run.eval_loader.dataset, delimiter), itertools.repeat(""))
    predictions = [
        Prediction(image, label, text, confidence)
        for image, (label, confidence, text) in zip(names, recorder.seen, strict=False)
    ]
    report = run.preflight.get("Eval")
    left_out = report.unusable_count if report is not None else 0
    return Evaluation(metrics, predictions, len(recorder.seen), left_out)


@contextmanager
def _reading(run: Run, head: str, name: str | None) -> Iterator[Any]:
    """The decoder of ``head``; the model gives what it reads for as long as the context lasts."""
    if head == "ctc":
        yield run.decoder
        return
    network = run.model if name is None else run.sub_model(name)
    if isinstance(getattr(getattr(network, "head", None), "gtc_head", "sar"), str):
        raise ConfigError(f"--head gtc: {name or 'the model'} has no NRTR branch (NRTRHead in head_list).")
    request, models = network.eval_request, getattr(run.model, "eval_models", None)
    network.eval_request = replace(request, branches=frozenset({"gtc"}), decode=True, as_dict=False)
    if name is not None:
        run.model.eval_models = (name,)
    options = run.config.at("Global").thaw()
    try:
        yield _GtcDecoder(
            run.host.build_post_process({"name": "NRTRLabelDecode"}, options),
            run.host.build_post_process({"name": "CTCLabelDecode"}, options),
            name,
        )
    finally:
        network.eval_request = request
        if name is not None:
            run.model.eval_models = models


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write a TSV with a header: image, label, prediction, confidence."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(HEADER)
    for p in predictions:
        writer.writerow([p.image, p.label, p.text, f"{p.confidence:.4f}"])
    write_text(path, buffer.getvalue())
