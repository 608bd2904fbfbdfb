"""A batch of a distillation, and a teacher cache that has it, written by the code of a run."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.memory import peak_memory
from benchmarks.step import losses_of_paddleocr
from ppocr_ext.centers.collect import CollectOptions, collect, config_of_model
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import write_text
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.features import classifier_of, ctc_head_of
from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run

CACHE = "cache"
_CONFIG, _BATCH, _TEACHER = "step.yml", "batch.npz", "teacher.pdparams"
# Factor of the CTC classifier. A cache keeps the probable classes; with random weights all classes are nearly equally
# probable, and the cache would refuse to serve the losses.
_SHARPNESS = 1000.0
_GROWTH_BATCH = 32


def prepare(folder: str, batch: int) -> dict[str, Any]:
    """Write a config, the weights of its teacher, a cache of one view, and the first batch of a training with it.

    ``folder`` is as :func:`benchmarks.export_center_data.prepare` leaves it. The answer is empty.
    """
    place = Path(folder)
    config = training_config(place, batch)
    write_text(place / _CONFIG, config.to_yaml())
    paddle.seed(0)
    teacher = build_model(config_of(place).at("Architecture").thaw()).Teacher
    weight = classifier_of(ctc_head_of(teacher)).weight
    weight.set_value(weight * _SHARPNESS)
    paddle.save(teacher.state_dict(), str(place / _TEACHER))
    options = CacheOptions(place / CACHE, views=1)
    build_cache(config, CacheBuilder(config, options), options)
    run = Run.build(config.with_values({"Train.teacher_cache": str(place / CACHE)}), "train")
    if run.teacher_cache is None:
        raise PPOCRExtError(
            "The teacher cache cannot serve the losses of the benchmark.", code="unserved_loss"
        )
    arrays = [each.numpy() for each in next(iter(run.data.train_loader))]
    np.savez(place / _BATCH, *arrays)
    return {}


def training_config(folder: Path, batch: int) -> Config:
    """Return the config of a distillation on the lines of ``folder``, with the losses that PaddleOCR has too."""
    config = load([folder / "config.yml"])
    evaluation = config.at("Eval").thaw()
    train = {
        "dataset": config.at("Train.dataset").thaw() | {"transforms": evaluation["dataset"]["transforms"]},
        "loader": {"shuffle": True, "batch_size_per_card": batch, "drop_last": True, "num_workers": 0},
    }
    return config.with_values(
        {
            "Train": train,
            "Loss": losses_of_paddleocr(),
            "Global.pretrained_model": None,
            "Global.max_unusable": 1.0,
            "Global.allow_untrained_teacher": True,
            "Architecture.Models.Teacher.pretrained": str(folder / Path(_TEACHER).stem),
        }
    )


def config_of(folder: Path) -> Config:
    """Return the config of a step, with its class counts."""
    config = load([folder / _CONFIG])
    charset = Charset.from_file(folder / "dict.txt", bool(config.at("Global.use_space_char")))
    return with_class_counts(config, charset)


def batch_of_run(folder: Path) -> list[paddle.Tensor]:
    """Return images and labels of the batch."""
    with np.load(folder / _BATCH) as arrays:
        return [paddle.to_tensor(arrays[name]) for name in arrays.files]


def measure_growth(what: str, folder: str, lines: str) -> dict[str, Any]:
    """Do the work of a command on the label file ``lines``, each line once.

    Args:
        what: ``"cache"`` (one view) or ``"centers"``.
        folder: as :func:`prepare` leaves it.
        lines: the label file.

    Returns:
        ``seconds``, and ``peak`` memory of the process in bytes.
    """
    quiet_host(open_host().logger)
    place, began = Path(folder), time.perf_counter()
    if what == "cache":
        config = training_config(place, _GROWTH_BATCH).with_values({"Train.dataset.label_file_list": [lines]})
        options = CacheOptions(place / "cache_to_measure", views=1)
        shutil.rmtree(options.folder, ignore_errors=True)
        build_cache(config, CacheBuilder(config, options), options)
    else:
        config, _ = config_of_model(load([place / "config.yml"]), None, "train")
        config = config.with_values(
            {"Eval.dataset.label_file_list": [lines], "Eval.loader.batch_size_per_card": _GROWTH_BATCH}
        )
        collect(Run.build(config, "eval", weights_of="Student"), CollectOptions())
    return {"seconds": time.perf_counter() - began, "peak": peak_memory()}
