"""Read the description of an exported recogniser: ``model.json`` and ``charset.txt``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.inference.formats import MODEL_FILE
from ppocr_ext.io.resources import file_digest
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most
from ppocr_ext.recognition.images import WidthPolicy
from ppocr_ext.text_direction import LEFT_TO_RIGHT, RIGHT_TO_LEFT_VISUAL, TEXT_DIRECTIONS

CHARSET_FILE = "charset.txt"
FORMAT = 1  # version of model.json
_EXPORT = "Fix: give a folder or an ONNX file that `ppocr-ext export` wrote; export the model again if it is damaged."


@dataclass(frozen=True)
class Exported:
    """An exported recogniser, as its files describe it.

    Attributes:
        folder: the folder with the files.
        policy: how images are prepared.
        charset: the dictionary.
        files: SHA-256 of each file, by its name.
        width: the only width that the graph takes; None for every width.
        weights_digest: SHA-256 of the exported weights; None if it is not known.
        sub_model: name of the exported sub-model of a distillation, if any.
    """

    folder: Path
    policy: WidthPolicy
    charset: Charset
    files: Mapping[str, str]
    width: int | None = None
    weights_digest: str | None = None
    sub_model: str | None = None

    def has(self, *names: str) -> bool:
        """Return True if the export has all these files."""
        return self.files.keys() >= set(names)

    def check(self, *names: str) -> None:
        """Compare files with the digests that were taken when they were exported.

        Raises:
            WeightsError: a file is missing, or its digest differs.
        """
        for name in names:
            file = self.folder / name
            if not file.is_file():
                raise WeightsError(f"there is no file {file}. {_EXPORT}", code="missing_file")
            if file_digest(file) != self.files.get(name):
                raise WeightsError(
                    f"{file} is not the exported file: its digest differs from {MODEL_FILE}, so it is truncated or was "
                    f"replaced. Fix: copy the folder again, or export the model again; `verify --trust-model` runs it "
                    f"nevertheless.",
                    code="digest_mismatch",
                )


def read_exported(folder: Path) -> Exported:
    """Read ``model.json`` and ``charset.txt`` of a folder.

    Raises:
        DataError: a file is missing, damaged, or has another format.
        WeightsError: the dictionary is not the one that was exported.
    """
    file = folder / MODEL_FILE
    content = _content(file)
    try:
        if content["format"] != FORMAT:
            raise DataError(
                f"{file}: the format is {content['format']!r}, but this version of ppocr-ext reads {FORMAT}. Fix: pip "
                f"install -U ppocr-ext, or export the model again.",
                code="unsupported_format",
            )
        classes = content["classes"]
        source = content.get("source") or {}
        described = content.get("dictionary") or {}
        # The file has a line for each class but the blank.
        characters = _content(folder / CHARSET_FILE).removesuffix("\n").split("\n")
        exported = Exported(
            folder,
            WidthPolicy.from_json(content["width_policy"], str(file)),
            Charset(
                tuple(characters),
                folds_case=described.get("folds_case") is True,
                unknown_symbol=str(described.get("unknown_symbol") or ""),
                drops_unknown=described.get("drops_unknown") is True,
                direction=exported_direction(content),
            ),
            {str(name): str(entry["sha256"]) for name, entry in content["files"].items()},
            content["width"] if isinstance(content.get("width"), int) else None,
            source.get("digest"),
            source.get("sub_model"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file}: not a description of an exported recogniser ({type(error).__name__}: {error}). {_EXPORT}",
            code="bad_content",
        ) from error
    exported.check(CHARSET_FILE)
    if classes != exported.charset.ctc_classes:
        raise DataError(
            f"{folder / CHARSET_FILE} has {len(characters)} lines, but {MODEL_FILE} has {classes} classes with the "
            f"blank. {_EXPORT}",
            code="class_count",
        )
    return exported


def exported_direction(content: Mapping[str, Any]) -> str:
    """Return the direction of a description; earlier versions wrote only whether texts are turned."""
    earlier = RIGHT_TO_LEFT_VISUAL if content.get("reorder") is True else LEFT_TO_RIGHT
    direction = content.get("text_direction", earlier)
    return direction if direction in TEXT_DIRECTIONS else earlier


def _content(file: Path) -> Any:
    """Return the text of a file, or the content of a JSON file."""
    try:
        text = read_at_most(file, MAX_DICTIONARY_BYTES).decode("utf-8")
        return json.loads(text) if file.suffix == ".json" else text
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}. {_EXPORT}",
            code="unreadable_file",
        ) from error
