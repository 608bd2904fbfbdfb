"""Try a config before it is trained: a picture, the time of a step, what its weights read, doubtful labels."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from os.path import normpath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import paddle
from tqdm import tqdm

from ppocr_ext.base.parts import OF_LABEL_FILES, kind_of
from ppocr_ext.config import Config, load, resolve_charset
from ppocr_ext.data.batches import batch_size, batch_size_key
from ppocr_ext.data.label_file import read_raw_lines, write_label_file
from ppocr_ext.data.preprocessing import SQUASH, apply_transforms, read_preprocessing, sampler_scales
from ppocr_ext.data.sample_seeds import generators_seeded
from ppocr_ext.evaluation.evaluate import evaluate, select_model
from ppocr_ext.evaluation.predictions import Prediction
from ppocr_ext.first_run.bases import DICTIONARY
from ppocr_ext.first_run.decisions import Plan
from ppocr_ext.first_run.inspect import Inspection
from ppocr_ext.first_run.writing import CONFIG, JUDGED, Data, Files, Lists, shares, write_config
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import scratch_folder, write_bytes
from ppocr_ext.limits import memory_limit
from ppocr_ext.recognition import ctc_text
from ppocr_ext.recognition.doubtful import READS, write_doubtful
from ppocr_ext.report.page_samples import SampleCard, SampleImages, card_of
from ppocr_ext.run.dry_samples import SILENT
from ppocr_ext.run.host_config import complete, host_config
from ppocr_ext.run.loader import loader_parts
from ppocr_ext.run.run import Run
from ppocr_ext.sanity.subject import open_subject
from ppocr_ext.sources.samples import Sample
from ppocr_ext.synth.contact_sheet import Caption, Picture, contact_sheet

_STEPPED = (2, 4)  # samples of the steps that are measured
_TIMED = 2  # steps of each size; the faster one counts, since the first one compiles and allocates
_MEMORY = (
    0.6  # share of the memory that a step may take: loader and batches of several sizes take a third more
)
_LOOKED_AT = 8  # images of look.png
_LOOKS = 2  # drawings of the augmentation of an image
_BATCH = 16  # samples of an evaluation
_TRIED = 32  # samples that steps are taken with
_SHOWN = 24  # doubtful labels on the page


@dataclass(frozen=True)
class Trial:
    """What was measured with a config.

    Attributes:
        look: a PNG that shows images as the network sees them.
        numbers: what was measured: ``seconds`` of an epoch on one core (processor time), or on the GPU; without
            training, ``accuracy`` of the weights or of the teacher on ``samples`` of val, of which ``unknown`` have
            characters that they do not know, the accuracy ``own_size`` with images as they were trained with, if some
            of both are stretched, and ``general`` on ``general_samples`` of the general list; ``judged`` labels;
            ``reading``, the seconds of a sample in an evaluation.
        doubtful: the judged samples with the least likely labels, the worst first.
        note: why the weights were not tried; empty if they were.
    """

    look: bytes
    numbers: dict[str, float]
    doubtful: list[SampleCard]
    note: str


def try_config(inspection: Inspection, files: Files, seconds: float | None, host: str | None = None) -> Trial:
    """Measure what can be measured before a training, and write ``look.png`` and ``doubtful.tsv``.

    Args:
        inspection: what was decided.
        files: the files that were written.
        seconds: the seconds of an epoch; None if the weights are not on this machine.
        host: a PaddleOCR checkout; None searches for one.

    Raises:
        PPOCRExtError: the config that was written cannot be trained.
    """
    config = load(inspection.out / CONFIG)
    base = inspection.plan.base
    picture = _look(config, inspection, host)
    write_bytes(inspection.out / "look.png", picture)
    if seconds is None:
        fix = " && ".join(f"ppocr-ext weights get {name}" for name in base.missing)
        names = ", ".join(base.missing)
        return Trial(
            picture,
            {},
            [],
            f"nothing is tried, as these weights are not on this machine: {names}. Fix: {fix}",
        )
    numbers = {"seconds": seconds}
    cards = []
    if base.weights is not None or base.teacher is not None:
        config = config if base.teacher is None else select_model(config, "Teacher")
        reads, config = _read(config, inspection, files, host)
        numbers |= reads
        if files.val.labels is not None and max(numbers["accuracy"], numbers.get("own_size", 0.0)) >= READS:
            judged = Data(files.val.folder, inspection.out / "train.txt")
            losses = _judged_labels(_with_some(config, judged, inspection.out / "val.txt"), host)
            doubtful = write_doubtful(inspection.out / "doubtful.tsv", losses)  # the least likely label first
            numbers["judged"] = len(doubtful)
            images = SampleImages(files.val.folder)
            cards = [card_of(losses[number][0], images) for number in doubtful[:_SHOWN]]
    return Trial(picture, numbers, cards, "")


def try_steps(inspection: Inspection, host: str | None = None) -> tuple[Plan, float | None]:
    """Take training steps of few samples, so that a fault is found before anything is written.

    Args:
        inspection: what was decided.
        host: a PaddleOCR checkout; None searches for one.

    Returns:
        The plan with a batch that fits into the memory, and the seconds of an epoch; None if weights are not here.

    Raises:
        PPOCRExtError: the plan cannot be trained.
    """
    plan = inspection.plan
    if plan.base.missing:
        return plan, None
    with TemporaryDirectory(prefix="ppocr_ext_") as folder:
        config = _write_some(inspection, Path(folder))
        others = sum(shares(plan, inspection.more is not None).values())
        costs = costs_of_steps(config, plan.steps // plan["Global.epoch_num"], host, others)
    key = batch_size_key(plan.base.config)
    allowed = _MEMORY * memory_limit()
    sizes = f"{costs.memory(1) / 1e9:.1f} GB, and {allowed / 1e9:.1f} GB may be used"
    fitting = plan.with_batch_of(costs.most(plan[key], allowed), f"the whole batch would take {sizes}")
    return fitting, costs.seconds(plan[key] / fitting[key])


def _write_some(inspection: Inspection, folder: Path) -> Config:
    """Write the config of a plan with the first samples; return it."""
    base = inspection.plan.base
    short = (sample for sample in _usable(inspection) if len(sample[0]) <= inspection.plan.longest)
    rows = []
    for number, (text, content) in enumerate(islice(short, _TRIED)):
        (folder / f"{number}.png").write_bytes(content)
        rows.append((f"{number}.png", text))
    write_label_file(folder / "some.txt", rows)
    # files of a run are named relative to the folder that is written
    places = {file: Path(normpath(inspection.out.resolve() / file)) for file in base.files}
    own = tuple(str(place) if place.is_file() else file for file, place in places.items())
    data = Data(folder, folder / "some.txt")
    write_config(replace(inspection.plan, base=replace(base, files=own)), Lists(data, data), folder, "init")
    new = {} if inspection.plan.dictionary is None else {DICTIONARY: str(folder / "dict.txt")}
    return load(folder / CONFIG).with_values(new)


def _usable(inspection: Inspection, first: Sequence[Sample] = ()) -> Iterator[tuple[str, bytes]]:
    """Yield the text and the encoded image of each sample whose image can be read, after those of ``first``."""
    for sample in chain(first, inspection.source.samples()):
        content = inspection.found.read(sample)
        if isinstance(content, bytes):
            yield sample.text, content


def _read(
    config: Config, inspection: Inspection, files: Files, host: str | None
) -> tuple[dict[str, float], Config]:
    """Return what the weights read, as numbers of a :class:`Trial`, and the config with which they read it best."""
    base = inspection.plan.base
    config = _with_some(config, files.val)
    run = Run.build(config, "eval", host_path=host)
    begin = time.process_time()
    result = evaluate(run)
    reading = (time.process_time() - begin) / len(result.predictions)
    numbers = {
        "accuracy": result.metrics["acc"],
        "samples": len(result.predictions),
        "unknown": sum(
            bool(base.charset and base.charset.unknown(each.label)) for each in result.predictions
        ),
        "reading": reading,
    }
    own_size = base.config.at("Eval.dataset.transforms")
    prepared = [read_preprocessing(each, "Eval") for each in (base.config, config)]
    is_stretched = any(each is None or each.fit == SQUASH for each in prepared)
    if is_stretched and own_size != config.at("Eval.dataset.transforms"):
        values = {
            "Eval.dataset.transforms": own_size,
            "Global.allow_different_preprocessing": True,
            "Global.max_unusable": 1.0,  # long labels may not fit into that size
        }
        numbers["own_size"] = evaluate(Run.build(config.with_values(values), "eval", host_path=host)).metrics[
            "acc"
        ]
        if numbers["own_size"] > numbers["accuracy"]:
            config = config.with_values(values)
    if files.general is not None and base.weights is not None:
        result = evaluate(Run.build(_with_some(config, files.general), "eval", host_path=host))
        numbers |= {"general": result.metrics["acc"], "general_samples": len(result.predictions)}
    return numbers, config


def _with_some(config: Config, data: Data, *more: Path) -> Config:
    """Return ``config`` that evaluates samples of other label files, at most ``JUDGED`` and evenly, in small batches.

    An LMDB is evaluated as a whole.
    """
    # Small batches, since the probabilities of a large dictionary take 3 MB for each image.
    values: dict[str, Any] = {"Eval.loader.batch_size_per_card": _BATCH, "Eval.loader.num_workers": 0}
    if data.labels is not None:
        lines = [line for file in (data.labels, *more) for line in read_raw_lines(file)]
        count = min(len(lines), JUDGED)
        some = scratch_folder() / "some.txt"
        write_bytes(some, b"".join(lines[number * len(lines) // count] for number in range(count)))
        values |= {"Eval.dataset.label_file_list": [str(some)], "Eval.dataset.data_dir": str(data.folder)}
        if config.at("Eval.dataset.name") not in OF_LABEL_FILES:
            values["Eval.dataset.name"] = "SimpleDataSet"
    return config.with_values(values)


@dataclass(frozen=True)
class StepCosts:
    """What training steps cost; their memory as a line through two measured steps of few samples.

    Attributes:
        step: takes steps of so many samples, and returns the seconds of one.
        peaks: the most memory after a step of each number of samples in ``_STEPPED``, in bytes.
        sizes: how large the batches of a training are, with those of ``Train.mix``, in samples of the measured size.
        batches: the batches of an epoch.
        loading: the seconds in which a core reads a sample and changes it at random; 0 for a GPU, which goes on.
    """

    step: Callable[[int], float]
    peaks: Sequence[float]
    sizes: Sequence[float]
    batches: int
    loading: float

    def seconds(self, parts: float) -> float:
        """Measure the seconds of an epoch, each batch in so many parts that fit into the memory."""
        size = sum(self.sizes) / len(self.sizes)
        return self.batches * (parts * self.step(max(1, round(size / parts))) + size * self.loading)

    def memory(self, parts: float) -> float:
        """Return the bytes for the largest batch, in so many parts."""
        (few, more), (first, second) = _STEPPED, self.peaks
        return second + max(0.0, second - first) / (more - few) * (max(self.sizes) / parts - more)

    def most(self, batch: int, memory: float) -> int:
        """Return the samples of a batch for which the memory is enough, at most ``batch`` and at least 1."""
        if self.peaks[0] == self.peaks[1]:  # this process had more memory before, or its device has its own
            return batch
        return next((n for n in range(batch, 1, -1) if self.memory(batch / n) <= memory), 1)


def costs_of_steps(config: Config, batches: int, host: str | None = None, others: float = 0.0) -> StepCosts:
    """Measure steps of few samples, of the whole batch when that is asked for; nothing is written.

    On a CPU, seconds are processor time, so other programs hardly change them; on a GPU they are those of a clock.

    Args:
        config: the config as it was loaded.
        batches: the batches of an epoch.
        host: a PaddleOCR checkout; None searches for one.
        others: the share of each batch that other lines get.

    Raises:
        PPOCRExtError: the config cannot be trained.
    """
    subject = open_subject(config, _STEPPED[-1], host)
    context = subject.context
    clock = time.process_time if context.device == "cpu" else time.perf_counter
    optimizer = subject.restart()

    def step(count: int) -> float:
        places = paddle.arange(count) % subject.batch.samples
        entries = [each[places] for each in subject.batch.entries]
        part = replace(subject, batch=replace(subject.batch, entries=entries))
        ends = [clock()]
        for _ in range(_TIMED):
            total = part.total()
            total.backward()
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
            float(total)  # waits for a GPU
            ends.append(clock())
        return min(end - begin for begin, end in pairwise(ends))

    # First of all, since the memory is measured as the most that this process ever had.
    peaks = []
    for count in tqdm(_STEPPED, "training steps", disable=None, leave=False):
        step(count)
        peaks.append(_peak_memory() if context.device == "cpu" else 0)
    plain = host_config(context.components)
    plain["Train"]["loader"]["batch_size_per_card"] = 1  # a few samples may be no batch
    parts = loader_parts(context.host, plain, "Train", context.seed, logger=SILENT)
    begin = clock()
    loaded = sum(bool(parts.dataset[at]) for at in islice(chain.from_iterable(parts.batch_sampler), _TRIED))
    loading = (clock() - begin) / max(1, loaded) if context.device == "cpu" else 0.0
    sizes = [(batch_size(config) or 1) / (1 - others)]
    if sampler_scales(config, "Train"):
        height, width = subject.batch.images.shape[2:]
        scales = parts.batch_sampler.img_batch_pairs  # width, height and samples of its batches
        sizes = [across * down * count / (width * height) / (1 - others) for across, down, count in scales]
    return StepCosts(step, peaks, sizes, batches, loading)


def _peak_memory() -> int:
    """Return the most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _judged_labels(config: Config, host: str | None = None) -> list[tuple[Prediction, float]]:
    """Return what the weights of ``config`` read in each sample of ``Eval``, and the CTC loss of its label.

    The loss is -log p(label), Graves et al. 2006, of the probabilities that the network decodes from.

    Raises:
        PPOCRExtError: the weights cannot be evaluated.
    """
    run = Run.build(config, "eval", host_path=host)
    losses: list[float] = []

    def decode(predictions: Any, label: Any = None, *args: Any, **kwargs: Any) -> Any:
        output = predictions
        while isinstance(output, Mapping):  # of a distillation, of its teacher, of a MultiHead
            output = output[next(key for key in ("Teacher", "head_out", "ctc") if key in output)]
        ids = [[each for each in row if each] for row in np.asarray(label).tolist()]  # filled up with 0
        losses.extend(ctc_text.label_losses(output.astype("float32").numpy(), ids))
        return run.decoder(predictions, label, *args, **kwargs)

    result = evaluate(replace(run, decoder=decode))
    return list(zip(result.predictions, losses, strict=True))


def _look(config: Config, inspection: Inspection, host: str | None) -> bytes:
    """Return a PNG: each of some images as it is evaluated, then as ``Train`` changes it.

    Images that were turned, or seem to have two rows, come first.
    """
    opened = open_host(host)
    whole = complete(config, resolve_charset(config, opened.find_file))
    options = whole.host_options()
    of_eval = [each.thaw() for each in whole.at("Eval.dataset.transforms")]
    decode = [each for each in of_eval if "DecodeImage" in each]
    resize = [each for each in of_eval if kind_of(next(iter(each))) == "resize"]
    of_train = (each.thaw() for each in whole.at("Train.dataset.transforms"))
    # RecConAug joins samples
    random = [each for each in of_train if kind_of(next(iter(each))) == "random" and "RecConAug" not in each]
    pictures = []
    rows = [
        place for issue in inspection.found.issues if issue.code == "two_rows" for place, _ in issue.examples
    ]
    first = (each for each in inspection.source.samples() if each.place in rows)
    usable = _usable(inspection, [*inspection.source.moved[:_LOOKED_AT], *first])
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
