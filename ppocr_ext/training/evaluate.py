"""Evaluate a recogniser: which sub-model, which head, and what it read on each image."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ppocr_ext.data.atomic import write_text
from ppocr_ext.data.labels import read_label_file
from ppocr_ext.errors import ConfigError
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.training.run import Run

_LOG = logging.getLogger("ppocr_ext")
HEADS = ("ctc", "gtc")


@dataclass(frozen=True)
class Prediction:
    """What was read on one image.

    Attributes:
        image: path as in the label file; empty where the dataset has no label file.
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
        decoded = (self._nrtr(output), self._ctc.decode(label))
        return {self._model_name: decoded} if self._model_name is not None else decoded


def evaluate(run: Run, model_name: str | None = None, head: str = "ctc") -> Evaluation:
    """Evaluate ``run`` (built with role ``"eval"``) through the host's own loop.

    Args:
        model_name: the sub-model to judge; by default the metric's ``key``.
        head: ``"ctc"``, or ``"gtc"`` for the NRTR branch (greedy decoding).

    Raises:
        ConfigError: there is no such sub-model or head.
    """
    name = _choose_model(run, model_name)
    network = run.model if name is None else run.sub_model(name)
    decoder, metric = run.decoder, run.metric
    if name is not None:
        run.model.eval_models = (name,)
        decoder = _only(run, name)
        metric.key = name
    if head == "gtc":
        decoder = _decode_gtc(run, network, name)
    recorder = _Recorder(metric, name)
    metrics = run.host.evaluate(
        run.model, run.eval_loader, decoder, recorder, _model_type(run), extra_input=_extra_input(run)
    )
    predictions = [
        Prediction(image, label, text, confidence)
        for image, (label, confidence, text) in zip(
            _images(run, len(recorder.seen)), recorder.seen, strict=True
        )
    ]
    report = run.preflight.get("Eval")
    left_out = report.rejected_count if report is not None else 0
    return Evaluation(metrics, predictions, len(predictions), left_out)


def _choose_model(run: Run, asked: str | None) -> str | None:
    if not isinstance(run.model, DistillationModel):
        if asked is not None:
            raise ConfigError(
                f"--model {asked}: this config has one model, without names. Leave --model out."
            )
        return None
    names = run.model.model_name_list
    name = asked or run.config.at("Metric.key", default=None) or names[-1]
    if name not in names:
        raise ConfigError(f"--model {name}: Architecture.Models has {', '.join(names)}.")
    return str(name)


def _only(run: Run, name: str) -> Any:
    options = {**run.config.at("PostProcess").thaw(), "model_name": [name]}
    return run.host.build_post_process(options, run.config.at("Global").thaw())


def _decode_gtc(run: Run, network: Any, name: str | None) -> _GtcDecoder:
    if not hasattr(getattr(network, "head", None), "gtc_head") or isinstance(network.head.gtc_head, str):
        raise ConfigError(f"--head gtc: {name or 'the model'} has no NRTR branch (NRTRHead in head_list).")
    network.eval_request = replace(
        network.eval_request, branches=frozenset({"gtc"}), decode=True, as_dict=False
    )
    options = run.config.at("Global").thaw()
    return _GtcDecoder(
        run.host.build_post_process({"name": "NRTRLabelDecode"}, options),
        run.host.build_post_process({"name": "CTCLabelDecode"}, options),
        name,
    )


def _model_type(run: Run) -> str | None:
    return run.config.at("Architecture.model_type", default=None)


def _extra_input(run: Run) -> bool:
    """Labels are never fed in evaluation: our heads do not read them, and reading them would be cheating."""
    return False


def _images(run: Run, count: int) -> Iterator[str]:
    """Image paths in the order of the data; empty ones where the dataset has no label file."""
    files: Sequence[Path] = [
        Path(p) for p in run.host_config["Eval"]["dataset"].get("label_file_list", ()) or ()
    ]
    if not files:
        yield from ("" for _ in range(count))
        return
    delimiter = run.config.at("Eval.dataset.delimiter", default="\t")
    for file in files:
        yield from (line.images[0] for line in read_label_file(file, delimiter))


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write a TSV with a header: image, label, prediction, confidence."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(["image", "label", "prediction", "confidence"])
    for p in predictions:
        writer.writerow([p.image, p.label, p.text, f"{p.confidence:.4f}"])
    write_text(path, buffer.getvalue())
