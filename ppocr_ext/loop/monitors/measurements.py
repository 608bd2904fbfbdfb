"""Measure what the outputs of a training step say about its health; no further forward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle

from ppocr_ext.charset import Charset
from ppocr_ext.loop.step_values import ctc_logits
from ppocr_ext.modeling.heads.nrtr_head import END_ID
from ppocr_ext.report.run_folder import short_loss_name

FEW_LABELS = 4  # so many different labels a batch needs for a statement about equal predictions


@paddle.no_grad()
def measure_model(outputs: Mapping[str, Any], model: str | None, labels: Any) -> dict[str, float]:
    """Return the measurements of one sub-model in one training step.

    Args:
        outputs: of the heads, as :func:`ppocr_ext.loop.step_values.head_outputs` names them.
        model: name of the sub-model; None for a model without sub-models.
        labels: CTC labels [B, L]; None if unknown.

    Returns:
        ``blank_probability``, the mean over the frames; ``text_length``, the mean length of the texts that CTC reads;
        ``distinct_texts``, how many of them differ (only for a batch with :data:`FEW_LABELS` different labels);
        ``nrtr_end_share``, the share of text lines whose first NRTR token is ``</s>``. What has no output is missing.
    """
    parts: dict[str, Any] = {}
    logits = ctc_logits(outputs, model)
    if logits is not None and logits.ndim == 3:
        logits = logits.astype("float32")
        parts["classes"] = logits.argmax(axis=-1)
        parts["blank"] = (logits[:, :, 0] - logits.logsumexp(axis=-1)).exp().mean()
    tokens = outputs.get(f"{model}.gtc" if model else "gtc")
    if tokens is not None and tokens.ndim == 3 and tokens.shape[1] > 0:
        parts["end"] = (tokens[:, 0].argmax(axis=-1) == END_ID).astype("float32").mean()
    if not parts:
        return {}
    host = paddle.concat([part.astype("float32").flatten() for part in parts.values()]).numpy()  # one copy
    values: dict[str, float] = {}
    if "end" in parts:
        values["nrtr_end_share"] = float(host[-1])
    if "classes" in parts:
        count = math.prod(parts["classes"].shape)
        values["blank_probability"] = float(host[count])
        texts = _texts(host[:count].reshape(parts["classes"].shape))
        values["text_length"] = float(np.mean([len(text) for text in texts]))
        if labels is not None and len({row.tobytes() for row in np.asarray(labels)}) >= FEW_LABELS:
            values["distinct_texts"] = float(len(set(texts)))
    return values


def _texts(classes: np.ndarray) -> list[tuple[float, ...]]:
    """Return CTC's text of each row of ``classes`` [B, T], as class ids."""
    kept = classes != 0
    kept[:, 1:] &= classes[:, 1:] != classes[:, :-1]
    return [tuple(row[keep].tolist()) for row, keep in zip(classes, kept, strict=True)]


def first_loss(losses: Mapping[str, Any], outputs: Mapping[str, Any], charset: Charset) -> dict[str, float]:
    """Return ``first_loss``, the loss of an untrained network over that of chance: the greater one of CTC and NRTR.

    Chance is ln(classes) for each frame of CTC, as if each class were as probable as any other, and ln(classes) for
    each character of NRTR. Of two sub-models the Student's counts; parts have their weight in the total.
    """
    named_ctc = [output for name, output in outputs.items() if name.split(".")[-1] in ("ctc", "")]
    frames = [output.shape[1] for output in named_ctc if output.ndim == 3]
    chance = {"nrtr": math.log(charset.nrtr_classes)}
    if frames:
        chance["ctc"] = max(frames) * math.log(charset.ctc_classes)
    named = {short_loss_name(name): float(np.mean(np.asarray(value))) for name, value in losses.items()}
    if set(named) == {"loss"} and ("ctc" in chance) != ("gtc" in outputs):  # of a single head
        named["ctc" if "ctc" in chance else "nrtr"] = named["loss"]
    ratios = [named[name] / chance[name] for name in chance if name in named]
    return {"first_loss": max(ratios)} if ratios else {}
