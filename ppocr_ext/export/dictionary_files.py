"""Write the dictionary of an exported model: ``charset.txt``, and the metadata of ``inference.onnx``; no Paddle.

The blank is class 0 and stands in neither.
"""

from __future__ import annotations

import json
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.errors import CharsetError, ModelError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.recognition.ctc_text import is_reordered
from ppocr_ext.recognition.exported import CHARACTERS, POLICY
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
