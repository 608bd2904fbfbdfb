"""Try a config before it is trained: a picture, the time of a step, what its weights read, doubtful labels."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ppocr_ext.base.parts import kind_of
from ppocr_ext.config import Config, load, resolve_charset
from ppocr_ext.data.batches import batch_size
from ppocr_ext.data.label_file import read_raw_lines
from ppocr_ext.data.preprocessing import apply_transforms
from ppocr_ext.data.sample_seeds import generators_seeded
from ppocr_ext.evaluation.evaluate import Evaluation, evaluate
from ppocr_ext.evaluation.predictions import Prediction, to_tsv
from ppocr_ext.first_run.inspect import Inspection, SampleReader, samples_of
from ppocr_ext.first_run.writing import CONFIG, Files
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import atomic_writer, scratch_folder, write_text
from ppocr_ext.report.page_samples import SampleCard, SampleImages, card_of
from ppocr_ext.run.host_config import complete
from ppocr_ext.run.run import Run
from ppocr_ext.sanity.subject import open_subject
from ppocr_ext.survey.texts import likely_wrong
from ppocr_ext.synth.contact_sheet import Caption, Picture, contact_sheet

_TIMED = 3  # steps that are timed, after a first one
_LOOKED_AT = 8  # images of look.png
_LOOKS = 2  # drawings of the augmentation of an image
_JUDGED = 5_000  # labels whose loss is computed
_READS = 0.3  # accuracy of weights that can judge labels
_SHOWN = 24  # doubtful labels on the page


@dataclass(frozen=True)
class Trial:
    """What was measured with a config.

    Attributes:
        look: a PNG of images as the network sees them.
        numbers: what was measured: ``seconds`` of an epoch; without training, ``accuracy`` of the weights on the
            ``samples`` of val, of which ``unknown`` have characters that they do not know, the accuracy ``own_size``
            with images in the size that they were trained with, if that differs, and ``general`` on the general
            list; ``judged`` labels.
        doubtful: the judged samples with the least likely labels, the worst first.
        note: why the weights were not tried; empty if they were.
    """

    look: bytes
    numbers: dict[str, float]
    doubtful: list[SampleCard]
    note: str


def try_config(inspection: Inspection, files: Files, host: str | None = None) -> Trial:
    """Measure what can be measured before a training, and write ``look.png`` and ``doubtful.tsv``.

    Args:
        inspection: what was decided.
        files: those of the config.
        host: a PaddleOCR checkout; None searches for one.

    Raises:
        PPOCRExtError: the config that was written cannot be trained.
    """
    config = load(inspection.out / CONFIG)
    plan = inspection.plan
    picture = _look(config, inspection, host)
    with atomic_writer(inspection.out / "look.png") as stream:
        stream.write(picture)
    missing = plan.base.missing
    if missing:
        fix = " && ".join(f"ppocr-ext weights get {name}" for name in missing)
        note = f"nothing is tried, as these weights are not on this machine: {', '.join(missing)}. Fix: {fix}"
        return Trial(picture, {}, [], note)
    numbers = {"seconds": seconds_of_a_step(config, host) * plan.steps / plan["Global.epoch_num"]}
    cards = []
    if plan.base.weights is not None:
        reads, config = _read(config, inspection, files, host)
        numbers |= reads
        best = max(numbers["accuracy"], numbers.get("own_size", 0.0))
        if files.val.labels is not None and best >= _READS:
            doubtful = _write_doubtful(config, inspection.out, files.val.folder, host)
            numbers["judged"] = len(doubtful)
            images = SampleImages(files.val.folder)
            cards = [card_of(each, images) for each, _ in doubtful[:_SHOWN]]
    return Trial(picture, numbers, cards, "")


def _read(
    config: Config, inspection: Inspection, files: Files, host: str | None
) -> tuple[dict[str, float], Config]:
    """Return what the weights read, as numbers of a :class:`Trial`, and the config with which they read it best."""
    base = inspection.plan.base
    result = _evaluate(config, host)
    unknown = sum(bool(base.charset and base.charset.unknown(each.label)) for each in result.predictions)
    accuracy = result.metrics["acc"]
    numbers = {"accuracy": accuracy, "samples": len(result.predictions), "unknown": unknown}
    own_size = base.config.at("Eval.dataset.transforms")
    if own_size != config.at("Eval.dataset.transforms"):
        values = {"Eval.dataset.transforms": own_size, "Global.allow_different_preprocessing": True}
        numbers["own_size"] = _evaluate(config.with_values(values), host).metrics["acc"]
        if numbers["own_size"] > accuracy:
            config = config.with_values(values)
    if files.general is not None:
        numbers["general"] = _evaluate(_with_list(config, *files.general), host).metrics["acc"]
    return numbers, config


def _write_doubtful(
    config: Config, out: Path, folder: Path, host: str | None
) -> list[tuple[Prediction, float]]:
    """Write ``doubtful.tsv``; return what is read in samples of train and val, the least likely label first."""
    lines = [line for name in ("train", "val") for line in read_raw_lines(out / f"{name}.txt")]
    judged = scratch_folder() / "judged.txt"
    with atomic_writer(judged) as stream:
        stream.writelines(lines[:: 1 + len(lines) // _JUDGED])
    losses = label_losses(_with_list(config, folder, judged), host)
    order = likely_wrong([loss for _, loss in losses], [len(each.label) for each, _ in losses])
    doubtful = [losses[number] for number in order.tolist()]
    rows = [(each.image, each.label, each.text, f"{loss:.4f}") for each, loss in doubtful]
    write_text(out / "doubtful.tsv", to_tsv([("image", "label", "prediction", "loss"), *rows]))
    return doubtful


def _evaluate(config: Config, host: str | None) -> Evaluation:
    return evaluate(Run.build(config, "eval", host_path=host))


def _with_list(config: Config, folder: Path, label_file: Path | None) -> Config:
    """Return ``config`` that evaluates the samples of another label file, with their images in ``folder``."""
    values = {"Eval.dataset.label_file_list": [str(label_file)], "Eval.dataset.data_dir": str(folder)}
    return config.with_values(values)


def seconds_of_a_step(config: Config, host: str | None = None) -> float:
    """Return the time of one training step, its data aside; nothing is files.

    Raises:
        PPOCRExtError: the config cannot be trained.
    """
    subject = open_subject(config, batch_size(config) or 1, host)
    optimizer = subject.restart()
    began = 0.0
    for step in range(_TIMED + 1):
        if step == 1:  # the first one compiles and allocates
            began = time.perf_counter()
        subject.total().backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
    return (time.perf_counter() - began) / _TIMED


def label_losses(config: Config, host: str | None = None) -> list[tuple[Prediction, float]]:
    """Return what the weights of ``config`` read in each sample of ``Eval``, and the CTC loss of its label.

    The loss is -log p(label), Graves et al. 2006, of the probabilities that the network decodes from.

    Raises:
        PPOCRExtError: as an evaluation.
    """
    run = Run.build(config, "eval", host_path=host)
    losses: list[float] = []

    def decode(predictions: Any, label: Any = None, *args: Any, **kwargs: Any) -> Any:
        output = predictions.get("ctc") if isinstance(predictions, Mapping) else predictions
        losses.extend(_ctc_losses(output, paddle.to_tensor(label)))
        return run.decoder(predictions, label, *args, **kwargs)

    result = evaluate(replace(run, decoder=decode))
    return list(zip(result.predictions, losses, strict=True))


def _ctc_losses(probabilities: Tensor, labels: Tensor) -> list[float]:
    """Return the loss of each sample: probabilities float32 [B, T, C], labels int [B, L], filled up with 0."""
    logits = paddle.log(probabilities.astype("float32").clip(1e-20)).transpose([1, 0, 2])
    batch = logits.shape[1]
    frames = paddle.full([batch], logits.shape[0], "int64")
    lengths = (labels != 0).astype("int64").sum(axis=1)
    loss = paddle.nn.functional.ctc_loss(logits, labels.astype("int32"), frames, lengths, 0, "none")
    return loss.reshape([-1]).tolist()


def _look(config: Config, inspection: Inspection, host: str | None) -> bytes:
    """Return a PNG: each of the first images as it is evaluated, then as ``Train`` changes it at random."""
    opened = open_host(host)
    whole = complete(config, resolve_charset(config, opened.find_file))
    options = whole.host_options()
    of_eval = [each.thaw() for each in whole.at("Eval.dataset.transforms")]
    decode = [each for each in of_eval if "DecodeImage" in each]
    resize = [each for each in of_eval if kind_of(next(iter(each))) == "resize"]
    of_train = (each.thaw() for each in whole.at("Train.dataset.transforms"))
    # RecConAug joins samples
    random = [each for each in of_train if kind_of(next(iter(each))) == "random" and "RecConAug" not in each]
    reader = SampleReader(inspection.source)
    pictures = []
    contents = ((sample.text, reader(sample)) for sample in samples_of(inspection.source))
    usable = ((text, content) for text, content in contents if isinstance(content, bytes))
    for number, (text, content) in enumerate(islice(usable, _LOOKED_AT)):
        for drawing in range(1 + (_LOOKS if random else 0)):
            with generators_seeded(inspection.seed, number, drawing):
                steps = [*decode, *(random if drawing else ()), *resize]
                operators = opened.create_operators(steps, options)
                data = apply_transforms({"image": content, "label": text}, operators)
            if data is not None:
                pixels = (data["image"].transpose(1, 2, 0) + 1) * 127.5  # float32 [3, H, W] from -1 to 1
                caption = Caption("augmented" if drawing else text, None)
                pictures.append(Picture(np.clip(pixels, 0, 255).astype(np.uint8), (caption,)))
    return contact_sheet(pictures)
