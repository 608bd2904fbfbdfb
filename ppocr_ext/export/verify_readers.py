"""Open the files of an export as their clients read them: each graph with the dictionary and settings beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ppocr_ext.charset import Charset
from ppocr_ext.config.yaml_io import PlainLoader
from ppocr_ext.engine.runners import GRAPH, ONNX, WEIGHTS
from ppocr_ext.errors import DataError, PPOCRExtError
from ppocr_ext.export.inference_yml import INFERENCE_YML
from ppocr_ext.export.verify import EngineReader
from ppocr_ext.export.verify_steps import Fault
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most
from ppocr_ext.recognition.engines import PaddleEngine
from ppocr_ext.recognition.opening import RecognizerParts, onnx_parts
from ppocr_ext.recognition.resize import WidthPolicy

_ONEDNN = {f"{GRAPH}, oneDNN": True, f"{GRAPH}, no oneDNN": False}


def open_readers(
    folder: Path, policy: WidthPolicy, reorder: bool | None = None
) -> tuple[list[EngineReader], dict[str, PPOCRExtError]]:
    """Return a reader for each form of the model, and why another form cannot be opened, by its name.

    Args:
        folder: has the files of an export.
        policy: of the export; ``inference.yml`` overrides its size and its order of channels.
        reorder: see :func:`ppocr_ext.recognition.ctc_text.read`.
    """
    readers: list[EngineReader] = []
    failed: dict[str, PPOCRExtError] = {}
    for name, onednn in _ONEDNN.items() if (folder / GRAPH).is_file() or (folder / WEIGHTS).is_file() else ():
        try:
            shape, color, characters = _settings(folder / INFERENCE_YML)
            engine = PaddleEngine(folder, onednn=onednn)
            own = replace(policy, image_shape=shape, color=color)
            parts = RecognizerParts(engine, own, Charset(characters), reorder)
            readers.append(EngineReader(name, parts))
        except PPOCRExtError as error:
            failed[name] = error
    if (folder / ONNX).is_file():
        try:
            readers.append(EngineReader(ONNX, onnx_parts(folder / ONNX)))
        except PPOCRExtError as error:
            failed[ONNX] = error
    return readers, failed


def _settings(file: Path) -> tuple[Any, Any, tuple[str, ...]]:
    """Return size, order of channels and dictionary, as the client of PaddleOCR 3.x reads them."""
    try:
        content = yaml.load(read_at_most(file, MAX_DICTIONARY_BYTES), PlainLoader)
        operators = {
            name: value for each in content["PreProcess"]["transform_ops"] for name, value in each.items()
        }
        characters = content["PostProcess"]["character_dict"]
        if any(
            isinstance(each, list | dict) for each in characters
        ):  # aliases in it could be text of any size
            raise TypeError("character_dict has a list or a mapping")
        # without DecodeImage the client reads images as RGB
        color = operators.get("DecodeImage", {"img_mode": "RGB"})["img_mode"]
        return tuple(operators["RecResizeImg"]["image_shape"]), color, tuple(map(str, characters))
    except (
        OSError,
        yaml.YAMLError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise DataError(
            f"{file} cannot be read as PaddleOCR 3.x does ({type(error).__name__}: {error}). Fix: export the model "
            f"again.",
            code="bad_content",
        ) from error


def dictionary_faults(expected: Charset, reader: EngineReader) -> list[Fault]:
    """Return how the dictionary of a reader differs, also in characters that no image shows."""
    right, found = expected.characters, reader.parts.charset.characters
    if right == found:
        return []
    if len(right) != len(found):
        return [Fault("dictionary", f"{len(found)} characters in place of {len(right)}")]
    number = next(n for n, (one, two) in enumerate(zip(right, found, strict=True)) if one != two)
    return [Fault("dictionary", f"character {number + 1} is {found[number]!r} in place of {right[number]!r}")]
