"""Lines that a network with random weights reads correctly: their labels are what it reads.

Centers are made of correctly read lines. The classifier is scaled so that the frames of random images spread over the
classes and most are blanks; a line is kept if its reading can be a label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle

from benchmarks.labels import write_repeated
from benchmarks.sizes import SIZES, charset_of
from ppocr_ext.centers.collect import config_of_model
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.config.global_keys import AUTO
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.inference.runners import engine_of
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import config_path
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.features import FeatureTap, classifier_of, ctc_head_of
from ppocr_ext.run.context import tune_cpu

_REPEATED = "repeated.txt"
_LEAST = 512  # samples of a pass
_CHUNK = 32  # images read at a time
_TRIES = 40  # images to try for each line
_BLANKS = 0.6  # share of frames
_CLEAR = 0.002  # least difference of the two best logits of a frame: rounding must not change the reading
_NEVER = -1e4  # bias of a class that must not be read
_PATCH = 8  # pixels of one patch of grey


def prepare(folder: str, size: str, lines: int, batch: int) -> dict[str, Any]:
    """Write ``config.yml`` (of a distillation), ``dict.txt``, ``student.pdparams``, images and their label file.

    Args:
        folder: an empty one.
        size: key of ``SIZES``.
        lines: to write.
        batch: lines of a batch.

    Returns:
        An empty answer.
    """
    tune_cpu()
    place, charset = Path(folder), charset_of(size)
    name, (height, width) = SIZES[size]
    symbols = [c for c in charset.characters if c != " "]
    write_text(place / "dict.txt", "".join(f"{c}\n" for c in symbols))
    config = load([config_path(name)]).with_values(_places(place, charset, batch))
    write_text(place / "config.yml", config.to_yaml())
    paddle.seed(0)
    fresh = with_class_counts(config, charset).with_values({"Global.pretrained_model": None})
    single, _ = config_of_model(fresh, "Student", "eval")
    model = build_model(single.at("Architecture").thaw())
    model.eval()
    labels: list[str] = []
    longest = int(config.at("Global.max_text_length")) - 2  # NRTR adds two symbols
    for number, (image, text) in enumerate(_readings(model, charset, (height, width))):
        if len(labels) == lines:
            break
        if number == lines * _TRIES:
            raise PPOCRExtError(
                f"Only {len(labels)} of {number} random text lines can be read. Fix: give fewer --lines.",
                code="too_few_samples",
            )
        if 0 < len(text) <= longest:
            cv2.imwrite(str(place / f"{len(labels)}.png"), image)
            labels.append(f"{len(labels)}.png\t{text}\n")
    write_text(place / "lines.txt", "".join(labels))
    least = max(lines, _LEAST)
    write_repeated(place / _REPEATED, [line.encode() for line in labels], math.ceil(least / lines) * lines)
    paddle.save(model.state_dict(), str(place / "student.pdparams"))
    return {}


def config_to_read(folder: Path) -> Config:
    """Return the config of :func:`prepare`, with the label file that repeats the lines, and with an engine."""
    lines = [str(folder / _REPEATED)]
    values = {f"{mode}.dataset.label_file_list": lines for mode in ("Train", "Eval")}
    engine = engine_of(AUTO)  # named, since `auto` compiles nothing for little work
    return load([folder / "config.yml"]).with_values({**values, "Global.eval_engine": engine})


def _places(folder: Path, charset: Charset, batch: int) -> dict[str, Any]:
    lines = [str(folder / "lines.txt")]
    return {
        "Global.use_gpu": paddle.is_compiled_with_cuda(),
        "Global.character_dict_path": str(folder / "dict.txt"),
        "Global.use_space_char": " " in charset.characters,
        "Global.save_model_dir": str(folder / "run"),
        "Global.pretrained_model": str(folder / "student"),
        "Architecture.Models.Teacher.pretrained": None,
        "Train.dataset": {"name": "SimpleDataSet", "data_dir": str(folder), "label_file_list": lines},
        "Eval.dataset.data_dir": str(folder),
        "Eval.dataset.label_file_list": lines,
        "Eval.loader.batch_size_per_card": batch,
        "Eval.loader.num_workers": 0,
    }


def _readings(model: Any, charset: Charset, size: tuple[int, int]) -> Iterator[tuple[np.ndarray, str]]:
    """Yield images [H, W, 3] without end, with their readings; an unclear reading is empty."""
    rng, scaled = np.random.default_rng(0), False
    while True:
        images = [_image(rng, *size) for _ in range(_CHUNK)]
        inputs = np.stack([image.transpose(2, 0, 1) / 127.5 - 1.0 for image in images]).astype("float32")
        with FeatureTap(model) as tap, paddle.no_grad():
            model(paddle.to_tensor(inputs))
            if not scaled:
                _spread_frames(model, tap.logits.numpy(), charset)
                model(paddle.to_tensor(inputs))
            logits = tap.logits.numpy()
        scaled = True
        for image, frames in zip(images, logits, strict=True):
            yield image, _read(frames, charset)


def _image(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    patches = rng.integers(0, 256, (height // _PATCH, width // _PATCH, 3), dtype=np.uint8)
    image = cv2.resize(patches, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray(image)


def _spread_frames(model: Any, logits: np.ndarray, charset: Charset) -> None:
    """Scale the classifier: logits of each class with mean 0 and deviation 1, and ``_BLANKS`` of the frames blank."""
    frames = logits.reshape(-1, logits.shape[-1]).astype("float64")
    mean, deviation = frames.mean(axis=0), frames.std(axis=0) + 1e-12
    frames = (frames - mean) / deviation
    shift = np.zeros(len(mean))
    shift[[i for i, symbol in enumerate(charset.ctc_symbols) if not symbol.strip()]] = _NEVER
    shift[0] = np.quantile((frames + shift)[:, 1:].max(axis=1) - frames[:, 0], _BLANKS)
    classifier = classifier_of(ctc_head_of(model))
    weight, bias = classifier.weight.numpy(), classifier.bias.numpy()
    classifier.weight.set_value((weight / deviation).astype("float32"))
    classifier.bias.set_value(((bias - mean) / deviation + shift).astype("float32"))


def _read(logits: np.ndarray, charset: Charset) -> str:
    """Return the greedy CTC reading of logits [T, C]; empty if two classes of a frame are too close."""
    second, best = np.partition(logits, -2, axis=-1)[:, -2:].T
    if (best - second < _CLEAR).any():
        return ""
    ids = logits.argmax(axis=-1)
    kept = ids[(ids != charset.blank_id) & np.append(True, ids[1:] != ids[:-1])]
    return "".join(charset.ctc_symbols[i] for i in kept)
