"""How fast a released model reads lines: by `Recognizer.read`, and by RapidOCR and PaddleOCR with the same files.

Each reader decodes the same image files and computes with one thread; RapidOCR and PaddleOCR with their recognisers
alone, which get all images at once and the batch size of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2

from benchmarks.peer import imported
from benchmarks.step import PEER, timed_turns
from benchmarks.table import markdown, medians, ratios
from ppocr_ext.errors import DataError
from ppocr_ext.host.locate import locate_host
from ppocr_ext.inference.released import ReleasedModel, find_released, released_packages
from ppocr_ext.inference.runners import missing_packages
from ppocr_ext.recognition.recognizer import Recognizer

Reader = Callable[[Sequence[str]], list[str]]  # from files to texts
_RAPIDOCR = "rapidocr"


def measure(model: str, images: Sequence[str], batch: int, rounds: int) -> dict[str, Any]:
    """Let each reader of a released model read the images, in turns.

    Args:
        model: PaddleOCR's name of it; its files in installed packages are read.
        images: files.
        batch: images that an engine gets at a time.
        rounds: measured ones.

    Returns:
        ``times`` by reader, as :func:`benchmarks.step.timed_turns` returns them; ``equal``: by reader, how many texts
        are those of the first reader, which is ours; ``images``: their number.
    """
    texts: dict[str, list[str]] = {}

    def read(name: str, reader: Reader) -> None:
        texts[name] = reader(images)

    readers = readers_of(model, batch)
    times = timed_turns({name: partial(read, name, reader) for name, reader in readers.items()}, rounds)
    first = texts[next(iter(texts))]
    equal = {name: sum(map(str.__eq__, first, each)) for name, each in texts.items()}
    return {"times": times, "equal": equal, "images": len(images)}


def readers_of(model: str, batch: int) -> dict[str, Reader]:
    """Return the readers by name: ours for each installed file of the model, and the clients that are installed.

    Raises:
        DataError: no installed package has the model.
    """
    readers: dict[str, Reader] = {}
    for row in released_packages():
        if row.name != model or row.folder is None or not (row.folder / row.path).exists():
            continue
        found = find_released(row.folder / row.path)
        assert found is not None
        form = found.graph.suffix.removeprefix(".")
        ours = Recognizer(found, threads=1, trust_model=True)
        readers[f"ppocr_ext, {form}"] = partial(_texts, ours, batch)
        if found.form == "onnx" and not missing_packages([_RAPIDOCR]):
            readers[f"{_RAPIDOCR}, {form}"] = _rapidocr(found, batch)
        if found.form == "paddle" and row.dictionary is not None:
            for name, reader in _paddleocr(found, row.folder / row.dictionary, batch).items():
                readers[f"{name}, {form}"] = reader
    if not readers:
        raise DataError(
            f"{model}: no installed package has it. Fix: ppocr-ext weights list", code="missing_file"
        )
    return readers


def _texts(recognizer: Recognizer, batch: int, files: Sequence[str]) -> list[str]:
    return [each.text for each in recognizer.read(files, batch)]


def _rapidocr(model: ReleasedModel, batch: int) -> Reader:
    from rapidocr import RapidOCR

    alone = dict.fromkeys(("Global.use_det", "Global.use_cls"), False)
    threads = dict.fromkeys(
        [f"EngineConfig.onnxruntime.{each}_op_num_threads" for each in ("intra", "inter")], 1
    )
    options = {"Rec.model_path": str(model.graph), "Rec.rec_batch_num": batch, "Global.log_level": "error"}
    client = RapidOCR(params={**alone, **threads, **options})
    return lambda images: list(client.recognize_txt(_decoded(images)).txts or ())


def _paddleocr(model: ReleasedModel, dictionary: Path, batch: int) -> dict[str, Reader]:
    predict, utility = imported(locate_host().root, "tools.infer.predict_rec", "tools.infer.utility")
    options = {
        "rec_model_dir": model.graph.parent,
        "rec_char_dict_path": dictionary,
        "rec_batch_num": batch,
        "cpu_threads": 1,
        "use_gpu": False,
    }

    def reader(onednn: bool) -> Reader:
        words = [f"--{name}={value}" for name, value in {**options, "enable_mkldnn": onednn}.items()]
        client = predict.TextRecognizer(utility.init_args().parse_args(words))
        return lambda images: [text for text, _ in client(_decoded(images))[0]]

    return {PEER: reader(False), f"{PEER} with oneDNN": reader(True)}


def _decoded(images: Sequence[str]) -> list[Any]:
    return [cv2.imread(each) for each in images]


def table(measured: dict[str, Any]) -> str:
    """Return a table of what :func:`measure` returned, with a row for each reader."""
    times, count = measured["times"], measured["images"]
    first = next(iter(times))
    head = ["reader", "images/s (median)", "processor, ms an image", f"slower than {first} by (processor)"]
    rows = []
    for name, each in times.items():
        wall, processor = medians(each)
        cells = [
            name,
            f"{count / wall:.1f}",
            f"{1000 * processor / count:.1f}",
            f"{ratios(each, times[first])}",
        ]
        rows.append([*cells, f"{measured['equal'][name]} of {count}"])
    return markdown([*head, "equal texts"], rows)
