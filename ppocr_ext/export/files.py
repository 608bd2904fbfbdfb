"""Write the dictionary of an exported model: ``charset.txt``, and the metadata of ``inference.onnx``; no Paddle.

The blank is class 0 and stands in neither.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml

from ppocr_ext.charset import Charset
from ppocr_ext.errors import CharsetError, ModelError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.recognition.ctc_text import is_reordered, read
from ppocr_ext.recognition.opening import CHARACTERS, POLICY, RecognizerParts
from ppocr_ext.recognition.resize import WidthPolicy


def write_charset(path: Path, charset: Charset, classes: int) -> None:
    """Write one line for each class but the blank, in UTF-8; the space that ``use_space_char`` adds has a line too.

    Args:
        path: the file.
        charset: the dictionary of the model.
        classes: of the network's CTC output, the blank included.

    Raises:
        ModelError: the network has another number of classes.
        CharsetError: the file would be read as another list, as with a line break in a character.
    """
    if classes != charset.ctc_classes:
        raise ModelError(
            f"The network has {classes} classes, but {charset.name} needs {charset.ctc_classes}: its "
            f"{len(charset.characters)} characters and the blank. Fix: give the dictionary of the weights.",
            code="class_mismatch",
        )
    write_text(path, "".join(f"{character}\n" for character in charset.characters))
    read_back = tuple(path.read_bytes().decode("utf-8").removesuffix("\n").split("\n"))
    if read_back != charset.characters or any(line != line.strip("\r") for line in read_back):
        raise CharsetError(
            f"{charset.name}: a character is or contains a line break, so that {path.name} would be read as another "
            f"list. Fix: take it out of the dictionary, and train with the new one (--old-dict carries weights over).",
            code="bad_dictionary",
        )


def onnx_metadata(charset: Charset, policy: WidthPolicy) -> dict[str, str]:
    """Return the metadata with which ``inference.onnx`` is complete without the other files.

    The dictionary has the key and the form of RapidOCR: lines, which it splits again by ``splitlines()``.

    Raises:
        CharsetError: ``splitlines()`` would give another list, and every later class another character.
    """
    text = "\n".join(charset.characters)
    lines = text.splitlines()
    if lines == list(charset.characters):
        policy_text = json.dumps({**policy.to_json(), "reorder": is_reordered(charset)})
        return {CHARACTERS: text, POLICY: policy_text}
    breaks = [character for character in charset.characters if character.splitlines() != [character]]
    named = ", ".join("an empty line" if not c else "+".join(f"U+{ord(u):04X}" for u in c) for c in breaks)
    raise CharsetError(
        f"{charset.name}: RapidOCR would split the dictionary into {len(lines)} characters in place of "
        f"{len(charset.characters)}, since it has {named}. Fix: export with --format paddle, or take it out of "
        f"the dictionary.",
        code="bad_dictionary",
    )


INFERENCE_YML = "inference.yml"


def write_inference_yml(
    path: Path, model_name: str, image_shape: Sequence[int], color: str, characters: Sequence[str]
) -> None:
    """Write the file, read it back as the client does, and compare.

    Args:
        path: the file.
        model_name: one of :data:`ppocr_ext.export.clients.CLIENT_NAMES`.
        image_shape: [channels, height, width].
        color: order of the channels, ``"BGR"`` or ``"RGB"``.
        characters: all classes but the blank.

    Raises:
        CharsetError: YAML cannot hold a character.
    """
    expected = {
        "Global": {"model_name": model_name},
        "PreProcess": {
            "transform_ops": [
                {"DecodeImage": {"channel_first": False, "img_mode": color}},
                {"RecResizeImg": {"image_shape": list(image_shape)}},
                {"KeepKeys": {"keep_keys": ["image"]}},
            ]
        },
        "PostProcess": {"name": "CTCLabelDecode", "character_dict": list(characters)},
    }
    write_text(path, _text(model_name, image_shape, color, characters))
    if yaml.safe_load(path.read_bytes()) != expected:
        raise CharsetError(
            f"{path.name}: the client would read other characters than the dictionary has. Fix: take control "
            f"characters out of the dictionary.",
            code="bad_dictionary",
        )


def _text(model_name: str, image_shape: Sequence[int], color: str, characters: Sequence[str]) -> str:
    """Return the YAML: every character in double quotes, what cannot be printed as an escape."""
    lines = [
        "Global:",
        f"  model_name: {model_name}",
        "PreProcess:",
        "  transform_ops:",
        "  - DecodeImage:",
        "      channel_first: false",
        f"      img_mode: {color}",
        "  - RecResizeImg:",
        f"      image_shape: [{', '.join(map(str, image_shape))}]",
        "  - KeepKeys:",
        "      keep_keys: [image]",
        "PostProcess:",
        "  name: CTCLabelDecode",
        "  character_dict:",
        *(f"  - {quoted(character)}" for character in characters),
    ]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return ``text`` as a double-quoted scalar of YAML."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


VECTORS_FILE = "vectors.json"


def write_vectors(path: Path, images: Sequence[np.ndarray], parts: RecognizerParts) -> None:
    """Write one entry for each image: the encoded image, sums after each step, best classes, text.

    Args:
        path: the file.
        images: drawn ones, uint8 [H, W, 3]: the file goes to others, and data of a user do not.
        parts: what reads them.

    Raises:
        WeightsError: the engine's classes are not those of the dictionary.
    """
    entries = [_entry(image, parts) for image in images]
    settings = {"width_policy": parts.policy.to_json(), "reorder": is_reordered(parts.charset)}
    content = {"format": 1, **settings, "vectors": entries}
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _entry(image: np.ndarray, parts: RecognizerParts) -> dict[str, Any]:
    _, encoded = cv2.imencode(".png", image)
    prepared = parts.policy.prepare(image)
    probabilities = parts.probabilities(prepared[None])[0]
    reading = read(probabilities, parts.charset)
    return {
        "png": base64.b64encode(encoded.tobytes()).decode("ascii"),
        "image_shape": list(image.shape),
        "image_sums": image.sum(axis=(0, 1), dtype=np.int64).tolist(),  # of blue, green, red
        "input_shape": list(prepared.shape),
        "input_sums": _rounded(prepared.sum(axis=(1, 2), dtype=np.float64)),
        "input_first_row": _rounded(prepared[0, 0, :8]),
        "frames": len(probabilities),
        "classes": probabilities.argmax(axis=1).tolist(),
        "probabilities": _rounded(probabilities.max(axis=1)),
        "text": reading.text,
        "confidence": round(reading.confidence, 6),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]
