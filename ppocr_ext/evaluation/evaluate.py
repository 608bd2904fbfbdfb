"""Evaluate one sub-model and one head of a recogniser, and keep its prediction for each image."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ppocr_ext.base import Proxy
from ppocr_ext.base.parts import BRANCH_ROWS, CTC_DECODER, TAUGHT_ALGORITHMS
from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.evaluation.predictions import Prediction
from ppocr_ext.modeling import EVAL, DistillationModel
from ppocr_ext.run.compiled_models import model_to_evaluate
from ppocr_ext.run.loader_setup import image_names
from ppocr_ext.run.model_wrappers import Amp
from ppocr_ext.run.recogniser import check_sub_model
from ppocr_ext.run.run import Run


@dataclass(frozen=True)
class Evaluation:
    """Result of :func:`evaluate`.

    Attributes:
        metrics: numbers of the metric.
        predictions: one for each evaluated sample, in the order of the data.
        skipped: unusable samples of the label files.
    """

    metrics: dict[str, float]
    predictions: list[Prediction]
    skipped: int


class RecordingMetric(Proxy):
    """The metric of a run, which also keeps (label, text, confidence) of each sample."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.metric)
        self.model_name = run.metric.key if isinstance(run.network, DistillationModel) else None
        self.samples: list[tuple[str, str, float]] = []

    def __call__(self, decoded: Any, batch: Any, **kwargs: Any) -> Any:
        """Add a batch: what the decoder returned."""
        texts, labels = decoded[self.model_name] if self.model_name is not None else decoded
        for (text, confidence), (label, _) in zip(texts, labels, strict=True):
            self.samples.append((label, text, float(confidence) if text else 0.0))
        return self.real(decoded, batch, **kwargs)

    def right(self) -> list[bool]:
        """Return whether the metric counts each sample as read right; one without ``is_right`` compares whole texts."""
        is_right = getattr(self.real, "is_right", str.__eq__)
        return [is_right(text, label) for label, text, _ in self.samples]


class _GtcDecoder:
    """Decode the NRTR branch, which PaddleOCR's CTC decoders ignore.

    The host gives decoders the CTC label. The CTC decoder turns it into text, and the NRTR decoder decodes the output.
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


def select_model(config: Config, name: str) -> Config:
    """Return ``config`` with only the sub-model ``name`` decoded and evaluated.

    Raises:
        ConfigError: the model has no sub-model of this name.
    """
    check_sub_model(config, name)
    return config.with_values({"PostProcess.model_name": [name], "Metric.key": name})


def evaluate(run: Run, head: str = "ctc") -> Evaluation:
    """Evaluate ``run`` through the host's own loop.

    If several sub-models are decoded, the predictions are those of the metric's ``key``.

    Args:
        run: built with role ``"eval"``; :func:`select_model` chooses the sub-model.
        head: ``"ctc"``, or ``"gtc"`` for the NRTR branch (greedy decoding).

    Raises:
        ConfigError: the model has no NRTR branch.
    """
    recorder = RecordingMetric(run)
    config = run.context.config
    loader = run.data.eval_loader
    model_type = config.at("Architecture.model_type", default=None)
    model, decoder = _reader(run, head, recorder.model_name)
    metrics = run.context.host.evaluate(model, loader, decoder, recorder, model_type)
    delimiter = config.at("Eval.dataset.delimiter", default="\t")
    # A dataset without names of images gives empty ones.
    names = itertools.chain(image_names(loader.dataset, delimiter), itertools.repeat(""))
    predictions = [Prediction(image, *sample) for image, sample in zip(names, recorder.samples, strict=False)]
    report = run.data.preflight.get("Eval")
    return Evaluation(metrics, predictions, 0 if report is None else report.unusable_count)


def _reader(run: Run, head: str, name: str | None) -> tuple[Any, Any]:
    """Return the model with the output that ``head`` needs, and its decoder."""
    context = run.context
    if head == "ctc":
        return model_to_evaluate(context, run.model, len(run.data.eval_loader.dataset)), run.decoder
    network = run.model if name is None else getattr(run.model, name)
    if isinstance(getattr(getattr(network, "head", None), "gtc_head", "sar"), str):
        raise ConfigError(
            f"--head gtc: {name or 'the model'} has no NRTR branch (NRTRHead in head_list)",
            code="unknown_head",
        )
    request = replace(EVAL, branches=frozenset({"gtc"}), decode=True)
    model = network.using(evaluate=request) if name is None else run.model.using(evaluate={name: request})
    nrtr, ctc = (context.decoder({"name": each}) for each in (BRANCH_ROWS["gtc"].decoder, CTC_DECODER))
    return model, _GtcDecoder(nrtr, ctc, name)


def evaluate_now(run: Run, loader: Any, metric: Any) -> Mapping[str, float]:
    """Evaluate as the host's loop does between two steps, and return the values of the metric.

    Args:
        run: built for a training or an evaluation; its model is in train mode afterwards.
        loader: the loader of ``Eval``, as the host gets it.
        metric: as the host gets it.
    """
    config = run.context.config
    amp = Amp() if run.training is None else run.training.amp
    models = config.at("Architecture.Models", default=None)
    networks = models.values() if models else [config.at("Architecture")]
    return run.context.host.evaluate(
        run.model,
        loader,
        run.decoder,
        metric,
        config.at("Architecture.model_type", default=None),
        extra_input=any(network.get("algorithm") in TAUGHT_ALGORITHMS for network in networks),
        scaler=amp.scaler,
        amp_level=amp.level,
        amp_custom_black_list=amp.black_list,
        amp_custom_white_list=amp.white_list,
        amp_dtype=amp.dtype,
    )
