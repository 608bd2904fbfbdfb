"""Write ``inference.yml``, which PaddleOCR's 3.x client reads beside the graph; imports no Paddle.

It is written from a template and never copied from the config: the client ends in an AssertionError for any other
transform, and reads digits that are not quoted as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from ppocr_ext.errors import CharsetError
from ppocr_ext.io.atomic import write_text

INFERENCE_YML = "inference.yml"


def write_inference_yml(
    path: Path, model_name: str, image_shape: Sequence[int], color: str, characters: Sequence[str]
) -> None:
    """Write the file, read it back as the client does, and compare.

    Args:
        path: the file.
        model_name: one of :data:`ppocr_ext.export.model_names.CLIENT_NAMES`.
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
